"""Admin client for topics and their settings."""

from ottla.cli.topic.admin import TopicAdmin
from ottla.client.admin.configs import ConfigCalls, ConfigResource, ConfigSource


class TopicSettingsAdmin(TopicAdmin, ConfigCalls):
    """Describes and changes topics and their settings."""

    async def own_configs(self, names: list[str]) -> dict[str, dict[str, str | None]]:
        """Return the settings of topics themselves; none for a topic that the user may not see."""
        told = await self.describe_configs([ConfigResource.topic(name) for name in names])
        return {
            resource.name: {
                entry.name: entry.value
                for entry in sorted(entries.values(), key=lambda one: one.name)
                if entry.source is ConfigSource.TOPIC
            }
            for resource, entries in told.succeeded.items()
        }

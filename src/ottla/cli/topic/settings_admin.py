"""The administrator of commands on topics and their settings."""

from ottla.cli.topic.admin import TopicAdmin
from ottla.client.admin.configs import ConfigCalls, ConfigResource, ConfigSource


class TopicSettingsAdmin(TopicAdmin, ConfigCalls):
    """Asks and changes topics with their settings."""

    async def own_configs(self, names: list[str]) -> dict[str, dict[str, str | None]]:
        """The settings that topics have themselves; of one that may not be seen there are none."""
        told = await self.describe_configs([ConfigResource.topic(name) for name in names])
        return {
            resource.name: {
                entry.name: entry.value
                for entry in sorted(entries.values(), key=lambda one: one.name)
                if entry.source is ConfigSource.TOPIC
            }
            for resource, entries in told.succeeded.items()
        }

"""Admin client for groups."""

from collections.abc import Iterable

from ottla.cli.offsets.first_records import FirstRecordCalls
from ottla.client.admin.administration import Administration
from ottla.client.admin.group_offsets import GroupOffsetCalls
from ottla.client.admin.groups import GroupCalls
from ottla.client.admin.records import RecordCalls
from ottla.client.admin.topics import TopicCalls
from ottla.client.network.cluster_view import BrokerView


class GroupAdmin(
    Administration, GroupCalls, GroupOffsetCalls, RecordCalls, TopicCalls, FirstRecordCalls
):
    """Describes and changes groups."""

    async def coordinators(
        self, groups: Iterable[str], *, timeout_s: float | None = None
    ) -> dict[str, BrokerView]:
        """Return the known coordinators of groups."""
        asking = self._asking
        names = [*groups]
        left_s = asking.left_s(asking.deadline_s(timeout_s))
        found = await asking.to_group.brokers(names, left_s)
        pairs = zip(names, found, strict=True)
        return {name: one for name, one in pairs if isinstance(one, BrokerView)}

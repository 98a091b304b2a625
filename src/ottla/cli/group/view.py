"""Groups as operators see them: members, positions and lag.

Invariant: nothing is changed. A partition without data is incomplete only in its own row; a group
that cannot be described has its error.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ottla.cli.group.admin import GroupAdmin
from ottla.cli.group.lag import PartitionLag, first_unread, partition_lags
from ottla.client.admin.group_descriptions import GroupDescription
from ottla.client.admin.group_offsets import CommittedOffset
from ottla.client.admin.records import OffsetAt, RecordCalls
from ottla.client.network.cluster_view import BrokerView
from ottla.client.partitions import Partition
from ottla.errors import RequestError


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group, its coordinator and what it reads."""

    description: GroupDescription
    coordinator: BrokerView | None
    partition_lags: Sequence[PartitionLag]


async def viewed(
    admin: GroupAdmin,
    groups: Iterable[str],
    *,
    with_since: bool = True,
    timeout_s: float | None = None,
) -> dict[str, GroupView | RequestError]:
    """Return groups or errors; with_since reads the first unread records."""
    names = [*dict.fromkeys(groups)]
    described = await admin.describe_groups(names, timeout_s=timeout_s)
    found = described.succeeded
    coordinators = await admin.coordinators(found, timeout_s=timeout_s)
    told = await admin.list_group_offsets(found, timeout_s=timeout_s)
    committed = {name: told[name].succeeded for name in told.succeeded}
    places = {where for one in committed.values() for where in one} | {
        where for one in found.values() for member in one.members for where in member.assignment
    }
    ends = await edges(admin, places, OffsetAt.LATEST, timeout_s=timeout_s)
    starts: Mapping[Partition, int | None] = {}
    if with_since:
        starts = await edges(admin, places, OffsetAt.EARLIEST, timeout_s=timeout_s)
    rows = {
        name: partition_lags(one.members, committed[name], starts, ends)
        for name, one in found.items()
        if name in committed
    }
    if with_since:
        rows = await _since(admin, rows, timeout_s)
    return {
        name: described.failed.get(name)
        or told.failed.get(name)
        or GroupView(found[name], coordinators.get(name), rows[name])
        for name in names
    }


async def _since(
    admin: GroupAdmin, rows: Mapping[str, Sequence[PartitionLag]], timeout_s: float | None
) -> dict[str, list[PartitionLag]]:
    """Return the rows with `since`; groups may wait for different records."""
    dated: dict[str, list[PartitionLag]] = {}
    for name, ones in rows.items():
        times_ms = await admin.first_times_ms(first_unread(ones), timeout_s=timeout_s)
        dated[name] = [replace(one, since_ms=times_ms.get(one.partition)) for one in ones]
    return dated


async def edges(
    admin: RecordCalls,
    partitions: Iterable[Partition],
    at: OffsetAt,
    *,
    timeout_s: float | None = None,
) -> dict[Partition, int | None]:
    """Return the start or end offsets of partitions that have them."""
    told = await admin.list_offsets(dict.fromkeys(partitions, at), timeout_s=timeout_s)
    return {where: one.offset for where, one in told.succeeded.items()}


async def committed_offsets(
    admin: GroupAdmin, group: str, *, timeout_s: float | None = None
) -> dict[Partition, CommittedOffset]:
    """Return all committed offsets of a group; empty for a missing group."""
    told = (await admin.list_group_offsets(group, timeout_s=timeout_s))[group]
    return {where: one for where, one in told.or_raise().items() if one is not None}

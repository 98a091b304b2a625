"""Gathers what a seek of a group needs, and executes its plan.

Invariant: nothing changes until the plan is executed, which is one request to the coordinator. Only
a group without members is moved: members would continue at their positions and commit those.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.cli.group.admin import GroupAdmin
from ottla.cli.group.seek_plan import Aim, Bounds, Move, planned
from ottla.cli.offsets.positions import PositionKind
from ottla.client.admin.records import OffsetAt, RecordCalls
from ottla.client.calls.results import Results
from ottla.client.partitions import Partition
from ottla.errors import ErrorCode, OttlaError, RequestError

EMPTY: Final = "Empty"


class HasMembers(OttlaError):
    """A group with members cannot be moved."""

    def __init__(self, group: str, state: str, members: int) -> None:
        whom = "a member" if members == 1 else f"{members} members"
        super().__init__(
            f"group {group} has {whom} (state {state}): stop all members first, or they "
            "continue at their positions and commit those"
        )
        self.group = group
        self.state = state


async def check_unread(admin: GroupAdmin, group: str, *, timeout_s: float | None = None) -> bool:
    """Return whether a group exists; raises HasMembers."""
    try:
        found = (await admin.describe_groups(group, timeout_s=timeout_s))[group]
    except RequestError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return False
        raise
    if found.state != EMPTY:
        raise HasMembers(group, found.state, len(found.members))
    return True


async def plan_moves(
    admin: GroupAdmin,
    aims: Mapping[Partition, Aim],
    committed: Mapping[Partition, int | None],
    *,
    timeout_s: float | None = None,
) -> list[Move]:
    """Return the plan for the partitions as they are now."""
    starts = await _offsets(admin, dict.fromkeys(aims, OffsetAt.EARLIEST), timeout_s)
    ends = await _offsets(admin, dict.fromkeys(aims, OffsetAt.LATEST), timeout_s)
    times_ms = {
        where: aim.value
        for where, aim in aims.items()
        if aim is not None and aim.kind is PositionKind.TIME
    }
    found = await _offsets(admin, times_ms, timeout_s)
    bounds = {where: Bounds(starts[where] or 0, ends[where] or 0) for where in aims}
    return planned(aims, committed, bounds, found)


async def _offsets(
    admin: RecordCalls, places: Mapping[Partition, OffsetAt | int], timeout_s: float | None
) -> dict[Partition, int | None]:
    if not places:
        return {}
    told = (await admin.list_offsets(places, timeout_s=timeout_s)).or_raise()
    return {where: one.offset for where, one in told.items()}


async def carried_out(
    admin: GroupAdmin, group: str, moves: Iterable[Move], *, timeout_s: float | None = None
) -> Results[Partition, None]:
    """Commit the offsets of a plan."""
    offsets = {one.partition: one.after for one in moves}
    if not offsets:
        return Results[Partition, None]({})
    return await admin.alter_group_offsets(group, offsets, timeout_s=timeout_s)


def only_code(told: Results[Partition, None]) -> ErrorCode | None:
    """Return the error code if it is the same for all partitions."""
    codes = {error.code for error in told.failed.values()}
    return codes.pop() if len(codes) == 1 and not told.succeeded else None

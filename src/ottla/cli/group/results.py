"""Results of group commands, as objects and as tables.

Invariant: keys are stable; a time is UTC, as 2026-11-01T00:00:00.000Z.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from ottla.cli.escapes import escaped
from ottla.cli.group.lag import PartitionLag, earliest, total
from ottla.cli.group.seek_plan import Limit, Move
from ottla.cli.group.view import GroupView
from ottla.cli.output import Json
from ottla.cli.result import Cell, Table, facts
from ottla.cli.times import time_text
from ottla.client.admin.group_descriptions import MemberDescription
from ottla.client.admin.groups import ListedGroup

_LIMITS: Final = {
    Limit.START: "{wanted} is before the first record",
    Limit.END: "{wanted} is after the last record",
    Limit.NO_LATER: "no record is that late: the end",
}


# Lists.


def listed_object(one: ListedGroup) -> dict[str, Json]:
    """Return a listed group as an object."""
    return {
        "name": one.id,
        "type": one.type,
        "state": one.state,
        "protocol_type": one.protocol_type or None,
    }


def listed_table(groups: Sequence[ListedGroup]) -> Table:
    """Return listed groups as a table; type and protocol are those of kafka-groups."""
    return Table(
        ("GROUP", "TYPE", "STATE", "PROTOCOL"),
        [(one.id, one.type, one.state, one.protocol_type or None) for one in groups],
    )


# Descriptions.


def described_object(view: GroupView) -> dict[str, Json]:
    """Return a described group as an object."""
    told, coordinator = view.description, view.coordinator
    return {
        "name": told.id,
        "type": told.type,
        "state": told.state,
        "protocol_type": told.protocol_type or None,
        "assignor": told.assignor or None,
        "epoch": told.epoch,
        "assignment_epoch": told.assignment_epoch,
        "coordinator": coordinator
        and {
            "id": int(coordinator.id),
            "host": coordinator.host,
            "port": coordinator.port,
        },
        "lag": total(view.partition_lags),
        "since": time_text(earliest(view.partition_lags)),
        "partitions": [_reading_object(one) for one in _in_order(view.partition_lags)],
        "members": [_member_object(one, view.partition_lags) for one in told.members],
    }


def _reading_object(one: PartitionLag) -> dict[str, Json]:
    committed, member = one.committed, one.member
    return {
        "topic": one.partition[0],
        "partition": one.partition[1],
        "offset": committed and committed.offset,
        "start": one.start,
        "end": one.end,
        "lag": one.lag,
        "since": time_text(one.since_ms),
        "leader_epoch": committed and committed.leader_epoch,
        "metadata": committed and committed.metadata,
        "member": member and member.id,
    }


def _member_object(one: MemberDescription, readings: Sequence[PartitionLag]) -> dict[str, Json]:
    own = _own(one, readings)
    return {
        "id": one.id,
        "instance_id": one.instance_id,
        "client_id": one.client_id,
        "host": one.host,
        "rack": one.rack,
        "epoch": one.epoch,
        "topics": list(one.topics),
        "lag": total(own),
        "since": time_text(earliest(own)),
        "partitions": [{"topic": topic, "partition": number} for topic, number in one.assignment],
    }


def described_shown(view: GroupView) -> list[Table | str]:
    """Return a described group as tables."""
    told = view.description
    coordinator: str | None = None
    if view.coordinator is not None:
        where = view.coordinator
        coordinator = f"{where.host}:{where.port} (broker {where.id})"
    heads: Mapping[str, Cell] = {
        "group": told.id,
        "type": told.type,
        "state": told.state,
        "protocol": told.protocol_type or None,
        "assignor": told.assignor or None,
        "coordinator": coordinator,
        "members": len(told.members),
        "lag": total(view.partition_lags),
        "since": time_text(earliest(view.partition_lags)),
    }
    shown: list[Table | str] = [*facts(heads)]
    if view.partition_lags:
        heading = ("TOPIC", "PARTITION", "OFFSET", "END", "LAG", "SINCE", "MEMBER")
        shown += ["", Table(heading, [_reading_row(one) for one in _in_order(view.partition_lags)])]
    if told.members:
        heading = ("MEMBER", "CLIENT", "HOST", "PARTITIONS", "LAG", "SINCE")
        shown += [
            "",
            Table(heading, [_member_row(one, view.partition_lags) for one in told.members]),
        ]
    return shown


def _reading_row(one: PartitionLag) -> tuple[Cell, ...]:
    offset = None if one.committed is None else one.committed.offset
    since = time_text(one.since_ms)
    return (*one.partition, offset, one.end, one.lag, since, one.member and _name(one.member))


def _member_row(one: MemberDescription, readings: Sequence[PartitionLag]) -> tuple[Cell, ...]:
    own = _own(one, readings)
    counts = (len(one.assignment), total(own), time_text(earliest(own)))
    return (_name(one), one.client_id, one.host, *counts)


def _name(one: MemberDescription) -> str:
    """Return the instance id of a static member, else the member id."""
    return one.id if one.instance_id is None else one.instance_id


def _own(member: MemberDescription, readings: Sequence[PartitionLag]) -> list[PartitionLag]:
    return [one for one in readings if one.member is not None and one.member.id == member.id]


def _in_order(given: Sequence[PartitionLag]) -> list[PartitionLag]:
    return sorted(given, key=lambda one: one.partition)


# Plans.


def move_object(one: Move) -> dict[str, Json]:
    """Return the move of one partition as an object."""
    return {
        "topic": one.partition[0],
        "partition": one.partition[1],
        "before": one.before,
        "after": one.after,
        "start": one.bounds.start,
        "end": one.bounds.end,
        "skipped": one.skipped,
        "again": one.again,
        "limit": one.limit and one.limit.value,
    }


def moves_table(moves: Sequence[Move]) -> Table:
    """Return the plan as a table."""
    return Table(
        ("TOPIC", "PARTITION", "BEFORE", "AFTER", "SKIPPED", "AGAIN", "LEFT", "NOTE"),
        [
            (
                *one.partition,
                one.before,
                one.after,
                one.skipped,
                one.again,
                one.bounds.end - one.after,
                "" if one.limit is None else _LIMITS[one.limit].format(wanted=one.wanted),
            )
            for one in moves
        ],
    )


def moves_sentence(group: str, moves: Sequence[Move], *, is_done: bool) -> str:
    """Return the summary of a plan or of its execution."""
    group = escaped(group)
    count = len(moves)
    whole = f"{count} partition{'' if count == 1 else 's'}"
    skipped, again = sum(one.skipped for one in moves), sum(one.again for one in moves)
    if is_done:
        return f"{group} was moved in {whole}: {skipped} records skipped, {again} to be read again."
    return (
        f"Plan for {group} in {whole}: {skipped} records skipped, {again} to be read again. "
        "Nothing was changed; use --execute to apply it."
    )

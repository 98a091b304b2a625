"""Output lines of `kafka-consumer-groups`, with Kafka's headings and widths.

Invariant: a column is as wide as its longest value and has at least Kafka's minimum width. A
missing value is `-`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ottla.cli.group.lag import PartitionLag
from ottla.cli.group.view import GroupView
from ottla.client.admin.group_descriptions import MemberDescription
from ottla.client.admin.groups import ListedGroup
from ottla.client.partitions import Partition

MISSING: Final = "-"
_NAME: Final = 15  # minimum width of most columns


def _text(value: object) -> str:
    return MISSING if value is None else str(value)


def _wide(least: int, values: Iterable[str]) -> int:
    return max([least, *map(len, values)])


def _row(values: Sequence[object], widths: Sequence[int]) -> str:
    """Return values in columns; values after the last width are not padded."""
    padded = [f"{_text(value):{width}}" for value, width in zip(values, widths, strict=False)]
    return " ".join([*padded, *map(_text, values[len(widths) :])])


# --list


def list_lines(groups: Sequence[ListedGroup], *, with_type: bool, with_state: bool) -> list[str]:
    """Return the groups, with type and state if requested."""
    if not (with_type or with_state):
        return [one.id for one in groups]
    width = _wide(_NAME, (one.id for one in groups)) + 10
    rows: list[list[str]] = [
        ["GROUP", *["TYPE"][: int(with_type)], *["STATE"][: int(with_state)]],
        *(
            [
                one.id,
                *[_capital(one.type)][: int(with_type)],
                *[one.state or "Unknown"][: int(with_state)],
            ]
            for one in groups
        ),
    ]
    return [_row(row, [width, *[20] * (len(row) - 1)]) for row in rows]


def _capital(kind: str | None) -> str:
    return (kind or "unknown").capitalize()


# --describe --offsets


def offset_lines(group: str, readings: Sequence[PartitionLag], *, is_verbose: bool) -> list[str]:
    """Return the offsets and lag of a group."""
    rows = [_offset_row(group, one) for one in readings]
    heads = (
        *("GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET", "LOG-END-OFFSET"),
        *("LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"),
    )
    names = _wide(_NAME, (row[0] for row in rows))
    topics = _wide(_NAME, (row[1] for row in rows))
    members = _wide(_NAME, (row[7] for row in rows))
    hosts = _wide(_NAME, (row[8] for row in rows))
    widths = [names, topics, 10, 15, 15, 15, 15, members, hosts]
    if is_verbose:
        return ["", *(_row(row, widths) for row in (heads, *rows))]
    del widths[3]
    return ["", *(_row([*row[:3], *row[4:]], widths) for row in (heads, *rows))]


def _offset_row(group: str, one: PartitionLag) -> tuple[str, ...]:
    committed, member = one.committed, one.member
    return tuple(
        map(
            _text,
            (
                group,
                *one.partition,
                committed and committed.leader_epoch,
                committed and committed.offset,
                one.end,
                one.lag,
                member and member.id,
                member and member.host,
                member and member.client_id,
            ),
        )
    )


# --describe --members


def member_lines(view: GroupView, *, is_verbose: bool) -> list[str]:
    """Return the members of a group."""
    told = view.description
    ones = told.members
    with_instance = any(one.instance_id for one in ones)
    now = [_assignment(one.assignment) for one in ones]
    then = [_assignment(one.target_assignment or ()) for one in ones]
    widths = [
        _wide(_NAME, [told.id] if ones else []),
        _wide(_NAME, (one.id for one in ones)),
        *([_wide(17, (one.instance_id or "" for one in ones))] if with_instance else []),
        _wide(_NAME, (one.host for one in ones)),
        _wide(_NAME, (one.client_id for one in ones)),
        15,
    ]
    long = [15, _wide(20, now), 15, _wide(20, then)]
    instance = ["GROUP-INSTANCE-ID"] if with_instance else []
    heads = ["GROUP", "CONSUMER-ID", *instance, "HOST", "CLIENT-ID", "#PARTITIONS"]
    rows: list[str] = [_row(heads, widths) + " "]
    rows += [_row(_member_row(told.id, one, with_instance), widths) + " " for one in ones]
    if is_verbose:
        heads = ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        epochs = [(one.epoch, told.assignment_epoch) for one in ones]
        more = [
            [epoch, current, target_epoch, target]
            for (epoch, target_epoch), current, target in zip(epochs, now, then, strict=True)
        ]
        rows = [row + _row(rest, long) for row, rest in zip(rows, [heads, *more], strict=True)]
    return ["", *rows]


def _member_row(group: str, one: MemberDescription, with_instance: bool) -> list[object]:
    instance = [one.instance_id or ""] if with_instance else []
    return [group, one.id, *instance, one.host, one.client_id, len(one.assignment)]


def _assignment(partitions: Sequence[Partition]) -> str:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    ones = (f"{name}:{','.join(map(str, sorted(numbers)))}" for name, numbers in topics.items())
    return ";".join(sorted(ones)) or MISSING


# --describe --state


def state_lines(view: GroupView, *, is_verbose: bool) -> list[str]:
    """Return the state of a group."""
    told, where = view.description, view.coordinator
    coordinator = MISSING if where is None else f"{where.host}:{where.port}  ({where.id})"
    widths = [_wide(_NAME, [told.id]), _wide(25, [coordinator]), 20, 20]
    heads = ["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE"]
    row: list[object] = [told.id, coordinator, told.assignor or MISSING, told.state]
    if is_verbose:
        widths += [15, 25]
        heads += ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        row += [told.epoch, told.assignment_epoch]
    return ["", _row([*heads, "#MEMBERS"], widths), _row([*row, len(told.members)], widths)]


# --reset-offsets, --delete-offsets


def reset_lines(plan: Mapping[str, Mapping[Partition, int]]) -> list[str]:
    """Return the new offsets of groups."""
    names = _wide(_NAME, plan)
    topics = _wide(_NAME, (topic for ones in plan.values() for topic, _ in ones))
    rows: list[tuple[object, ...]] = [
        (group, topic, number, offset)
        for group, ones in plan.items()
        for (topic, number), offset in ones.items()
    ]
    heads = [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")] if plan else []
    return ["", *(_row(row, [names, topics, 10]) for row in (*heads, *rows))]


def forgotten_lines(told: Mapping[Partition, str]) -> list[str]:
    """Return the result of deleting a group's offsets; partition -1 is a missing topic."""
    topics = _wide(_NAME, (topic for topic, _ in told))
    rows = sorted(
        ((topic, None if number < 0 else number, what) for (topic, number), what in told.items()),
        key=lambda row: f"{row[0]}{-1 if row[1] is None else row[1]}",
    )
    widths = [topics, 10, 15]
    return ["", *(_row(row, widths) for row in (("TOPIC", "PARTITION", "STATUS"), *rows))]

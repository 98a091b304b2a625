"""`kafka-consumer-groups --reset-offsets`: plans and executes a reset like Kafka's tool.

Invariant: offsets change only with --execute, and only in groups without members.
"""

import sys
import time
from collections.abc import Mapping, Sequence

from ottla.cli.group.admin import GroupAdmin
from ottla.cli.group.seek import HasMembers, carried_out, check_unread, plan_moves
from ottla.cli.group.seek_plan import Aim, Limit, Move, NothingCommitted
from ottla.cli.group.view import committed_offsets
from ottla.cli.kafka import java_errors
from ottla.cli.kafka.flags import BadFlags, Given
from ottla.cli.kafka.groups.flags import SCENARIOS, number_of
from ottla.cli.kafka.groups.lines import reset_lines
from ottla.cli.kafka.groups.reset_options import (
    BadReset,
    datetime_ms,
    duration_ms,
    read_rows,
    written_rows,
)
from ottla.cli.kafka.tool import print_error, print_lines
from ottla.cli.offsets.admin import expanded
from ottla.cli.offsets.partition_lists import BadPartitions, Choice, NoSuchPartitions, parse_choice
from ottla.cli.offsets.positions import END, START, Position, PositionKind
from ottla.client.partitions import Partition, partition
from ottla.errors import OttlaError, RequestError

_LIMITS = {Limit.END: "higher than latest", Limit.START: "lower than earliest"}


async def reset(admin: GroupAdmin, given: Given, groups: Sequence[str], timeout_s: float) -> None:
    """Plan a reset and, with --execute, commit it."""
    plan: dict[str, dict[Partition, int]] = {}
    for group in groups:
        plan[group] = {}
        try:
            await check_unread(admin, group, timeout_s=timeout_s)
        except HasMembers as error:
            print_error(
                f"Assignments can only be reset if the group '{group}' is inactive, but "
                f"the current state is {error.state}."
            )
            continue
        moves = await _moves(admin, given, group, timeout_s)
        _tell_limits(moves)
        if "execute" in given:
            try:
                (await carried_out(admin, group, moves, timeout_s=timeout_s)).or_raise()
            except RequestError as error:
                raise OttlaError(java_errors.message(error, group)) from error
        plan[group] = {one.partition: one.after for one in moves}
    if "export" in given:
        is_one = len(given.all("group")) == 1
        print_lines([*written_rows(plan, with_group=not is_one), ""])
    else:
        print_lines(reset_lines(plan))


async def _moves(admin: GroupAdmin, given: Given, group: str, timeout_s: float) -> list[Move]:
    found = await committed_offsets(admin, group, timeout_s=timeout_s)
    committed = {where: one.offset for where, one in found.items()}
    wanted = await _partitions(admin, given, committed, timeout_s)
    if (path := given.one("from-file")) is not None:
        aims = _aims_of(path, given, group)
    else:
        aims = dict.fromkeys(wanted, _aim(given))
    try:
        return await plan_moves(admin, aims, committed, timeout_s=timeout_s)
    except NothingCommitted as error:
        raise BadFlags(
            f"Cannot shift offset for partition {partition(*error.partition)} since there is no "
            "current committed offset"
        ) from None


async def _partitions(
    admin: GroupAdmin, given: Given, committed: Mapping[Partition, int], timeout_s: float
) -> Sequence[Partition]:
    """Return the partitions that the flags name; raises OttlaError if one does not exist."""
    if "all-topics" in given:
        choices = [Choice(topic, (number,)) for topic, number in committed]
    elif "topic" in given:
        choices = choices_of(given)
    elif "from-file" in given:
        return []
    else:
        raise BadFlags("One of the reset scopes should be defined: --all-topics, --topic.")
    try:
        return await expanded(admin, choices, timeout_s=timeout_s)
    except NoSuchPartitions as error:
        names = ",".join(str(partition(*one)) for one in error.missing)
        raise OttlaError(f'The partitions "{names}" do not exist') from None
    except RequestError as error:
        if any(one.numbers is None for one in choices):
            raise OttlaError(java_errors.message(error, choices[0].topic)) from None
        text = java_errors.text(error, choices[0].topic)
        raise OttlaError(f"java.util.concurrent.ExecutionException: {text}") from None


def choices_of(given: Given) -> list[Choice]:
    """Return the topics and partitions of --topic."""
    try:
        return [parse_choice(one) for one in given.all("topic")]
    except BadPartitions as error:
        if error.number is None:
            raise BadFlags(
                f"Invalid topic arg '{error.text}', expected topic name and partitions"
            ) from None
        raise BadFlags(
            f"Invalid partition '{error.number}' specified in topic arg '{error.text}''"
        ) from None


def _aim(given: Given) -> Aim:
    if (offset := number_of(given, "to-offset")) is not None:
        return Position(PositionKind.OFFSET, offset)
    if "to-earliest" in given:
        return START
    if "to-latest" in given:
        return END
    if (count := number_of(given, "shift-by")) is not None:
        return Position(PositionKind.SHIFT, count)
    if (said := given.one("to-datetime")) is not None:
        return Position(PositionKind.TIME, max(0, datetime_ms(said)))
    if (said := given.one("by-duration")) is not None:
        now_ms = time.time_ns() // 1_000_000
        return Position(PositionKind.TIME, max(0, now_ms - duration_ms(said)))
    if "to-current" in given:
        return None
    known = ", ".join(f"[{one}]" for one in SCENARIOS)
    raise BadFlags(f"Option '[reset-offsets]' requires one of the following scenarios: [{known}]")


def _aims_of(path: str, given: Given, group: str) -> dict[Partition, Aim]:
    """Return the offsets that a file has for a group."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            plan = read_rows(file.read(), given.all("group"))
    except OSError:
        raise BadReset(f"java.io.IOException: Unable to read file {path}") from None
    if group not in plan:
        print_error(f"No reset plan for group {group} found")
        return {}
    return {where: Position(PositionKind.OFFSET, offset) for where, offset in plan[group].items()}


def _tell_limits(moves: Sequence[Move]) -> None:
    for one in moves:
        topic, number = one.partition
        if one.limit is Limit.NO_LATER:
            print(
                f"\nWarn: Partition {number} from topic {topic} is empty. "
                "Falling back to latest known offset."
            )
        elif one.limit is not None:
            print(
                f"New offset ({one.wanted}) is {_LIMITS[one.limit]} offset for topic partition "
                f"{partition(*one.partition)}. Value will be set to {one.after}.",
                file=sys.stderr,
            )

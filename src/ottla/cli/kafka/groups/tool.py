"""`kafka-consumer-groups`: list, describe, delete and reset consumer groups like Kafka's tool.

Invariant: as in Kafka's tool, failures are printed on stdout and the exit code is 0. Flags that do
not fit together exit with 1.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ottla.cli.escapes import escaped
from ottla.cli.group.kinds import STATES, TYPES
from ottla.cli.kafka.flags import BadFlags, Given, NotDone
from ottla.cli.kafka.groups.flags import DELETED, USAGE, check, number_of
from ottla.cli.kafka.tool import print_error, print_lines, run_tool, settings_of
from ottla.errors import OttlaError, RequestError
from ottla.settings.invalid_settings import InvalidSettings

if TYPE_CHECKING:
    from ottla.cli.group.admin import GroupAdmin
    from ottla.cli.group.view import GroupView
    from ottla.client.admin.groups import ListedGroup

TIMEOUT_MS: Final = 5000
_CONSUMERS: Final = ("consumer", "")  # "" if only offsets were committed
_NOT_EXECUTED: Final = (
    "WARN: No action will be performed as the --execute option is missing. In version 5.0, this "
    "command will require either --dry-run or --execute to be specified. You should add the "
    "--dry-run option explicitly if you are scripting this command and want to keep the current "
    "default behavior without prompting."
)
_CHANGING: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


def run() -> None:
    """Run the console script."""
    run_tool(USAGE, act)


async def act(given: Given) -> int:
    """Run the action of the flags."""
    if "reset-offsets" in given and "dry-run" not in given and "execute" not in given:
        print(_NOT_EXECUTED, file=sys.stderr)
    check(given)
    from ottla.cli.kafka import java_errors

    try:
        await _acted(given)
    except (BadFlags, NotDone):
        raise
    except RequestError as error:
        print_error(f"Executing consumer group command failed due to {java_errors.text(error)}")
    except (OttlaError, InvalidSettings) as error:
        print_error(f"Executing consumer group command failed due to {error}")
    return 0


def timeout_s(given: Given) -> float:
    """Return the timeout of a call."""
    told = number_of(given, "timeout")
    return (TIMEOUT_MS if told is None else told) / 1000


async def _acted(given: Given) -> None:
    from ottla.cli.group.admin import GroupAdmin
    from ottla.cli.probe import probe

    settings = settings_of(given)
    if why := await probe(settings, timeout_s(given)):
        raise OttlaError(why)
    async with GroupAdmin(settings) as admin:
        if "list" in given:
            await _list(admin, given)
        elif "describe" in given:
            await _describe(admin, given)
        elif "delete" in given:
            await _delete(admin, given)
        elif "reset-offsets" in given:
            from ottla.cli.kafka.groups.offset_reset import reset

            await reset(admin, given, await names(admin, given), timeout_s(given))
        else:
            await _forget(admin, given)


async def names(admin: "GroupAdmin", given: Given) -> list[str]:
    """Return the groups that the flags name."""
    if "all-groups" in given:
        return [one.id for one in await listed(admin, given)]
    return [*dict.fromkeys(given.all("group"))]


async def listed(
    admin: "GroupAdmin", given: Given, states: Iterable[str] = (), types: Iterable[str] = ()
) -> "Sequence[ListedGroup]":
    """Return the consumer groups of the cluster."""
    found = await admin.list_groups(states=states, types=types, timeout_s=timeout_s(given))
    ours = (one for one in found if one.protocol_type in _CONSUMERS and one.type != "streams")
    return sorted(ours, key=lambda one: one.id)


# --list


async def _list(admin: "GroupAdmin", given: Given) -> None:
    from ottla.cli.kafka.groups.lines import list_lines

    states = _among(given.one("state"), STATES, "state", "states")
    types = _among(given.one("type"), TYPES, "types", "types")
    groups = await listed(admin, given, states, [one.lower() for one in types])
    with_type, with_state = "type" in given, "state" in given
    print_lines(list_lines(groups, with_type=with_type, with_state=with_state))


def _among(said: str | None, known: Sequence[str], what: str, whats: str) -> list[str]:
    by_name = {one.lower(): one for one in known}
    words = [] if not said else [one.strip().lower() for one in said.split(",")]
    if not by_name.keys() >= {*words}:
        raise BadFlags(f"Invalid {what} list '{said}'. Valid {whats} are: {', '.join(known)}")
    return [by_name[one] for one in words]


# --describe


async def _describe(admin: "GroupAdmin", given: Given) -> None:
    from ottla.cli.group.view import viewed
    from ottla.cli.kafka import java_errors
    from ottla.cli.kafka.groups import lines

    groups = await names(admin, given)
    told = await viewed(admin, groups, with_since=False, timeout_s=timeout_s(given))
    is_verbose = "verbose" in given
    for name, view in told.items():
        if isinstance(view, RequestError):
            raise OttlaError(java_errors.text(view, name))
    for name, view in sorted(told.items()):
        assert not isinstance(view, RequestError)
        if "members" in given:
            _is_told(view, len(view.description.members))
            print_lines(lines.member_lines(view, is_verbose=is_verbose))
        elif "state" in given:
            if _is_told(view, 1):
                print_lines(lines.state_lines(view, is_verbose=is_verbose))
        elif _is_told(view, len(view.partition_lags)):
            print_lines(lines.offset_lines(name, view.partition_lags, is_verbose=is_verbose))


def _is_told(view: "GroupView", rows: int) -> bool:
    """Print a message about the group's state; returns whether to print its rows."""
    name, state = view.description.id, view.description.state
    if state == "Dead":
        print_error(f"Consumer group '{name}' does not exist.")
        return False
    if state == "Empty":
        _warn(f"Consumer group '{name}' has no active members.")
    elif state in _CHANGING:
        _warn(f"Warning: Consumer group '{name}' is rebalancing.")
    return rows > 0


# --delete


async def _delete(admin: "GroupAdmin", given: Given) -> None:
    from ottla.cli.kafka import java_errors

    groups = await names(admin, given)
    told = await admin.delete_groups(groups, timeout_s=timeout_s(given))
    done = ", ".join(f"'{name}'" for name in told.succeeded)
    if not told.failed:
        print_lines([f"Deletion of requested consumer groups ({done}) was successful."])
        return
    print_error("Deletion of some consumer groups failed:")
    print_lines(
        f"* Group '{name}' could not be deleted due to: {java_errors.text(error, name)}"
        for name, error in told.failed.items()
    )
    if done:
        print_lines(("", f"These consumer groups were deleted successfully: {done}"))


# --delete-offsets


async def _forget(admin: "GroupAdmin", given: Given) -> None:
    from ottla.cli.kafka.groups.lines import forgotten_lines
    from ottla.cli.kafka.groups.offset_reset import choices_of
    from ottla.cli.kafka.java_errors import message, text
    from ottla.client.partitions import Partition, partition
    from ottla.errors import ErrorCode

    group = given.one("group") or ""
    choices = choices_of(given)
    whole = [one.topic for one in choices if one.numbers is None]
    found = await admin.describe_topics(whole, timeout_s=timeout_s(given))
    outcome: dict[Partition, RequestError | None] = {
        (str(topic), -1): error for topic, error in found.failed.items()
    }
    wanted: set[Partition] = set()
    for choice in choices:
        numbers = choice.numbers
        if numbers is None and choice.topic not in found.failed:
            numbers = tuple(one.index for one in found[choice.topic].partitions)
        wanted |= {partition(choice.topic, number) for number in numbers or ()}
    first: RequestError | None = None
    try:
        told = await admin.delete_group_offsets(group, wanted, timeout_s=timeout_s(given))
        outcome |= {where: told.failed.get(where) for where in wanted}
        first = next(iter(told.failed.values()), None)
    except RequestError as error:
        first = error
        outcome |= dict.fromkeys(wanted, error)
    if first is None:
        print(f"Request succeeded for deleting offsets from group {group}.")
    elif first.code in DELETED.whole:
        print_error(message(first, group))
    elif first.code in DELETED.parts:
        print_error("Encountered some partition-level error, see the follow-up details.")
    else:
        print_error(f"Encountered some unknown error: {ErrorCode(first.code).name}")
    shown = {
        where: "Successful"
        if error is None
        else f"Error: {text(error, _about(where, error, group))}"
        for where, error in outcome.items()
    }
    print_lines(forgotten_lines(shown))


def _about(where: "tuple[str, int]", error: RequestError, group: str) -> str:
    """Return the prefix that Ottla's client puts before a message: partition, topic or group."""
    topic, number = where
    for one in (f"{topic}-{number}", topic, group):
        if (error.message or "").startswith(f"{one}: "):
            return one
    return group


def _warn(what: str) -> None:
    sys.stdout.flush()
    print(f"\n{escaped(what) if sys.stderr.isatty() else what}", file=sys.stderr)

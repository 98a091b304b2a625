"""The flags of `kafka-consumer-groups`, and which of them fit together.

Invariant: what fits together here fits together for Kafka's tool, and what does not is told in
its words.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.cli.kafka.flags import BadFlags, Flag, Given, Usage
from ottla.errors import ErrorCode, OttlaError

ACTIONS: Final = (
    *("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex"),
)
SCENARIOS: Final = (
    *("to-offset", "to-datetime", "by-duration", "to-earliest", "to-latest", "to-current"),
    *("shift-by", "from-file"),
)
_VIEWS: Final = ("members", "offsets", "state")


class _Deleted(NamedTuple):
    """Which errors are about a group, and which about its partitions."""

    whole: frozenset[ErrorCode]
    parts: frozenset[ErrorCode]


DELETED: Final = _Deleted(
    frozenset(
        {
            ErrorCode.INVALID_GROUP_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            ErrorCode.NON_EMPTY_GROUP,
        }
    ),
    frozenset(
        {
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
    ),
)

USAGE: Final = Usage(
    "kafka-consumer-groups",
    "List, describe and delete groups of consumers, and let them go on elsewhere.",
    [
        Flag("bootstrap-server", "host:port,…", "Brokers to ask first. Required."),
        Flag("command-config", "file", "A properties file with settings of the client."),
        Flag("timeout", "ms", "How long a request may take; 5000 unless told."),
        # What to do.
        Flag("list", help="List groups."),
        Flag("describe", help="Show what groups read and how far they are."),
        Flag("delete", help="Delete groups without members."),
        Flag("reset-offsets", help="Plan where a group without members is to go on, or do it."),
        Flag("delete-offsets", help="Forget what a group committed in topics."),
        Flag("validate-regex", "regex", "Check an expression of RE2.", done=False),
        # Of what.
        Flag("group", "group", "A group; may come several times.", many=True),
        Flag("all-groups", help="All groups."),
        Flag("topic", "topic[:0,1]", "A topic, or some partitions; may come again.", many=True),
        Flag("all-topics", help="With --reset-offsets: wherever the group has committed."),
        # What is shown.
        Flag("members", help="With --describe: the members."),
        Flag("offsets", help="With --describe: offsets and lag, which is the default."),
        Flag("state", "states", "The state; with --list those in some states.", optional=True),
        Flag("type", "types", "With --list: the type, or those of some types.", optional=True),
        Flag("verbose", help="With --describe: more columns."),
        # Where to.
        Flag("to-offset", "offset", "To an offset."),
        Flag("to-earliest", help="To the first record."),
        Flag("to-latest", help="To the end."),
        Flag("to-current", help="To where the group is, or the end."),
        Flag("to-datetime", "time", "To a time: YYYY-MM-DDThh:mm:ss.sss, in UTC or with a zone."),
        Flag("by-duration", "span", "To a time ago: PnDTnHnMnS."),
        Flag("shift-by", "number", "So many records on, or back if it is negative."),
        Flag("from-file", "file", "To the offsets of a CSV file, as --export writes it."),
        # And then.
        Flag("dry-run", help="Show the plan, which is the default."),
        Flag("execute", help="Do it."),
        Flag("export", help="Show the plan as CSV."),
    ],
)


def check(given: Given) -> None:
    """BadFlags for what does not fit together."""
    for name, needs in (
        *((one, ("describe",)) for one in ("members", "verbose", "offsets")),
        ("state", ("describe", "list")),
        ("type", ("list",)),
    ):
        if name in given and not any(one in given for one in needs):
            raise BadFlags(
                f"Option(s) [{name}] are unavailable given other options on the command line"
            )
    if "bootstrap-server" not in given:
        raise BadFlags('Missing required argument "[bootstrap-server]"')
    if "describe" in given:
        _check_describe(given)
    if "delete" in given:
        _check_groups(given, "delete")
        if "topic" in given:
            raise BadFlags(
                "The consumer does not support topic-specific offset deletion from a consumer "
                "group."
            )
    if "delete-offsets" in given and not ("group" in given and "topic" in given):
        raise BadFlags("Option [delete-offsets] takes the following options: [group], [topic]")
    if "reset-offsets" in given:
        _check_reset(given)
    _apart(given, "group", ("all-groups", "list"))
    _apart(given, "topic", ("list", "describe"))
    if sum(one in given for one in ACTIONS) != 1:
        actions = ", ".join(f"--{one}" for one in ACTIONS)
        raise BadFlags(f"Command must include exactly one action: {actions}")


def _check_describe(given: Given) -> None:
    _check_groups(given, "describe")
    if sum(one in given for one in _VIEWS) > 1:
        views = ", ".join(f"[{one}]" for one in _VIEWS)
        raise BadFlags(f"Option [describe] takes at most one of these options: {views}")
    if given.all("state"):
        raise BadFlags("Option [describe] does not take a value for [state]")


def _check_groups(given: Given, name: str) -> None:
    if "group" not in given and "all-groups" not in given:
        raise BadFlags(f"Option [{name}] takes one of these options: [group], [all-groups]")


def _check_reset(given: Given) -> None:
    if "dry-run" in given and "execute" in given:
        raise BadFlags("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    _check_groups(given, "reset-offsets")
    for one in SCENARIOS:
        _apart(given, one, [other for other in SCENARIOS if other != one])


def _apart(given: Given, name: str, others: Iterable[str]) -> None:
    for other in others:
        if name in given and other in given:
            raise BadFlags(f'Option "[{name}]" can\'t be used with option "[{other}]"')


def number_of(given: Given, name: str) -> int | None:
    """The value of a flag that is a number; what is none is seen when it is used."""
    said = given.one(name)
    if said is None:
        return None
    digits = said[1:] if said[:1] in ("+", "-") else said
    if not (digits.isascii() and digits.isdecimal()) or not -(2**63) <= int(said) < 2**63:
        raise OttlaError(f"Cannot parse argument '{said}' of option {name}")
    return int(said)

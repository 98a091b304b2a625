"""Flags of `kafka-consumer-groups` and their valid combinations.

Invariant: valid combinations are those of Kafka's tool, and so are the messages for invalid ones.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.cli.group.kinds import STATES, TYPES
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
    """Errors of a group, and errors of its partitions."""

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
    "List, describe and delete consumer groups, and reset their offsets.",
    [
        Flag("bootstrap-server", "host:port,…", "Connect to these bootstrap servers. Required."),
        Flag("command-config", "file", "Read client settings from this properties file."),
        Flag("timeout", "ms", "Set the request timeout in milliseconds; default: 5000."),
        # Actions.
        Flag("list", help="List consumer groups."),
        Flag(
            "describe",
            help="Describe groups: show their offsets and lag, their members or their state.",
        ),
        Flag("delete", help="Delete groups that have no members."),
        Flag(
            "reset-offsets",
            help="Reset the committed offsets of groups that have no members. Shows the plan only, "
            "unless you pass --execute.",
        ),
        Flag(
            "delete-offsets", help="Delete the committed offsets of a group for the --topic topics."
        ),
        Flag(
            "validate-regex",
            "regex",
            "Check whether this is a valid RE2 regular expression.",
            done=False,
        ),
        # Groups and topics.
        Flag("group", "group", "Select this group; repeat for several.", many=True),
        Flag("all-groups", help="Select all consumer groups."),
        Flag(
            "topic",
            "topic[:0,1]",
            "With --reset-offsets or --delete-offsets: select this topic, or only some of its "
            "partitions; repeat for several.",
            many=True,
        ),
        Flag(
            "all-topics",
            help="With --reset-offsets: select all topics for which the group has committed "
            "offsets.",
        ),
        # Output.
        Flag("members", help="With --describe: show the members."),
        Flag("offsets", help="With --describe: show offsets and lag (default)."),
        Flag(
            "state",
            "states",
            "With --describe: show the state. With --list: show the state; with a comma-separated "
            f"value, list only groups in these states: {', '.join(STATES)}.",
            optional=True,
        ),
        Flag(
            "type",
            "types",
            "With --list: show the type; with a comma-separated value, list only groups of these "
            f"types: {', '.join(TYPES)}.",
            optional=True,
        ),
        Flag("verbose", help="With --describe: show more columns."),
        # Target of a reset.
        Flag("to-offset", "offset", "Reset to this offset."),
        Flag("to-earliest", help="Reset to the first offset."),
        Flag("to-latest", help="Reset to the end offset."),
        Flag(
            "to-current",
            help="Keep the committed offset, or reset to the end offset if there is none.",
        ),
        Flag(
            "to-datetime",
            "time",
            "Reset to the first record at or after this time: YYYY-MM-DDThh:mm:ss.sss, in UTC "
            "unless it has a zone.",
        ),
        Flag(
            "by-duration",
            "duration",
            "Reset to the first record that is at most this old: PnDTnHnMnS, for example PT1H30M.",
        ),
        Flag("shift-by", "number", "Add this number to the committed offset; it can be negative."),
        Flag(
            "from-file", "file", "Reset to the offsets in this CSV file, in the format of --export."
        ),
        # Execution of a reset.
        Flag("dry-run", help="With --reset-offsets: show the plan without applying it (default)."),
        Flag("execute", help="With --reset-offsets: apply the plan."),
        Flag("export", help="With --reset-offsets: print the plan as CSV."),
    ],
)


def check(given: Given) -> None:
    """Raise BadFlags if flags do not fit together."""
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
    """Return the value of an integer flag; raises OttlaError if it is not a 64-bit integer."""
    said = given.one(name)
    if said is None:
        return None
    digits = said[1:] if said[:1] in ("+", "-") else said
    if not (digits.isascii() and digits.isdecimal()) or not -(2**63) <= int(said) < 2**63:
        raise OttlaError(f"Cannot parse argument '{said}' of option {name}")
    return int(said)

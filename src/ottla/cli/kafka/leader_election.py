"""`kafka-leader-election`: elect preferred leaders, or any live replica.

Invariant: output and exit codes are those of Kafka's tool. Errors are on stderr, without Java's
stack trace.
"""

import sys
from json import JSONDecodeError, loads
from typing import TYPE_CHECKING, Any, Final, cast

from ottla.cli.kafka.client_flags import INT_BITS, integer
from ottla.cli.kafka.flags import Flag, Given, Usage
from ottla.cli.kafka.tool import opened, run_tool, settings_of
from ottla.cli.kafka.wrong_use import WrongUse
from ottla.errors import ErrorCode, OttlaError, RequestError

if TYPE_CHECKING:
    from ottla.client.partitions import Partition

PURPOSE: Final = "Elect leaders of partitions."

USAGE = Usage(
    "kafka-leader-election",
    PURPOSE,
    [
        Flag("bootstrap-server", "host:port,…", "Connect to these bootstrap servers. Required."),
        Flag("election-type", "type", "Elect the preferred leader (preferred), or any live replica "
             "for a partition without a leader (unclean), which can lose records. Required."),
        Flag("topic", "topic", "Elect a leader for a partition of this topic; needs --partition."),
        Flag("partition", "number", "With --topic: elect a leader for this partition."),
        Flag("all-topic-partitions", help="Elect leaders for all partitions that need it."),
        Flag("path-to-json-file", "file", "Elect leaders for the partitions in this JSON file: "
             '{"partitions": [{"topic": "t", "partition": 0}]}.'),
        Flag("command-config", "file", "Read client settings from this properties file."),
        Flag("admin.config", "file", "Deprecated name of --command-config."),
    ],
)  # fmt: skip

_KINDS: Final = ("topic", "all-topic-partitions", "path-to-json-file")


def check_flags(given: Given) -> None:
    """Raise an error if the flags do not fit together."""
    if not given.values and not given.rest:
        raise WrongUse(PURPOSE)
    if missing := [one for one in ("bootstrap-server", "election-type") if one not in given]:
        raise OttlaError(f"Missing required option(s): {', '.join(missing)}")
    if "admin.config" in given and "command-config" in given:
        raise WrongUse('Option "[admin.config]" can\'t be used with option "[command-config]"')
    if sum(one in given for one in _KINDS) != 1:
        raise OttlaError(
            f"One and only one of the following options is required: {', '.join(_KINDS)}"
        )
    if "topic" in given and "partition" not in given:
        raise OttlaError("Missing required option(s): partition")
    if "topic" not in given and "partition" in given:
        raise OttlaError("Option partition is only allowed if topic is used")


async def act(given: Given) -> int:
    """Elect leaders."""
    from ottla.client.admin.administration import Administration
    from ottla.client.admin.reassignments import Election, ReassignmentCalls
    from ottla.client.partitions import partition

    class ElectionAdmin(Administration, ReassignmentCalls):
        """Elects leaders."""

    check_flags(given)
    name = (given.one("election-type") or "").upper()
    if name not in Election.__members__:
        raise OttlaError(f"Value [{given.one('election-type')}] must be one of [PREFERRED,UNCLEAN]")
    kind = Election[name]
    wanted = _wanted(given)
    old = "admin.config" in given
    if old:
        print(
            "Option --admin.config has been deprecated and will be removed in a future version. "
            "Use --command-config instead."
        )
    settings = settings_of(given, "admin.config" if old else "command-config")
    settings.setdefault("default.api.timeout.ms", "30000")
    settings.setdefault("request.timeout.ms", "15000")
    async with await opened(ElectionAdmin, settings) as admin:
        try:
            told = await admin.elect_leaders(kind, wanted)
        except RequestError as error:
            raise _explained(error) from error
    done = sorted(key for key, is_new in told.succeeded.items() if is_new)
    kept = sorted(key for key, is_new in told.succeeded.items() if not is_new)
    if done:
        names = ", ".join(str(partition(*one)) for one in done)
        print(f"Successfully completed leader election ({name}) for partitions {names}")
    if kept:
        names = ", ".join(str(partition(*one)) for one in kept)
        print(f"Valid replica already elected for partitions {names}")
    if told.failed:
        from ottla.cli.kafka import java_errors

        for key, error in sorted(told.failed.items(), key=lambda one: one[0]):
            where = partition(*key)
            print(
                f"Error completing leader election ({name}) for partition: {where}: "
                f"{java_errors.text(error, where)}"
            )
        raise OttlaError(f"{len(told.failed)} replica(s) could not be elected")
    return 0


def _explained(error: RequestError) -> OttlaError:
    from ottla.cli.kafka import java_errors

    if error.code is ErrorCode.REQUEST_TIMED_OUT:
        message = "Timeout waiting for election results"
    elif error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        message = "Not authorized to perform leader election"
    else:
        return OttlaError(java_errors.text(error))
    print(message)
    return OttlaError(message)


def _wanted(given: Given) -> "list[Partition] | None":
    from ottla.client.partitions import partition

    if (path := given.one("path-to-json-file")) is not None:
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return read_partitions(file.read())
        except OSError:
            raise OttlaError(f"java.io.IOException: Unable to read file {path}") from None
    if (topic := given.one("topic")) is not None:
        index = integer(given, "partition", bits=INT_BITS) or 0
        if index < 0:
            raise OttlaError(f"Cannot parse argument '{index}' of option partition")
        return [partition(topic, index)]
    return None


def read_partitions(text: str) -> "list[Partition]":
    """Parse the partitions of a JSON file."""
    from ottla.client.partitions import partition

    try:
        found: Any = loads(text)
    except (JSONDecodeError, RecursionError):
        raise OttlaError("Replica election data is empty") from None
    if not isinstance(found, dict):
        raise OttlaError(f"Expected JSON object, received {text.strip()}")
    whole = cast("dict[str, Any]", found)
    if "partitions" not in whole:
        raise OttlaError('Replica election data is missing "partitions" field')
    rows: Any = whole["partitions"]
    if not isinstance(rows, list):
        raise OttlaError("The partitions field is not a list")
    keys: list[Partition] = []
    for row in cast("list[Any]", rows):
        fields = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
        topic, index = fields.get("topic"), fields.get("partition")
        if not isinstance(topic, str) or not isinstance(index, int) or not 0 <= index < 1 << 31:
            raise OttlaError("Each partition needs the fields topic and partition")
        keys.append(partition(topic, index))
    if twice := sorted({one for one in keys if keys.count(one) > 1}):
        names = ", ".join(str(partition(*one)) for one in twice)
        raise OttlaError(f"Replica election data contains duplicate partitions: [{names}]")
    return keys


def told(error: OttlaError) -> None:
    """Print an error; after wrong flags with the usage."""
    text = USAGE.after(error) if isinstance(error, WrongUse) else str(error)
    print(text, file=sys.stderr)


def run() -> None:
    """Run the console script."""
    run_tool(USAGE, act, told)

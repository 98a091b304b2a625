"""The options of `format("ottla")`, by the names of Spark's Kafka connector.

Invariant: every option stands once in the table, with where it counts and what it does; what is not
there is refused, with the name that is nearest. What counts for other uses alone is logged and left
out, as one set of options often serves them all; but an end of a stream is refused, as there.
Nothing is ignored in silence.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum
from typing import Final

from ottla.settings.config_parser import client_config
from ottla.settings.consumer import CONSUMER
from ottla.settings.invalid_settings import InvalidSettings
from ottla.settings.producer import PRODUCER


class Use(StrEnum):
    """What options are given for."""

    BATCH = "reading a batch"
    STREAM = "reading a stream"
    SINK = "writing"


BATCH: Final = frozenset({Use.BATCH})
STREAM: Final = frozenset({Use.STREAM})
SINK: Final = frozenset({Use.SINK})
READ: Final = BATCH | STREAM
ALL: Final = READ | SINK

CLIENT: Final = "kafka."
"""What begins so is a setting of the client."""

SERVERS: Final = "kafka.bootstrap.servers"

_NOT_SETTABLE: Final = {
    "kafka.auto.offset.reset": "use startingOffsets: where a query begins is in its checkpoint",
    "kafka.key.deserializer": "keys are bytes; use functions of Spark on the column",
    "kafka.value.deserializer": "values are bytes; use functions of Spark on the column",
    "kafka.key.serializer": "keys are bytes or strings; use functions of Spark on the column",
    "kafka.value.serializer": "values are bytes or strings; use functions of Spark on the column",
    "kafka.enable.auto.commit": "what was read is in the query's checkpoint",
    "kafka.interceptor.classes": "there are no classes of Java to call",
}


class BadOption(ValueError):
    """An option that does not count, or a value that it cannot have."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of the table."""

    name: str
    uses: frozenset[Use]
    default: str
    meaning: str


TABLE: Final = (
    Option(SERVERS, ALL, "", "Where the cluster is: host:port, several with commas. Is needed."),
    Option("subscribe", READ, "", "Topics to read, with commas between them."),
    Option("subscribePattern", READ, "", "A pattern that is found in the names of topics to read."),
    Option("assign", READ, "", 'Partitions to read: {"topic": [0, 1]}.'),
    Option(
        "startingOffsets",
        READ,
        "earliest in a batch, latest in a stream",
        'Where to begin: earliest, latest, or {"topic": {"0": 23, "1": -2}} with -2 for the first '
        "record and -1 for the end. A stream that has a checkpoint goes on there.",
    ),
    Option("startingTimestamp", READ, "", "Begin at the first record not older: milliseconds."),
    Option("startingOffsetsByTimestamp", READ, "", 'By partition: {"topic": {"0": 1000}}.'),
    Option(
        "startingOffsetsByTimestampStrategy",
        READ,
        "error",
        "What to do where no record is so new: error, or latest to begin at the end.",
    ),
    Option("endingOffsets", BATCH, "latest", "Where a batch ends, this offset not included."),
    Option("endingTimestamp", BATCH, "", "End before the first record that is not older."),
    Option("endingOffsetsByTimestamp", BATCH, "", "The same by partition."),
    Option(
        "failOnDataLoss",
        READ,
        "true",
        "Whether a query fails when records are gone before it has read them; false goes on with "
        "what there is, and logs it.",
    ),
    Option("includeHeaders", ALL, "false", "Whether there is a column headers."),
    Option("minPartitions", READ, "", "Tasks to divide a batch into, about; none is empty."),
    Option("maxRecordsPerPartition", READ, "", "Offsets that one task reads at most."),
    Option("maxOffsetsPerTrigger", STREAM, "", "Offsets of a micro-batch, about at most."),
    Option(
        "minOffsetsPerTrigger",
        STREAM,
        "",
        "Offsets to wait for before a micro-batch, though not longer than maxTriggerDelay.",
    ),
    Option("maxTriggerDelay", STREAM, "15m", "The longest wait for minOffsetsPerTrigger."),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        READ,
        "120000",
        "So long a task waits for records before it fails: milliseconds.",
    ),
    Option("fetchOffset.numRetries", READ, "", "Accepted: the client tries again by itself."),
    Option("fetchOffset.retryIntervalMs", READ, "", "Accepted, for the same reason."),
    Option("groupIdPrefix", READ, "", "Accepted: readers here have no group of their own."),
    Option(
        "kafka.group.id",
        READ,
        "ottla-pipeline.<query name>",
        "The group that is told how far a stream has read.",
    ),
    Option("topic", SINK, "", "Where rows go; without it the column topic says so."),
)

_log: Final = logging.getLogger(__name__)
_BY_LOWER: Final = {one.name.lower(): one for one in TABLE}
_IGNORED: Final = frozenset({"path", "queryname", "checkpointlocation"})  # of Spark's own


def checked(given: Mapping[str, str], use: Use) -> dict[str, str]:
    """Options by their names in the table, all of which count for a use; BadOption otherwise."""
    found: dict[str, str] = {}
    for name, value in given.items():
        lower = name.lower()
        if lower in _IGNORED:
            continue
        if lower in _NOT_SETTABLE:
            raise BadOption(f"{name} cannot be set: {_NOT_SETTABLE[lower]}")
        known = _BY_LOWER.get(lower)
        if known is not None:
            if use in known.uses:
                found[known.name] = value
                continue
            where = f"{known.name} is for {' and '.join(sorted(known.uses))}, and this is {use}"
            if use is Use.STREAM and known.uses == BATCH:
                raise BadOption(where)  # a stream that is to end would not
            _log.warning("%s: it is left out", where)
        elif lower.startswith(CLIENT):
            found[lower] = value
        else:
            near = get_close_matches(lower, _BY_LOWER, n=1, cutoff=0.6)
            hint = f"; did you mean {_BY_LOWER[near[0]].name}?" if near else ""
            raise BadOption(f"there is no option {name}{hint}")
    if not found.get(SERVERS, "").strip():
        raise BadOption(f'{SERVERS} is missing: .option("{SERVERS}", "127.0.0.1:9092")')
    return found


def client_settings(options: Mapping[str, str], use: Use) -> dict[str, object]:
    """The settings of the client among checked options; BadOption for what it does not take."""
    found: dict[str, object] = {
        name.removeprefix(CLIENT): value
        for name, value in options.items()
        if name.startswith(CLIENT) and name != "kafka.group.id"
    }
    try:
        client_config(PRODUCER if use is Use.SINK else CONSUMER, found)
    except InvalidSettings as error:
        raise BadOption(f"settings of the client, which begin with {CLIENT}: {error}") from error
    return found

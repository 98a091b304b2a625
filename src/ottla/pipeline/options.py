"""The options of `format("ottla")`, with the names of Spark's Kafka connector.

Invariant: no option is ignored silently. The table lists each option once, with its uses. An option
that is not in the table is refused with the nearest name. An option for another use is logged and
ignored, because one set of options often serves several uses. Only an end given to a stream is
refused, as in the connector.
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
    """What a query does with a topic."""

    BATCH = "reading a batch"
    STREAM = "reading a stream"
    SINK = "writing"


BATCH: Final = frozenset({Use.BATCH})
STREAM: Final = frozenset({Use.STREAM})
SINK: Final = frozenset({Use.SINK})
READ: Final = BATCH | STREAM
ALL: Final = READ | SINK

CLIENT: Final = "kafka."
"""The prefix of client settings."""

SERVERS: Final = "kafka.bootstrap.servers"

_NOT_SETTABLE: Final = {
    "kafka.auto.offset.reset": "use startingOffsets; a restarted query uses its checkpoint",
    "kafka.key.deserializer": "keys are binary; convert the column in Spark",
    "kafka.value.deserializer": "values are binary; convert the column in Spark",
    "kafka.key.serializer": "keys are binary or string; convert the column in Spark",
    "kafka.value.serializer": "values are binary or string; convert the column in Spark",
    "kafka.enable.auto.commit": "the query keeps its offsets in its checkpoint",
    "kafka.interceptor.classes": "Java classes are not supported",
}


class BadOption(ValueError):
    """An option that cannot be used, or an invalid value."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of the table."""

    name: str
    uses: frozenset[Use]
    default: str
    meaning: str


TABLE: Final = (
    Option(
        SERVERS,
        ALL,
        "",
        "Bootstrap servers, as host:port separated by commas. Required.",
    ),
    Option("subscribe", READ, "", "Topics to read, separated by commas."),
    Option(
        "subscribePattern",
        READ,
        "",
        "Regular expression; read every topic whose name contains a match.",
    ),
    Option("assign", READ, "", 'Partitions to read: {"topic": [0, 1]}.'),
    Option(
        "startingOffsets",
        READ,
        "earliest in a batch, latest in a stream",
        'Start at earliest, at latest, or at the offsets in {"topic": {"0": 23, "1": -2}}; -2 is '
        "the earliest offset and -1 the latest. A stream with a checkpoint starts there instead.",
    ),
    Option(
        "startingTimestamp",
        READ,
        "",
        "Start at the first record at or after this time, in milliseconds.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        READ,
        "",
        'Start each partition at its own time, in milliseconds: {"topic": {"0": 1000}}.',
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        READ,
        "error",
        "Action for a partition without a record at or after the starting time: error fails the "
        "query, latest starts at the end.",
    ),
    Option(
        "endingOffsets",
        BATCH,
        "latest",
        "End of a batch, in the form of startingOffsets; the ending offset is not read.",
    ),
    Option(
        "endingTimestamp",
        BATCH,
        "",
        "End before the first record at or after this time, in milliseconds.",
    ),
    Option(
        "endingOffsetsByTimestamp",
        BATCH,
        "",
        'End each partition at its own time, in milliseconds: {"topic": {"0": 1000}}.',
    ),
    Option(
        "failOnDataLoss",
        READ,
        "true",
        "Fail the query if records were deleted before it has read them; false logs a warning and "
        "continues with the records that are left.",
    ),
    Option(
        "includeHeaders",
        ALL,
        "false",
        "Add the column headers when reading. A write has headers if its rows have that column.",
    ),
    Option(
        "columns",
        READ,
        "all except headers",
        "Read only these columns, separated by commas. Spark does not leave out unused columns.",
    ),
    Option(
        "jsonColumns",
        READ,
        "",
        "Parse values that are JSON objects with these columns, such as `device STRING, at "
        "TIMESTAMP`, in the tasks that read them. This adds the columns parsed, a struct, and "
        "unparsed, the values that are not parsed. Those may still be correct: parse them with "
        "from_json. Times without a zone are in UTC.",
    ),
    Option(
        "jsonUnknownFields",
        READ,
        "ignore",
        "Action for a value with other fields than jsonColumns: ignore them, or leave the value "
        "unparsed.",
    ),
    Option("skipParsed", READ, "false", "Skip records whose value is parsed with jsonColumns."),
    Option(
        "minPartitions",
        READ,
        "",
        "Divide a batch into about this many tasks, if there are fewer; no task is empty.",
    ),
    Option("maxRecordsPerPartition", READ, "", "Maximum number of offsets that one task reads."),
    Option(
        "maxOffsetsPerTrigger", STREAM, "", "Approximate maximum number of offsets per micro-batch."
    ),
    Option(
        "minOffsetsPerTrigger",
        STREAM,
        "",
        "Wait for this many offsets before a micro-batch, at most for maxTriggerDelay.",
    ),
    Option(
        "stopFile",
        STREAM,
        "",
        "Offer no more records when this file exists on the machine of the driver. The query can "
        "then be stopped between two micro-batches.",
    ),
    Option("maxTriggerDelay", STREAM, "15m", "Maximum time to wait for minOffsetsPerTrigger."),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        READ,
        "120000",
        "Fail a task that has received no records for this time, in milliseconds.",
    ),
    Option("fetchOffset.numRetries", READ, "", "Accepted without effect: the client retries."),
    Option("fetchOffset.retryIntervalMs", READ, "", "Accepted without effect: the client retries."),
    Option(
        "groupIdPrefix", READ, "", "Accepted without effect: tasks do not join a consumer group."
    ),
    Option(
        "kafka.group.id",
        READ,
        "ottla-pipeline.<query name>",
        "Commit the offsets of a stream to this consumer group, after each micro-batch.",
    ),
    Option(
        "topic",
        SINK,
        "",
        "Write all rows to this topic; without it, each row to the topic in its column topic.",
    ),
)

_log: Final = logging.getLogger(__name__)
_BY_LOWER: Final = {one.name.lower(): one for one in TABLE}
_IGNORED: Final = frozenset({"path", "queryname", "checkpointlocation"})  # Spark's options


def checked(given: Mapping[str, str], use: Use) -> dict[str, str]:
    """Return the options for a use, with their names in the table; raise BadOption."""
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
            uses = " and ".join(sorted(known.uses))
            if use is Use.STREAM and known.uses == BATCH:  # the stream would not end there
                raise BadOption(f"option {known.name} is only for {uses}, not for {use}")
            _log.warning("option %s ignored: it is only for %s, not for %s", known.name, uses, use)
        elif lower.startswith(CLIENT):
            found[lower] = value
        else:
            near = get_close_matches(lower, _BY_LOWER, n=1, cutoff=0.6)
            hint = f"; did you mean {_BY_LOWER[near[0]].name}?" if near else ""
            raise BadOption(f"unknown option {name}{hint}")
    if not found.get(SERVERS, "").strip():
        raise BadOption(f'{SERVERS} is missing: set .option("{SERVERS}", "127.0.0.1:9092")')
    return found


def client_settings(options: Mapping[str, str], use: Use) -> dict[str, object]:
    """Return the client settings among checked options; raise BadOption for an invalid one."""
    found: dict[str, object] = {
        name.removeprefix(CLIENT): value
        for name, value in options.items()
        if name.startswith(CLIENT) and name != "kafka.group.id"
    }
    try:
        client_config(PRODUCER if use is Use.SINK else CONSUMER, found)
    except InvalidSettings as error:
        raise BadOption(f"client settings (prefix {CLIENT}): {error}") from error
    return found

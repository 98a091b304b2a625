"""The options of a source, parsed.

Invariant: SourceOptions is valid as a whole, or `source_options` raises BadOption. If several
options give a start or an end, one time for all partitions takes precedence over times by
partition, and those take precedence over offsets.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.ids import TopicPartition
from ottla.pipeline.columns import source_columns
from ottla.pipeline.json_values import JsonSchema, json_schema
from ottla.pipeline.offsets import (
    EARLIEST,
    LATEST,
    AtTime,
    AtTimes,
    BadOffsets,
    Everywhere,
    Limit,
    Specific,
    parse_offsets,
    parse_partitions,
)
from ottla.pipeline.options import BadOption, Use, checked, client_settings

NUMBER_MAX: Final = 2**63 - 1
"""The largest offset or timestamp that fits into a request."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The partitions to read: of named topics, of topics that match a pattern, or listed ones."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The parsed options of a source."""

    settings: Mapping[str, object]
    topics: Topics
    start: Limit
    end: Limit
    fails_on_loss: bool = True
    columns: Mapping[str, str] = field(default_factory=lambda: source_columns(None, headers=False))
    """The types of the columns in Spark."""
    json: JsonSchema | None = None
    skips_parsed: bool = False
    tasks_min: int | None = None
    task_records_max: int | None = None
    batch_records_max: int | None = None
    batch_records_min: int | None = None
    batch_delay_s: float = 900.0
    group: str | None = None
    poll_timeout_s: float = 120.0
    stop_file: str | None = None


def source_options(given: Mapping[str, str], use: Use) -> SourceOptions:
    """Parse the options of a source; raise BadOption with what to change."""
    options = checked(given, use)
    json = json_options({name.lower(): value for name, value in options.items()})
    records_max = _number(options, "maxOffsetsPerTrigger")
    records_min = _number(options, "minOffsetsPerTrigger")
    if records_max is not None and records_min is not None and records_min > records_max:
        raise BadOption(
            f"minOffsetsPerTrigger={records_min} is above maxOffsetsPerTrigger={records_max}"
        )
    return SourceOptions(
        settings=client_settings(options, use),
        topics=_topics(options),
        start=_start(options, use),
        end=_end(options),
        fails_on_loss=_flag(options, "failOnDataLoss", default=True),
        columns=source_columns(
            options.get("columns"),
            headers=_flag(options, "includeHeaders", default=False),
            json=json,
        ),
        json=json,
        skips_parsed=_flag(options, "skipParsed", default=False),
        tasks_min=_number(options, "minPartitions"),
        task_records_max=_number(options, "maxRecordsPerPartition"),
        batch_records_max=records_max,
        batch_records_min=records_min,
        batch_delay_s=_seconds(options.get("maxTriggerDelay", "15m")),
        group=options.get("kafka.group.id"),
        stop_file=options.get("stopFile"),
        poll_timeout_s=(_number(options, "kafkaConsumer.pollTimeoutMs") or 120_000) / 1000,
    )


def json_options(options: Mapping[str, str]) -> JsonSchema | None:
    """Return the columns of JSON values that are to be parsed; None without such an option.

    The names of the options are in lower case.
    """
    if "jsoncolumns" not in options:
        for name in ("jsonUnknownFields", "skipParsed"):
            if name.lower() in options:
                raise BadOption(f"{name} needs jsonColumns")
        return None
    unknown = options.get("jsonunknownfields", "ignore").strip().lower()
    if unknown not in ("ignore", "unparsed"):
        raise BadOption(f"jsonUnknownFields must be ignore or unparsed, not {unknown!r}")
    return json_schema(options["jsoncolumns"], skips_unknown=unknown == "ignore")


def _topics(options: Mapping[str, str]) -> Topics:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name in options]
    if len(ways) != 1:
        given = " and ".join(ways) or "none"
        raise BadOption(f"set exactly one of subscribe, subscribePattern and assign, not {given}")
    [way] = ways
    value = options[way].strip()
    if not value:
        raise BadOption(f"{way} is empty")
    if way == "assign":
        try:
            return Topics(partitions=tuple(parse_partitions(value)))
        except BadOffsets as error:
            raise BadOption(f"assign: {error}") from error
    if way == "subscribe":
        names = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
        if not names:
            raise BadOption("subscribe does not name a topic")
        return Topics(names=names)
    try:
        re.compile(value)
    except re.error as error:
        raise BadOption(f"subscribePattern: invalid pattern {value!r}: {error}") from error
    return Topics(pattern=value)


def _start(options: Mapping[str, str], use: Use) -> Limit:
    strategy = options.get("startingOffsetsByTimestampStrategy", "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise BadOption(
            f"startingOffsetsByTimestampStrategy must be error or latest, not {strategy!r}"
        )
    if_none = LATEST if strategy == "latest" else None
    found = _limit(options, "starting", if_none)
    if found is None:
        found = Everywhere(EARLIEST if use is Use.BATCH else LATEST)
    if use is Use.BATCH and LATEST in _offsets(found):
        raise BadOption("startingOffsets of a batch cannot be latest: the batch would be empty")
    return found


def _end(options: Mapping[str, str]) -> Limit:
    found = _limit(options, "ending", LATEST)
    if found is None:
        return Everywhere(LATEST)
    if EARLIEST in _offsets(found):
        raise BadOption("endingOffsets cannot be earliest: the batch would be empty")
    return found


def _offsets(limit: Limit) -> Iterable[int]:
    if isinstance(limit, Everywhere):
        return (limit.offset,)
    return limit.offsets.values() if isinstance(limit, Specific) else ()


def _limit(options: Mapping[str, str], which: str, if_none: int | None) -> Limit | None:
    """Parse the start or the end: a time, else times by partition, else offsets."""
    time, times, offsets = f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets"
    if time in options:
        return AtTime(_time_ms(time, options[time]), if_none)
    for name in (times, offsets):
        if name not in options:
            continue
        value = options[name].strip()
        if name == offsets and value.lower() in ("earliest", "latest"):
            return Everywhere(EARLIEST if value.lower() == "earliest" else LATEST)
        try:
            parsed = parse_offsets(value)
        except BadOffsets as error:
            raise BadOption(f"{name}: {error}") from error
        lowest = 0 if name == times else EARLIEST
        for partition, number in parsed.items():
            if number < lowest:
                raise BadOption(f"{name}: {number} for {partition} is below {lowest}")
            if number > NUMBER_MAX:
                raise BadOption(f"{name}: {number} for {partition} is above {NUMBER_MAX}")
        return AtTimes(parsed, if_none) if name == times else Specific(parsed)
    return None


def _time_ms(name: str, text: str) -> int:
    try:
        time_ms = int(text)
    except ValueError:
        time_ms = -1
    if not 0 <= time_ms <= NUMBER_MAX:
        raise BadOption(f"{name} must be a time in milliseconds since 1970, not {text!r}")
    return time_ms


def _number(options: Mapping[str, str], name: str) -> int | None:
    if name not in options:
        return None
    try:
        number = int(options[name])
    except ValueError:
        number = 0
    if number <= 0:
        raise BadOption(f"{name} must be a number above 0, not {options[name]!r}")
    return number


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = options.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise BadOption(f"{name} must be true or false, not {options[name]!r}")
    return text == "true"


_UNITS_S: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+)\s*(ms|s|min|m|h|d)?", text.strip().lower())
    if found is None:
        raise BadOption(f"maxTriggerDelay must be a time like 15m or 30s, not {text!r}")
    return int(found[1]) * _UNITS_S[found[2] or "ms"]

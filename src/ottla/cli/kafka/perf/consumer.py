"""`kafka-consumer-perf-test`: measure the read throughput.

Invariant: the output has the lines of Kafka's tool. Bytes are those of keys and values.
"""

import random
import re
import time
from datetime import datetime
from typing import Final

from ottla.cli.kafka.client_flags import (
    INT_BITS,
    PATIENCE,
    file_properties,
    integer,
    properties_of,
    reached,
    renamed,
)
from ottla.cli.kafka.flags import BadFlags, Flag, Given, NotDone, Usage
from ottla.cli.kafka.include_list import include_pattern
from ottla.cli.kafka.tool import run_tool

USAGE: Final = Usage(
    "kafka-consumer-perf-test",
    "Measure the throughput of reading records.",
    [
        Flag("bootstrap-server", "host:port,…", "Connect to these bootstrap servers. Required."),
        Flag("topic", "topic", "Read this topic."),
        Flag("include", "pattern", "Read the topics that match this regular expression."),
        Flag("group", "group", "Read as a member of this consumer group."),
        Flag("fetch-size", "bytes", "Set max.partition.fetch.bytes."),
        Flag(
            "from-latest",
            help="Start at the end of the topic if the group has no committed offset.",
        ),
        Flag("socket-buffer-size", "bytes", "Set receive.buffer.bytes."),
        Flag(
            "command-property",
            "key=value",
            "Set a consumer property; repeat for several.",
            many=True,
        ),
        Flag("command-config", "file", "Read consumer properties from this file."),
        Flag("consumer.config", "file", "Deprecated name of --command-config."),
        Flag("print-metrics", help="Print client metrics.", done=False),
        Flag(
            "show-detailed-stats",
            help="Print a result per interval instead of one result at the end.",
        ),
        Flag(
            "timeout",
            "ms",
            "Exit if no record arrives for this many milliseconds; default: 10000.",
        ),
        Flag("num-records", "count", "Read this many records. Required."),
        Flag("messages", "count", "Deprecated name of --num-records."),
        Flag(
            "reporting-interval",
            "ms",
            "With --show-detailed-stats: set the interval in milliseconds; default: 5000.",
        ),
        Flag(
            "date-format",
            "pattern",
            "Print times in this format, in the syntax of Java's SimpleDateFormat.",
        ),
        Flag("hide-header", help="Do not print the header."),
    ],
)
_OLD: Final = "Warning: --{old} is deprecated. Use --{new} instead."
_COLUMNS: Final = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
    "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
_DATE: Final = "yyyy-MM-dd HH:mm:ss:SSS"
_DATE_PARTS: Final = {
    "yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "hh": "%I", "mm": "%M",
    "ss": "%S", "a": "%p", "EEE": "%a", "EEEE": "%A", "MMM": "%b", "MMMM": "%B", "DDD": "%j",
}  # fmt: skip
_MB: Final = 1 << 20


async def act(given: Given) -> int:
    """Read records and print the throughput."""
    count = _checked(given)
    settings = _settings(given)
    timeout_ms = integer(given, "timeout", 10_000) or 0
    interval_ms = integer(given, "reporting-interval", 5000) or 0
    date = DateFormat(given.one("date-format") or _DATE)
    detailed = "show-detailed-stats" in given
    settings = await reached("consumer", settings)
    if "hide-header" not in given:
        print(("time, threadId, " if detailed else "start.time, end.time, ") + _COLUMNS)
    if interval_ms <= 0:
        raise BadFlags("Reporting interval must be greater than 0.")
    from ottla.cli.perf.load import Span, read_load
    from ottla.cli.records.stream import ColumnConsumer
    from ottla.client.group.interfaces import Rebalance
    from ottla.ids import TopicPartition

    begun_ms = _now_ms()
    joined = _Joining(begun_ms)

    def assigned(partitions: frozenset[TopicPartition], why: Rebalance) -> None:
        joined.assigned(_now_ms())

    def revoked(partitions: frozenset[TopicPartition], why: Rebalance) -> None:
        joined.begun_ms = _now_ms()

    def report(window: Span, whole: Span) -> None:
        if detailed:
            join_ms = joined.taken()
            fetch_ms = max(0, int(window.seconds * 1000) - join_ms)
            fetched = Span(window.records, window.bytes, fetch_ms / 1000)
            rates = (0.0, 0.0) if not fetch_ms else (fetched.mb_rate, fetched.rate)
            print(
                f"{date.text(_now_ms())}, 0, {whole.bytes / _MB:.4f}, {window.mb_rate:.4f}, "
                f"{whole.records}, {window.rate:.4f}, {join_ms}, {fetch_ms}, {rates[0]:.4f}, "
                f"{rates[1]:.4f}",
                flush=True,
            )

    async with ColumnConsumer(settings) as consumer:
        await consumer.meet()
        if (topic := given.one("topic")) is not None:
            consumer.subscribe(topic, on_assigned=assigned, on_revoked=revoked)
        else:
            pattern = include_pattern(given.one("include") or "")
            consumer.subscribe(pattern=pattern, on_assigned=assigned, on_revoked=revoked)
        span = await read_load(
            consumer,
            count,
            timeout_ms / 1000,
            columns=True,
            report_s=interval_ms / 1000,
            report=report,
        )
        end_ms = _now_ms()
    if span.records < count:
        print(
            "WARNING: Exiting before consuming the expected number of records: timeout "
            f"({timeout_ms} ms) exceeded. You can use the --timeout option to increase the timeout."
        )
    if not detailed:
        whole = Span(span.records, span.bytes, (end_ms - begun_ms) / 1000)
        fetch_ms = end_ms - begun_ms - joined.total_ms
        fetched = Span(span.records, span.bytes, fetch_ms / 1000)
        print(
            f"{date.text(begun_ms)}, {date.text(end_ms)}, {span.bytes / _MB:.4f}, "
            f"{whole.mb_rate:.4f}, {span.records}, {whole.rate:.4f}, {joined.total_ms}, "
            f"{fetch_ms}, {fetched.mb_rate:.4f}, {fetched.rate:.4f}"
        )
    return 0


class _Joining:
    """Time spent on joining the group."""

    def __init__(self, begun_ms: int) -> None:
        self.begun_ms = begun_ms
        self.total_ms = 0
        self._untold_ms = 0

    def assigned(self, now_ms: int) -> None:
        self.total_ms += now_ms - self.begun_ms
        self._untold_ms += now_ms - self.begun_ms

    def taken(self) -> int:
        """Return the joining time since the last call."""
        untold, self._untold_ms = self._untold_ms, 0
        return untold


def _checked(given: Given) -> int:
    """Return the number of records; raises BadFlags if flags do not fit together."""
    if ("num-records" in given) == ("messages" in given):
        raise BadFlags(
            "Exactly one of the following arguments is required: [messages], [num-records]"
        )
    if ("topic" in given) == ("include" in given):
        raise BadFlags("Exactly one of the following arguments is required: [topic], [include]")
    if "bootstrap-server" not in given:
        raise BadFlags('Missing required argument "[bootstrap-server]"')
    if "consumer.config" in given and "command-config" in given:
        raise BadFlags('Option "[consumer.config]" can\'t be used with option "[command-config]"')
    count = integer(given, renamed(given, "messages", "num-records", _OLD))
    assert count is not None
    return count


def _settings(given: Given) -> dict[str, str]:
    """Return the consumer settings."""
    settings = {
        **PATIENCE,
        **file_properties(given.one(renamed(given, "consumer.config", "command-config", _OLD))),
        **properties_of(given.all("command-property")),
        "bootstrap.servers": given.one("bootstrap-server") or "",
        "group.id": given.one("group") or f"perf-consumer-{random.randrange(100_000)}",
        "receive.buffer.bytes": str(integer(given, "socket-buffer-size", 2 * _MB, bits=INT_BITS)),
        "max.partition.fetch.bytes": str(integer(given, "fetch-size", _MB, bits=INT_BITS)),
        "auto.offset.reset": "latest" if "from-latest" in given else "earliest",
        "check.crcs": "false",
    }
    settings.setdefault("client.id", "perf-consumer-client")
    for java in ("key.deserializer", "value.deserializer"):
        settings.pop(java, None)
    return settings


class DateFormat:
    """A date format in Java's pattern syntax."""

    def __init__(self, pattern: str) -> None:
        self._parts: list[str | None] = []  # None stands for milliseconds
        for found in re.finditer(r"'([^']*)'|([a-zA-Z])\2*|[^a-zA-Z']+", pattern):
            text = found[0]
            if found[1] is not None:
                self._parts.append((found[1] or "'").replace("%", "%%"))
            elif not found[2]:
                self._parts.append(text.replace("%", "%%"))
            elif text in _DATE_PARTS:
                self._parts.append(_DATE_PARTS[text])
            elif text == "SSS":
                self._parts.append(None)
            else:
                raise NotDone(
                    f"kafka-consumer-perf-test: {text} in --date-format is not supported yet"
                )

    def text(self, ms: int) -> str:
        """Format a time in the local time zone."""
        when = datetime.fromtimestamp(ms / 1000).astimezone()
        return "".join(
            f"{ms % 1000:03d}" if part is None else when.strftime(part) for part in self._parts
        )


def _now_ms() -> int:
    return int(time.time() * 1000)


def run() -> None:
    """Run the console script."""
    run_tool(USAGE, act, is_fast=True)

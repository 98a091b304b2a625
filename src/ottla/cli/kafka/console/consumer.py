"""`kafka-console-consumer`: print the records of topics.

Invariant: stdout equals that of Kafka's tool, record by record. The number of records is printed on
stderr at the end, also after an error or a signal.
"""

import random
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ottla.cli.kafka.client_flags import (
    INT_BITS,
    PATIENCE,
    cannot_parse,
    file_properties,
    integer,
    properties_of,
    reached,
    renamed,
)
from ottla.cli.kafka.flags import BadFlags, Flag, Given, Usage
from ottla.cli.kafka.include_list import include_pattern
from ottla.cli.kafka.tool import run_tool
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.cli.kafka.console.formatter import Formatter
    from ottla.cli.records.output import RecordOutput
    from ottla.cli.records.places import Limits
    from ottla.cli.records.stream import ColumnConsumer

USAGE: Final = Usage(
    "kafka-console-consumer",
    "Print the records of topics.",
    [
        Flag("bootstrap-server", "host:port,…", "Connect to these bootstrap servers. Required."),
        Flag("topic", "topic", "Read this topic."),
        Flag("include", "pattern", "Read the topics that match this regular expression."),
        Flag("partition", "number", "Read only this partition of the topic."),
        Flag(
            "offset",
            "offset",
            "With --partition: start at this offset: earliest, latest (default) or a number.",
        ),
        Flag(
            "from-beginning",
            help="Start at the first record if the group has no committed offset.",
        ),
        Flag("group", "group", "Read as a member of this consumer group."),
        Flag("max-messages", "count", "Exit after this many records."),
        Flag("timeout-ms", "ms", "Exit if no record arrives for this many milliseconds."),
        Flag(
            "isolation-level", "level", "Set isolation.level: read_uncommitted or read_committed."
        ),
        Flag("skip-message-on-error", help="Continue after a record that cannot be printed."),
        Flag(
            "formatter",
            "class",
            "Format records like this Java class: DefaultMessageFormatter (default), "
            "LoggingMessageFormatter (same output as the default), NoOpMessageFormatter (no "
            "output), OffsetsMessageFormatter or GroupMetadataMessageFormatter (JSON of "
            "__consumer_offsets), TransactionLogMessageFormatter (JSON of __transaction_state).",
        ),
        Flag(
            "formatter-property",
            "key=value",
            "Set a formatter property, for example print.key=true; repeat for several.",
            many=True,
        ),
        Flag("formatter-config", "file", "Read formatter properties from this file."),
        Flag("property", "key=value", "Deprecated name of --formatter-property.", many=True),
        Flag(
            "key-deserializer",
            "class",
            "Deserialize keys like this Java class, for example LongDeserializer.",
        ),
        Flag(
            "value-deserializer",
            "class",
            "Deserialize values like this Java class, for example LongDeserializer.",
        ),
        Flag(
            "command-property",
            "key=value",
            "Set a consumer property; repeat for several.",
            many=True,
        ),
        Flag("command-config", "file", "Read consumer properties from this file."),
        Flag("consumer-property", "key=value", "Deprecated name of --command-property.", many=True),
        Flag("consumer.config", "file", "Deprecated name of --command-config."),
        Flag("enable-systest-events", help="Print shutdown_complete when the tool exits."),
    ],
)

_EARLIEST, _LATEST = -2, -1
_OLD: Final = (
    "Option --{old} is deprecated and will be removed in a future version. Use --{new} instead."
)


async def act(given: Given) -> int:
    """Print records."""
    partition = _checked(given)
    settings = _settings(given)
    offset = _offset(given)
    timeout_ms = integer(given, "timeout-ms", -1)
    max_messages = integer(given, "max-messages", -1, bits=INT_BITS)
    from ottla.cli.kafka.console.formatter import DEFAULT_FORMATTER, formatter_of
    from ottla.cli.kafka.endings import until_signal
    from ottla.cli.records.output import stdout
    from ottla.cli.records.places import Limits
    from ottla.cli.records.stream import ColumnConsumer

    formatter = formatter_of(
        given.one("formatter") or DEFAULT_FORMATTER, _formatting(given), _complain
    )
    limits = Limits(None if max_messages is None or max_messages < 0 else max_messages)
    idle_s = None if timeout_ms is None or timeout_ms < 0 else timeout_ms / 1000
    printing = _Printing(formatter, skips="skip-message-on-error" in given)

    async def printed() -> int:
        async with ColumnConsumer(settings) as consumer:
            await consumer.meet()
            printing.has_begun = True
            _begin(consumer, given, partition, offset)
            is_group = settings.get("enable.auto.commit", "true") == "true"
            return await printing.run(consumer, limits, stdout(), idle_s, is_group=is_group)

    settings = await reached("consumer", settings)
    try:
        return await until_signal(printed())
    finally:
        if printing.has_begun:
            _complain(f"Processed a total of {printing.count} messages")
        if "enable-systest-events" in given:
            print("shutdown_complete", flush=True)


class _Printing:
    """Prints and counts records."""

    def __init__(self, formatter: "Formatter", *, skips: bool) -> None:
        self.count = 0
        self.has_begun = False
        self._formatter = formatter
        self._skips = skips

    async def run(
        self,
        consumer: "ColumnConsumer",
        limits: "Limits",
        output: "RecordOutput",
        idle_s: float | None,
        *,
        is_group: bool,
    ) -> int:
        """Print records until a limit is reached; returns the exit code."""
        from ottla.cli.records.stream import taken

        async for found in taken(consumer, limits, idle_s=idle_s):
            if found is None:
                await output.flush()
                continue
            chunk, rows = found
            for cells in chunk.stretches(rows):
                try:
                    piece = self._formatter.shown(cells)
                except Exception:  # deserializers may raise anything
                    for row in range(cells.start, cells.stop):
                        printed, error = self._formatter.some(chunk, row)
                        self.count += 1
                        await output.write(printed)
                        if error is not None:
                            _complain(f"Error processing message: {error}")
                            if not self._skips:
                                await output.flush()
                                return 1
                    continue
                self.count += cells.count
                await output.write(piece)
            if is_group:
                await output.flush()
        await output.flush()
        return 0


def _checked(given: Given) -> int | None:
    """Return the partition to read; raises BadFlags if flags do not fit together."""
    if ("topic" in given) == ("include" in given):
        raise BadFlags("Exactly one of the following arguments is required: [topic], [include]")
    partition = integer(given, "partition", bits=INT_BITS)
    if partition is not None:
        if partition < 0:  # Java's tool would wait for records forever
            raise cannot_parse(str(partition), "partition")
        if "topic" not in given:
            raise BadFlags("The topic is required when partition is specified.")
        if "from-beginning" in given and "offset" in given:
            raise BadFlags("Options from-beginning and offset cannot be specified together.")
    elif "offset" in given:
        raise BadFlags("The partition is required when offset is specified.")
    if "bootstrap-server" not in given:
        raise BadFlags('Missing required argument "[bootstrap-server]"')
    return partition


def _settings(given: Given) -> dict[str, str]:
    """Return the consumer settings."""
    for old, new in (
        ("consumer-property", "command-property"),
        ("consumer.config", "command-config"),
    ):
        if old in given and new in given:
            raise BadFlags(f"Options --{old} and --{new} cannot be specified together.")
    property_flag = renamed(given, "consumer-property", "command-property", _OLD)
    file_flag = renamed(given, "consumer.config", "command-config", _OLD)
    from_file = file_properties(given.one(file_flag))
    more = properties_of([*given.all(property_flag)])
    group = _group(given, from_file, more)
    settings = {**PATIENCE, **from_file, **more}
    reset = settings.get("auto.offset.reset")
    if reset is None:
        settings["auto.offset.reset"] = "earliest" if "from-beginning" in given else "latest"
    elif "from-beginning" in given and reset != "earliest":
        raise OttlaError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', "
            "please remove one option"
        )
    settings["bootstrap.servers"] = given.one("bootstrap-server") or ""
    settings.setdefault("client.id", "console-consumer")
    if (level := given.one("isolation-level")) is not None:
        settings["isolation.level"] = level
    if group is None:
        settings["group.id"] = f"console-consumer-{random.randrange(100_000)}"
        settings.setdefault("enable.auto.commit", "false")
    else:
        settings["group.id"] = group
    return settings


def _group(given: Given, from_file: Mapping[str, str], more: Mapping[str, str]) -> str | None:
    """Return the given group; raises BadFlags if there are several."""
    named = [given.one("group"), from_file.get("group.id"), more.get("group.id")]
    groups = sorted({one for one in named if one is not None})
    if len(groups) > 1:
        raise BadFlags(
            "The group ids provided in different places (directly using '--group', via "
            "'--consumer-property', or via '--consumer.config') do not match. Detected group ids: "
            + ", ".join(f"'{one}'" for one in groups)
        )
    if groups and "partition" in given:
        raise BadFlags("Options group and partition cannot be specified together.")
    return groups[0] if groups else None


def _offset(given: Given) -> int:
    """Return the start offset: a number, -2 (earliest) or -1 (latest)."""
    text = given.one("offset")
    if text is None:
        return _EARLIEST if "from-beginning" in given else _LATEST
    if text.lower() in ("earliest", "latest"):
        return _EARLIEST if text.lower() == "earliest" else _LATEST
    if not text.isascii() or not text.isdecimal() or int(text) > 2**63 - 1:
        raise BadFlags(
            f"The provided offset value '{text}' is incorrect. Valid values are 'earliest', "
            "'latest', or a non-negative long."
        )
    return int(text)


def _formatting(given: Given) -> dict[str, str]:
    """Return the properties of the formatter."""
    if "property" in given and "formatter-property" in given:
        raise BadFlags("Options --property and --formatter-property cannot be specified together.")
    flag = renamed(given, "property", "formatter-property", _OLD)
    found = file_properties(given.one("formatter-config"))
    for part in ("key", "value"):
        if name := given.one(f"{part}-deserializer"):
            found[f"{part}.deserializer"] = name
    return {**found, **properties_of([*given.all(flag)])}


def _begin(consumer: "ColumnConsumer", given: Given, partition: int | None, offset: int) -> None:
    topic = given.one("topic")
    if partition is None:
        if topic is not None:
            consumer.subscribe(topic)
        else:
            consumer.subscribe(pattern=include_pattern(given.one("include") or ""))
        return
    assert topic is not None
    where = (topic, partition)
    consumer.assign(where)
    if offset == _EARLIEST:
        consumer.seek_to_beginning(where)
    elif offset == _LATEST:
        consumer.seek_to_end(where)
    else:
        consumer.seek(where, offset)


def _complain(message: str) -> None:
    sys.stdout.flush()
    print(message, file=sys.stderr)


def run() -> None:
    """Run the console script."""
    run_tool(USAGE, act, is_fast=True)

"""`kafka-console-producer`: write one record per line of stdin.

Invariant: records are sent in the order of lines. As in Kafka's tool, each failed record is printed
on stderr at once, the others are sent, and the exit code is 0. With --sync the first failure ends
the tool with 1. After a signal the tool writes what it has read; a second signal ends it at once.
"""

import sys
from typing import TYPE_CHECKING, Final

from ottla.cli.kafka.client_flags import (
    MEET_S,
    file_properties,
    integer,
    properties_of,
    reached,
    renamed,
)
from ottla.cli.kafka.flags import BadFlags, Flag, Given, NotDone, Usage
from ottla.cli.kafka.tool import run_tool
from ottla.errors import OttlaError, RequestError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ottla.cli.kafka.console.line_reader import LineReader
    from ottla.client.producer.producer import Producer

USAGE: Final = Usage(
    "kafka-console-producer",
    "Write each line of stdin as a record.",
    [
        Flag("bootstrap-server", "host:port,…", "Connect to these bootstrap servers. Required."),
        Flag("topic", "topic", "Write to this topic. Required."),
        Flag("sync", help="Send records synchronously, one at a time."),
        Flag("compression-codec", "codec", (
            "Compress batches with this codec: none (default without the flag), gzip (default "
            "without a value), snappy, lz4 or zstd."
        ),
             optional=True),
        Flag("batch-size", "bytes", "Set batch.size."),
        Flag("message-send-max-retries", "count", "Set retries."),
        Flag("retry-backoff-ms", "ms", "Set retry.backoff.ms."),
        Flag("timeout", "ms", "Set linger.ms."),
        Flag("request-required-acks", "acks", "Set acks."),
        Flag("request-timeout-ms", "ms", "Set request.timeout.ms."),
        Flag("metadata-expiry-ms", "ms", "Set metadata.max.age.ms."),
        Flag("max-block-ms", "ms", "Set max.block.ms."),
        Flag("max-memory-bytes", "bytes", "Set buffer.memory."),
        Flag("max-partition-memory-bytes", "bytes", "Deprecated name of --batch-size."),
        Flag("socket-buffer-size", "bytes", "Set send.buffer.bytes."),
        Flag("line-reader", "class", (
            "Use this line reader class. Only org.apache.kafka.tools.LineMessageReader is "
            "supported."
        )),
        Flag("reader-property", "key=value", (
            "Set a line reader property, for example parse.key=true; repeat for several."
        ),
             many=True),
        Flag("reader-config", "file", "Read line reader properties from this file."),
        Flag("property", "key=value", "Deprecated name of --reader-property.", many=True),
        Flag("command-property", "key=value", (
            "Set a producer property; repeat for several."
        ),
             many=True),
        Flag("command-config", "file", "Read producer properties from this file."),
        Flag("producer-property", "key=value", "Deprecated name of --command-property.", many=True),
        Flag("producer.config", "file", "Deprecated name of --command-config."),
    ],
)  # fmt: skip

# Flag, setting and default; if two flags of a setting are given, the later row takes effect.
_SETTINGS: Final = (
    ("timeout", "linger.ms", "1000"),
    ("request-required-acks", "acks", "-1"),
    ("request-timeout-ms", "request.timeout.ms", "1500"),
    ("message-send-max-retries", "retries", "3"),
    ("retry-backoff-ms", "retry.backoff.ms", "100"),
    ("socket-buffer-size", "send.buffer.bytes", "102400"),
    ("max-memory-bytes", "buffer.memory", "33554432"),
    ("batch-size", "batch.size", "16384"),
    ("max-partition-memory-bytes", "batch.size", "16384"),
    ("metadata-expiry-ms", "metadata.max.age.ms", "300000"),
    ("max-block-ms", "max.block.ms", "60000"),
)
_OLD: Final = (
    "Warning: --{old} is deprecated and will be removed in a future version. Use --{new} instead."
)
_SURELY_SMALL_BYTES: Final = 1000
_TEXTS: Final = ("request-required-acks",)


async def act(given: Given) -> int:
    """Write the records of stdin."""
    if "topic" not in given:
        raise BadFlags('Missing required argument "[topic]"')
    if "bootstrap-server" not in given:
        raise BadFlags("Error while validating the bootstrap address\n")
    for new, old in (
        ("command-config", "producer.config"),
        ("command-property", "producer-property"),
        ("reader-property", "property"),
    ):
        if old in given and new in given:
            raise BadFlags(f"Options --{new} and --{old} cannot be specified together.")
    topic = given.one("topic") or ""
    settings = _settings(given)
    from ottla.cli.kafka.console.line_reader import DEFAULT_READER, reader_of, split_as_java
    from ottla.cli.records.sending import lines_of
    from ottla.cli.stop_request import StopRequest, end_by
    from ottla.client.producer.producer import Producer

    if (name := given.one("line-reader") or DEFAULT_READER) != DEFAULT_READER:
        raise NotDone(f"kafka-console-producer: line reader {name} is not supported yet")
    flag = renamed(given, "property", "reader-property", _OLD)
    properties = file_properties(given.one("reader-config"))
    reader = reader_of({**properties, **properties_of([*given.all(flag)])})
    prompts = sys.stdin.isatty() and sys.stdout.isatty()
    settings = await reached("producer", settings)
    producer: Producer[bytes, bytes] = Producer(settings)
    producer.on_failed = lambda error, count: _complain(_failed(topic, error), count)
    async with producer:
        await producer.refresh_metadata(timeout_s=MEET_S)
        if prompts:
            print(">", end="", flush=True)
        sender = _Sender(producer, topic, reader, is_sync="sync" in given, prompts=prompts)
        with StopRequest() as stop:
            code = await sender.run(lines_of([sys.stdin.fileno()], split_as_java, stop))
    return code if stop.number is None else end_by(stop.number)


class _Sender:
    """Sends lines as records."""

    def __init__(
        self,
        producer: "Producer[bytes, bytes]",
        topic: str,
        reader: "LineReader",
        *,
        is_sync: bool,
        prompts: bool,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._reader = reader
        self._is_sync = is_sync
        self._prompts = prompts

    async def run(self, blocks: "AsyncGenerator[list[bytes]]") -> int:
        """Send all lines; returns the exit code."""
        from ottla.cli.records.input import BadLine

        code = 0
        try:
            async for lines in blocks:
                if self._reader.is_plain and not self._is_sync:
                    await self._send_many(lines)
                else:
                    for line in lines:
                        await self._send(line)
                if self._prompts:
                    print(">" * len(lines), end="", flush=True)
        except BadLine as error:
            _complain(str(error))
            code = 1
        except RequestError as error:  # with --sync
            _complain(_failed(self._topic, error))
            return 1
        await self._producer.flush()
        return code

    async def _send_many(self, lines: list[bytes]) -> None:
        """Send lines as values; prints an error for those that are refused and sends the others."""
        if max(map(len, lines)) < _SURELY_SMALL_BYTES:
            try:
                await self._producer.send_many(self._topic, lines)
            except RequestError as error:  # the topic cannot be written
                _complain(_failed(self._topic, error))
        else:
            for line in lines:
                await self._send(line)

    async def _send(self, line: bytes) -> None:
        from ottla.cli.records.sending import send_draft

        try:
            ack = await send_draft(self._producer, self._topic, self._reader.draft(line))
            if self._is_sync:
                await ack
        except RequestError as error:
            if self._is_sync:
                raise
            _complain(_failed(self._topic, error))


def _settings(given: Given) -> dict[str, str]:
    """Return the producer settings."""
    property_flag = renamed(given, "producer-property", "command-property", _OLD)
    file_flag = renamed(given, "producer.config", "command-config", _OLD)
    settings = {
        **file_properties(given.one(file_flag)),
        **properties_of([*given.all(property_flag)]),
        "bootstrap.servers": given.one("bootstrap-server") or "",
        "compression.type": "none",
    }
    if "compression-codec" in given:
        settings["compression.type"] = given.one("compression-codec") or "gzip"
    settings.setdefault("client.id", "console-producer")
    for flag, name, default in _SETTINGS:
        if flag in given:
            value = given.one(flag) if flag in _TEXTS else str(integer(given, flag))
            settings[name] = value or ""
        else:
            settings.setdefault(name, default)
    if "max-partition-memory-bytes" in given:
        print(
            "Warning: --max-partition-memory-bytes is deprecated and will be removed in Apache "
            "Kafka 5.0. Use --batch-size instead."
        )
    for java in ("key.serializer", "value.serializer"):
        settings.pop(java, None)  # values are sent as bytes
    if settings["acks"] in ("0", "1"):
        settings.setdefault("enable.idempotence", "false")
    return settings


def _failed(topic: str, error: OttlaError) -> str:
    return f"Error when sending message to topic {topic} with error: {error}"


def _complain(message: str, count: int = 1) -> None:
    """Print an error once per record, as Kafka's tool does."""
    sys.stdout.flush()
    sys.stderr.write(f"{message}\n" * count)


def run() -> None:
    """Run the console script."""
    run_tool(USAGE, act, is_fast=True)

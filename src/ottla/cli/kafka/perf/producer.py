"""`kafka-producer-perf-test`: measure the write throughput.

Invariant: the output has the lines of Kafka's tool. Latency is measured for one record in a
thousand, but for at least 200 records, and for every record if there is a rate. Times start at the
first send. Refused records do not count: each distinct error is printed once on stderr, and the
test continues.
"""

import os
import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Final

from ottla.cli.kafka.argument_words import ArgumentUsage
from ottla.cli.kafka.client_flags import (
    INT_BITS,
    LONG_BITS,
    MEET_S,
    file_properties,
    reached,
    renamed,
)
from ottla.cli.kafka.flags import Flag, Given
from ottla.cli.kafka.tool import run_tool
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.cli.perf.load import Span

USAGE: Final = ArgumentUsage(
    "kafka-producer-perf-test",
    "Measure the throughput and latency of writing records.",
    [
        Flag("bootstrap-server", "host:port,…", "Connect to these bootstrap servers."),
        Flag("topic", "topic", "Write to this topic. Required."),
        Flag("num-records", "count", "Write this many records. Required."),
        Flag(
            "record-size",
            "bytes",
            "Write values of this size in bytes. Required without --payload-file or "
            "--payload-monotonic.",
        ),
        Flag("payload-file", "file", "Write values that are chosen at random from this file."),
        Flag("payload-monotonic", help="Write increasing numbers as values."),
        Flag(
            "payload-delimiter",
            "text",
            "Split the payload file into values at this text; default: a newline.",
        ),
        Flag(
            "throughput",
            "rate",
            "Write at most this many records per second; -1 disables the limit. Required.",
        ),
        Flag("command-property", "key=value …", "Set producer properties.", many=True),
        Flag("command-config", "file", "Read producer properties from this file."),
        Flag("producer-props", "key=value …", "Deprecated name of --command-property.", many=True),
        Flag("producer.config", "file", "Deprecated name of --command-config."),
        Flag("print-metrics", help="Print client metrics.", done=False),
        Flag(
            "transactional-id",
            "id",
            "Write in transactions with this transactional id.",
            done=False,
        ),
        Flag(
            "transaction-duration-ms",
            "ms",
            "Commit each transaction after this many milliseconds.",
            done=False,
        ),
        Flag(
            "warmup-records",
            "count",
            "Treat this many records at the start as warm-up, and print a second result without "
            "them.",
        ),
        Flag(
            "reporting-interval",
            "ms",
            "Print an intermediate result at this interval in milliseconds; default: 5000.",
        ),
    ],
)
_OLD: Final = (
    "Option --{old} has been deprecated and will be removed in a future version. "
    "Use --{new} instead."
)
_INTERVAL_MS: Final = 5000
_COMPLAINTS_MAX: Final = 10


async def act(given: Given) -> int:
    """Write records and print the throughput."""
    topic = USAGE.text_of(given, "topic")
    count = _positive(given, "num-records")
    throughput = USAGE.double_of(given, "throughput")
    warm_up = USAGE.number_of(given, "warmup-records", 0, bits=LONG_BITS)
    interval_ms = _positive(given, "reporting-interval", _INTERVAL_MS)
    chosen = [one for one in ("record-size", "payload-file", "payload-monotonic") if one in given]
    if len(chosen) != 1:
        raise USAGE.refused(
            "one of the arguments --record-size --payload-file --payload-monotonic is required"
            if not chosen
            else f"argument --{chosen[1]}: not allowed with argument --{chosen[0]}"
        )
    if warm_up >= count:
        raise USAGE.refused(
            "The value for --warmup-records must be strictly fewer than the number of records in "
            "the test, --num-records."
        )
    settings = _settings(given)
    size = _positive(given, "record-size", bits=INT_BITS) if "record-size" in given else None
    payloads = _payloads(given) if size is None else None
    from ottla.cli.perf.load import Sender, Sending
    from ottla.client.producer.producer import Producer

    if warm_up > 0:
        print(
            f"Warmup first {warm_up} records. Steady state results will print after the complete "
            "test summary."
        )
    settings = await reached("producer", settings)
    async with Producer[bytes, bytes](settings) as producer:
        await producer.refresh_metadata(timeout_s=MEET_S)
        if size is not None:
            producer.check_size(size)
        sending = Sending(
            topic=topic,
            count=count,
            payloads=payloads or _random(size or 0),
            rate=throughput if throughput > 0 else None,
            report_s=interval_ms / 1000,
            warm_up=max(0, warm_up),
        )
        complaints = _Complaints()
        whole, steady = await Sender(producer, sending, complaints.hear).run(_print_window)
    complaints.sum_up(count - whole.records)
    _print_total(whole, "")
    if warm_up > 0:
        _print_total(steady, " steady state")
    return 0


def _positive(given: Given, name: str, default: int | None = None, *, bits: int = LONG_BITS) -> int:
    found = USAGE.number_of(given, name, default, bits=bits)
    if found <= 0:
        raise USAGE.refused(f"--{name} should be greater than zero.")
    return found


def _settings(given: Given) -> dict[str, str]:
    """Return the producer settings."""
    named = ("bootstrap-server", "command-property", "producer-props")
    if not any(one in given for one in (*named, "producer.config", "command-config")):
        raise USAGE.refused(
            "At least one of --bootstrap-server, --command-property, --producer-props, "
            "--producer.config or --command-config must be specified."
        )
    for new, old in (
        ("command-property", "producer-props"),
        ("command-config", "producer.config"),
    ):
        if old in given and new in given:
            raise USAGE.refused(f"--{new} and --{old} cannot be specified together.")
    property_flag = renamed(given, "producer-props", "command-property", _OLD)
    file_flag = renamed(given, "producer.config", "command-config", _OLD)
    settings = file_properties(given.one(file_flag))
    for text in (*given.all(property_flag), *given.rest):
        key, equals, value = text.partition("=")
        if not equals or "=" in value:
            raise OttlaError(f"Invalid property: {text}")
        settings[key] = value
    if (servers := given.one("bootstrap-server")) is not None:
        settings["bootstrap.servers"] = servers
    settings.setdefault("client.id", "perf-producer-client")
    for java in ("key.serializer", "value.serializer"):
        settings.pop(java, None)
    if settings.get("acks") in ("0", "1"):
        settings.setdefault("enable.idempotence", "false")
    return settings


def _payloads(given: Given) -> Callable[[], Iterator[bytes]]:
    """Return the values to send if no record size is given."""
    path = given.one("payload-file")
    if path is None:
        return _growing
    delimiter = given.one("payload-delimiter") or "\\n"
    return _of_file(path, "\n" if delimiter == "\\n" else delimiter)


def _random(size: int) -> Callable[[], Iterator[bytes]]:
    """Repeat one value of this many random letters."""
    return partial(repeat, bytes(random.choices(range(65, 91), k=size)))


def _growing() -> Iterator[bytes]:
    number = 0
    while True:
        yield b"%d" % number
        number += 1


def _of_file(path: str, delimiter: str) -> Callable[[], Iterator[bytes]]:
    print(f"Reading payloads from: {os.path.abspath(path)}")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        text = ""
    if not text:
        raise OttlaError("File does not exist or empty file provided.")
    parts = [one.encode() for one in text.removesuffix(delimiter).split(delimiter)]
    print(f"Number of records read: {len(parts)}")

    def chosen() -> Iterator[bytes]:
        while True:
            yield random.choice(parts)

    return chosen


class _Complaints:
    """Errors of records that were not written."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def hear(self, error: OttlaError) -> None:
        """Print an error, unless it was printed before or there were too many."""
        if len(self._said) < _COMPLAINTS_MAX and (text := str(error)) not in self._said:
            self._said.add(text)
            sys.stdout.flush()
            print(text, file=sys.stderr)

    def sum_up(self, count: int) -> None:
        """Print the number of records that were not written."""
        if count:
            what = "1 record was" if count == 1 else f"{count} records were"
            sys.stdout.flush()
            print(f"{what} not written.", file=sys.stderr)


def _print_window(span: "Span") -> None:
    found = span.latencies
    print(
        f"{span.records} records sent, {span.rate:.1f} records/sec ({span.mb_rate:.2f} MB/sec), "
        f"{found.average:.1f} ms avg latency, {found.largest:.1f} ms max latency.",
        flush=True,
    )


def _print_total(span: "Span", what: str) -> None:
    from ottla.cli.perf.load import shares

    found = span.latencies
    parts = ", ".join(
        f"{ms:.0f} ms {name}"
        for ms, name in zip(shares(found), ("50th", "95th", "99th", "99.9th"), strict=True)
    )
    print(
        f"{span.records}{what} records sent, {span.rate:.6f} records/sec "
        f"({span.mb_rate:.2f} MB/sec), {found.average:.2f} ms avg latency, "
        f"{found.largest:.2f} ms max latency, {parts}."
    )


def run() -> None:
    """Run the console script."""
    run_tool(USAGE, act, is_fast=True)

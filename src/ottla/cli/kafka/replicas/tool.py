"""`kafka-replica-verification`: compare the replicas of partitions, until a signal stops it.

Invariant: output and exit codes are those of Kafka's tool. Batches are compared up to the high
watermark, by offset and checksum. The tool ends with 1 at the first offset that differs; of a
checksum that differs it only prints a line.
"""

import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ottla.cli.kafka.client_flags import INT_BITS, integer
from ottla.cli.kafka.flags import Flag, Given, Usage
from ottla.cli.kafka.tool import FAILED, run_tool
from ottla.cli.kafka.wrong_use import WrongUse, require
from ottla.errors import OttlaError

if TYPE_CHECKING:
    from ottla.client.admin.records import RecordCalls
    from ottla.client.partitions import Partition

PURPOSE: Final = "Compare the records of all replicas of topics, until a signal stops the tool."

USAGE = Usage(
    "kafka-replica-verification",
    PURPOSE,
    [
        Flag("broker-list", "host:port,…", "Connect to these bootstrap servers. Required."),
        Flag("fetch-size", "bytes", "Fetch at most this many bytes of each partition per "
             "request; default: 1048576."),
        Flag("max-wait-ms", "ms", "Let each fetch wait at most this many milliseconds for "
             "records; default: 1000."),
        Flag("topics-include", "regex", "Compare the topics that match this regular expression; "
             "default: .*"),
        Flag("time", "time", "Start at this time: milliseconds since 1970, -1 (latest, default) "
             "or -2 (earliest)."),
        Flag("report-interval-ms", "ms", "Print the largest lag of all partitions at this "
             "interval in milliseconds; default: 30000. The lag of a partition is the number of "
             "its offsets that are not compared yet."),
    ],
)  # fmt: skip

LATEST, EARLIEST = -1, -2


async def act(given: Given) -> int:
    """Compare until a signal."""
    from ottla.cli.kafka.endings import until_signal

    if not given.values and not given.rest:
        raise WrongUse(PURPOSE)
    require(given, "broker-list")
    servers = given.one("broker-list") or ""
    if any(":" not in one for one in servers.split(",")):
        raise WrongUse("Please provide valid host:port like host1:9091,host2:9092\n")
    return await until_signal(_verify(given, servers))


async def _verify(given: Given, servers: str) -> int:
    from ottla.cli.kafka.include_list import included
    from ottla.cli.kafka.replicas.comparison import OffsetsDiffer, Verification
    from ottla.cli.kafka.replicas.reader import ReplicaReader
    from ottla.cli.kafka.tool import opened
    from ottla.cli.target import BOOTSTRAP
    from ottla.client.partitions import partition

    size = integer(given, "fetch-size", 1_048_576, bits=INT_BITS) or 0
    wait_ms = integer(given, "max-wait-ms", 1000, bits=INT_BITS) or 0
    since = integer(given, "time", LATEST)
    interval_s = (integer(given, "report-interval-ms", 30_000) or 0) / 1000
    pattern = given.one("topics-include") or ".*"

    async with await opened(ReplicaReader, {BOOTSTRAP: servers}) as reader:
        names = included(pattern, await reader.list_topics(include_internal=True))
        if not names:
            print(
                "No topics found. [topics-include] if specified, is either filtering out all "
                "topics or there is no topic.",
                file=sys.stderr,
            )
            return FAILED
        told = (await reader.describe_topics(names)).or_raise()
        topics = {str(name): one for name, one in told.items()}
        replicas: dict[Partition, tuple[int, ...]] = {
            partition(name, row.index): row.replicas
            for name, one in sorted(topics.items())
            for row in one.partitions
        }
        verification = Verification(replicas, await _starts(reader, replicas, since))
        _print(["verification process is started"])
        reported_s = time.monotonic()
        while True:
            fetched = await reader.fetch(topics, verification.offsets, size, wait_ms)
            try:
                complaints, report = verification.step(fetched)
            except OffsetsDiffer as error:
                _print([str(error)])
                return FAILED
            _print(complaints)
            if time.monotonic() - reported_s > interval_s:
                _print([report])
                reported_s = time.monotonic()


async def _starts(
    reader: "RecordCalls", keys: "Iterable[Partition]", since: int | None
) -> "dict[Partition, int]":
    """Return the offsets at which the comparison starts."""
    from ottla.client.admin.records import OffsetAt

    at: OffsetAt | int = since if since is not None else LATEST
    if since == LATEST:
        at = OffsetAt.LATEST
    elif since == EARLIEST:
        at = OffsetAt.EARLIEST
    told = (await reader.list_offsets(dict.fromkeys(keys, at))).or_raise()
    return {key: one.offset or 0 for key, one in told.items()}


def _print(lines: Iterable[str]) -> None:
    from datetime import datetime

    for line in lines:
        now = datetime.now().astimezone()
        print(f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03}: {line}", flush=True)


def told(error: OttlaError) -> None:
    """Print an error; after wrong flags with the usage."""
    text = USAGE.after(error) if isinstance(error, WrongUse) else str(error)
    print(text, file=sys.stderr)


def run() -> None:
    """Run the console script."""
    run_tool(USAGE, act, told)

"""Records as a consumer returns them without a broker, and commands as processes."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from cli.forked import run_script
from judges.ottla_broker import OttlaBroker, ottla_broker
from ottla.cli.records.cells import Taken
from ottla.client.admin import Admin, NewTopic
from ottla.ids import PartitionIndex, TopicPartition
from ottla.records import BatchBuilder, Compression, batches, decode

WHERE = TopicPartition("t", PartitionIndex(3))
BIN = Path(sys.executable).parent
PATIENCE_S = 120

Row = tuple[int, bytes | None, bytes | None, Sequence[tuple[str, bytes | None]]]


def taken_of(rows: Iterable[Row], *, epoch: int = 7) -> Taken:
    """Return rows of (timestamp, key, value, headers) as taken records, from offset 0."""
    builder = BatchBuilder(1 << 24, Compression.NONE)
    count = 0
    for timestamp, key, value, headers in rows:
        assert builder.append(timestamp, key, value, headers)
        count += 1
    columns = decode([*batches(builder.build())])
    return Taken(WHERE, columns, count, [(0, epoch)])


def environment() -> dict[str, str]:
    """Return an environment without profiles."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}
    return {**kept, "NO_COLOR": "1", "COLUMNS": "200", "OTTLA_CONFIG": os.devnull, "TZ": "UTC"}


def run(
    script: str, *arguments: str, stdin: bytes = b"", more: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a script to its end."""
    return run_script(
        script,
        arguments,
        env={**environment(), **(more or {})},
        stdin=stdin,
        timeout_s=PATIENCE_S,
    )


@contextmanager
def broker_with(*topics: NewTopic) -> Generator[OttlaBroker]:
    """Run a broker with these topics and without automatic creation."""

    async def create(servers: str) -> None:
        async with Admin({"bootstrap.servers": servers}) as admin:
            (await admin.create_topics(topics)).or_raise()

    with ottla_broker({"auto.create.topics.enable": "false"}) as running:
        asyncio.run(create(running.bootstrap))
        yield running

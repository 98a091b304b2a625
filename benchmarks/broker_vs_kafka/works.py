"""The rows of the table: a load each, with its target.

Invariant: each has its number of records. The rows named capacity pin the server to one core and
send ready-made batches from the other, so that the server is the limit and not the client.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from loads import (
    Outcome,
    consumer_performance,
    end_to_end,
    generator,
    librdkafka,
    producer_performance,
)
from servers import Server

MILLION = 1_000_000
LARGE_BATCHES = "batch.size=262144"

Load = Callable[[Server, str, int], Outcome]
"""Runs on a topic with a number of records."""


@dataclass(frozen=True, slots=True)
class Goal:
    """A target: our figure divided by that of Kafka."""

    rate_min: float = 0
    cpu_max: float = 0
    latency_max: float = 0


SMALL = Goal(rate_min=1, cpu_max=0.4)
LARGE = Goal(rate_min=1, cpu_max=0.6)
MANY = Goal(rate_min=1, cpu_max=0.5)  # many partitions or connections, or librdkafka
SOON = Goal(latency_max=1)

DEFAULT_BATCH, LARGE_BATCH = 16_384, 262_144


@dataclass(frozen=True, slots=True)
class Work:
    """One row: a load and its target."""

    name: str
    load: Load
    records: int
    goal: Goal
    partitions: int = 6
    filled: int | None = None  # the record size of a topic that is filled before a consumer starts
    fill: Load | None = None  # fills it; Java's producer by default


def produced(size: int, *settings: str) -> Load:
    return lambda server, topic, records: producer_performance(
        server, topic, records, size, *settings
    )


def consumed(server: Server, topic: str, records: int) -> Outcome:
    return consumer_performance(server, topic, records)


def by_librdkafka(load: str, **job: int) -> Load:
    def run(server: Server, topic: str, records: int) -> Outcome:
        settings: dict[str, object] = {}
        if load == "consume":
            settings["group.id"] = f"{topic}-{time.time_ns()}"
        return librdkafka(server, topic, load, settings=settings, records=records, **job)

    return run


def capacity(load: str, **job: int) -> Load:
    return lambda server, topic, records: generator(server, topic, load, records=records, **job)


def both(server: Server, topic: str, records: int) -> Outcome:
    """Consume while a producer writes; the rate is that of the producer."""
    with ThreadPoolExecutor() as pool:
        reading = pool.submit(consumer_performance, server, topic, records)
        writing = pool.submit(producer_performance, server, topic, records, 1000, LARGE_BATCHES)
        reading.result()
        return writing.result()


WORKS: Sequence[Work] = (
    Work("produce 100 B, 1 partition, acks 1", produced(100, "acks=1"), 2 * MILLION, SMALL, 1),
    Work("produce 100 B, 6 partitions, acks all", produced(100), 2 * MILLION, SMALL),
    Work("produce 100 B, 100 partitions, acks all", produced(100), 2 * MILLION, MANY, 100),
    Work("produce 100 B, 256 KB batches", produced(100, LARGE_BATCHES), 3 * MILLION, SMALL),
    Work(
        "produce 100 B, 256 KB batches, lz4",
        produced(100, LARGE_BATCHES, "compression.type=lz4"),
        3 * MILLION,
        SMALL,
    ),
    Work(
        "produce 100 B, 256 KB batches, zstd",
        produced(100, LARGE_BATCHES, "compression.type=zstd"),
        3 * MILLION,
        SMALL,
    ),
    Work("produce 1 KB, 6 partitions, acks all", produced(1000), MILLION // 2, LARGE),
    Work("produce 1 KB, 256 KB batches", produced(1000, LARGE_BATCHES), MILLION // 2, LARGE),
    Work(
        "produce 100 B, librdkafka",
        by_librdkafka("produce", size=100, connections=1),
        MILLION,
        MANY,
    ),
    Work(
        "produce 100 B, librdkafka, 50 connections",
        by_librdkafka("produce", size=100, connections=50),
        MILLION,
        MANY,
    ),
    Work("consume 100 B", consumed, 4 * MILLION, LARGE, filled=100),
    Work("consume 1 KB", consumed, MILLION, LARGE, filled=1000),
    Work("consume 100 B, librdkafka", by_librdkafka("consume"), 2 * MILLION, LARGE, filled=100),
    Work("produce and consume 1 KB", both, MILLION // 2, LARGE),
    Work(
        "end to end, 100 B, one at a time",
        lambda server, topic, records: end_to_end(server, topic, records, 100),
        2_000,
        SOON,
        1,
    ),
    *(
        Work(
            f"capacity: produce {name}, {batches} x {batch_bytes // 1024} KB a request",
            capacity("produce", size=size, batch_bytes=batch_bytes, batches=batches),
            records,
            goal,
        )
        for size, name, records in ((100, "100 B", 8 * MILLION), (1000, "1 KB", MILLION))
        for batch_bytes, batches, goal in (
            (DEFAULT_BATCH, 1, Goal(rate_min=2)),
            (DEFAULT_BATCH, 6, Goal(rate_min=1.5)),
            (LARGE_BATCH, 1, Goal(rate_min=1.5)),
        )
    ),
    *(
        Work(
            f"capacity: fetch {name}",
            capacity("fetch", size=size, batch_bytes=DEFAULT_BATCH),
            records,
            Goal(rate_min=1.2),
            filled=size,
            fill=capacity("produce", size=size, batch_bytes=DEFAULT_BATCH),
        )
        for size, name, records in ((100, "100 B", 8 * MILLION), (1000, "1 KB", MILLION))
    ),
)

"""When a stream that waits for more records goes on, and how long a task waits, by a clock that
the test moves.
"""

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from judges.ottla_broker import OttlaBroker
from ottla.clock import SystemClock
from ottla.ids import PartitionIndex, TopicPartition
from ottla.pipeline.offset_ranges import OffsetRange
from ottla.pipeline.options import Use
from ottla.pipeline.range_reader import LOOK_S, RangeReader
from ottla.pipeline.source import OttlaStreamReader
from ottla.pipeline.source_options import source_options
from ottla.sync import Admin, Producer
from ottla.transport.failures import TimedOut

DELAY_S = 30.0
LEAST = 10


class Hands(SystemClock):
    """Goes on when it is told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def elapsed_s(self) -> float:
        return self.seconds


class Stream:
    """A stream as Spark drives it: a micro-batch when the end is not the start."""

    def __init__(self, broker: OttlaBroker, topic: str, start: str = "earliest") -> None:
        self.clock = Hands()
        given = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "subscribe": topic,
            "startingOffsets": start,
            "minOffsetsPerTrigger": str(LEAST),
            "maxTriggerDelay": f"{DELAY_S:g}s",
        }
        schema: Any = None  # of the tasks, of which none runs here
        self.reader = OttlaStreamReader(source_options(given, Use.STREAM), schema, clock=self.clock)
        self.place = self.reader.initialOffset()
        self._broker, self._topic = broker, topic

    def write(self, count: int) -> None:
        with Producer({"bootstrap.servers": self._broker.bootstrap}) as producer:
            producer.send_many(self._topic, [b"v"] * count, partition=0)

    def next(self, limit: ReadLimit | None = None) -> int:
        """How many records the next micro-batch has; 0 when there is none."""
        end = self.reader.latestOffset(self.place, limit or ReadAllAvailable())
        if end == self.place:
            return 0
        tasks = self.reader.partitions(self.place, end)
        self.place = end
        return sum(one.whole.size for one in tasks)


def stream(broker: OttlaBroker, topic: str) -> Stream:
    """One that has had its first micro-batch."""
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        producer.send(topic, b"first", partition=0).result()
    begun = Stream(broker, topic)
    assert begun.next() == 1  # as the connector does: nobody waits before the first one
    return begun


def test_a_micro_batch_waits_for_the_least(broker: OttlaBroker, topic: str) -> None:
    going = stream(broker, topic)
    going.write(LEAST - 1)
    assert going.next() == 0
    going.write(1)
    assert going.next() == LEAST
    going.reader.stop()


def test_the_first_records_of_a_stream_from_the_end_wait_for_the_least(
    broker: OttlaBroker, topic: str
) -> None:
    """As with the connector: the first look is the one that does not wait, and finds nothing."""
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        admin.create_topic(topic, 1)
    going = Stream(broker, topic, "latest")
    assert going.next() == 0
    going.write(LEAST - 1)
    assert going.next() == 0
    going.clock.seconds = DELAY_S
    assert going.next() == LEAST - 1
    going.reader.stop()


def test_a_micro_batch_waits_no_longer_than_the_delay(broker: OttlaBroker, topic: str) -> None:
    going = stream(broker, topic)
    going.write(3)
    going.clock.seconds = DELAY_S - 0.001
    assert going.next() == 0
    going.clock.seconds = DELAY_S
    assert going.next() == 3
    # The delay counts from then on; there is nothing to be hurried by it meanwhile.
    going.clock.seconds = 1.5 * DELAY_S
    going.write(2)
    assert going.next() == 0
    going.clock.seconds = 2 * DELAY_S
    assert going.next() == 2
    going.reader.stop()


def test_the_most_counts_when_the_least_is_there(broker: OttlaBroker, topic: str) -> None:
    going = stream(broker, topic)
    going.write(3)
    assert going.next(ReadMaxRows(20)) == 0
    going.write(LEAST + 20)
    assert going.next(ReadMaxRows(20)) == 20
    assert going.next(ReadMaxRows(20)) == LEAST + 3
    going.reader.stop()


def test_what_is_available_now_is_read_without_waiting(broker: OttlaBroker, topic: str) -> None:
    going = stream(broker, topic)
    going.write(3)
    going.reader.prepareForTriggerAvailableNow()
    assert going.next() == 3
    going.reader.stop()


@pytest.mark.parametrize("records", [0, 2])
def test_a_task_waits_as_long_as_it_says(broker: OttlaBroker, topic: str, records: int) -> None:
    """For a broker that does not answer: to ask it where its log ends takes time, too."""
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        producer.send_many(topic, [b"v"] * 2, partition=0)
    clock, timeout_s = Hands(), 8.0
    reader = RangeReader({"bootstrap.servers": broker.bootstrap}, clock)
    consumer: Any = reader._consumer  # pyright: ignore[reportPrivateUsage]
    partitions: Any = reader._portal.call(lambda: consumer.partition_reader)  # pyright: ignore[reportPrivateUsage]
    taken = partitions.columns

    async def columns(wait_s: float) -> Any:
        clock.seconds += wait_s
        return await taken(60.0) if clock.seconds <= LOOK_S and records else None

    async def end_offsets(*wanted: object, timeout_s: float) -> None:
        clock.seconds += timeout_s
        raise TimedOut("no response")

    partitions.columns, consumer.end_offsets = columns, end_offsets
    wanted = OffsetRange(TopicPartition(topic, PartitionIndex(0)), 0, 10)
    found = reader.read(wanted, timeout_s, skips_lost=False)
    try:
        if records:
            assert next(found).rows == records
            clock.seconds += 100.0  # what Spark does with them takes as long as it takes
        begun_s = clock.seconds
        with pytest.raises(TimedOut, match=f"from offset {records} in 8 s"):
            next(found)
        assert clock.seconds - begun_s == timeout_s
    finally:
        reader.close()

"""When a waiting stream continues and how long a task waits, by a clock that the test moves."""

from pathlib import Path
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


class ManualClock(SystemClock):
    """A clock that moves when the test says so."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def elapsed_s(self) -> float:
        return self.seconds


class Stream:
    """A stream as Spark drives it: it runs a micro-batch if the end differs from the start."""

    def __init__(
        self, broker: OttlaBroker, topic: str, start: str = "earliest", **more: str
    ) -> None:
        self.clock = ManualClock()
        given = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "subscribe": topic,
            "startingOffsets": start,
            "minOffsetsPerTrigger": str(LEAST),
            "maxTriggerDelay": f"{DELAY_S:g}s",
            **more,
        }
        schema: Any = None  # of the tasks, which do not run here
        self.reader = OttlaStreamReader(source_options(given, Use.STREAM), schema, clock=self.clock)
        self.place = self.reader.initialOffset()
        self._broker, self._topic = broker, topic

    def write(self, count: int) -> None:
        with Producer({"bootstrap.servers": self._broker.bootstrap}) as producer:
            producer.send_many(self._topic, [b"v"] * count, partition=0)

    def next(self, limit: ReadLimit | None = None) -> int:
        """The number of records in the next micro-batch; 0 if there is none."""
        end = self.reader.latestOffset(self.place, limit or ReadAllAvailable())
        if end == self.place:
            return 0
        tasks = self.reader.partitions(self.place, end)
        self.place = end
        return sum(one.whole.size for one in tasks)


def stream(broker: OttlaBroker, topic: str) -> Stream:
    """A stream after its first micro-batch."""
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        producer.send(topic, b"first", partition=0).result()
    begun = Stream(broker, topic)
    assert begun.next() == 1  # like the connector: the first one does not wait
    return begun


def test_stop_file_ends_the_offer_after_the_first_micro_batch(
    broker: OttlaBroker, topic: str, tmp_path: Path
) -> None:
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        producer.send(topic, b"first", partition=0).result()
    file = tmp_path / "stop"
    going = Stream(broker, topic, stopFile=str(file))
    file.touch()
    assert going.next() == 1, "the first micro-batch fixes where the query starts"
    going.write(LEAST)
    assert going.next() == 0
    file.unlink()
    assert going.next() == LEAST


def test_micro_batch_waits_for_min_offsets(broker: OttlaBroker, topic: str) -> None:
    going = stream(broker, topic)
    going.write(LEAST - 1)
    assert going.next() == 0
    going.write(1)
    assert going.next() == LEAST
    going.reader.stop()


def test_first_records_from_the_end_wait_for_min_offsets(broker: OttlaBroker, topic: str) -> None:
    """Like the connector: the first lookup does not wait, and finds nothing."""
    with Admin({"bootstrap.servers": broker.bootstrap}) as admin:
        admin.create_topic(topic, 1)
    going = Stream(broker, topic, "latest")
    assert going.next() == 0
    going.write(LEAST - 1)
    assert going.next() == 0
    going.clock.seconds = DELAY_S
    assert going.next() == LEAST - 1
    going.reader.stop()


def test_micro_batch_waits_at_most_the_delay(broker: OttlaBroker, topic: str) -> None:
    going = stream(broker, topic)
    going.write(3)
    going.clock.seconds = DELAY_S - 0.001
    assert going.next() == 0
    going.clock.seconds = DELAY_S
    assert going.next() == 3
    # The delay counts from here on; there was nothing to wait for before.
    going.clock.seconds = 1.5 * DELAY_S
    going.write(2)
    assert going.next() == 0
    going.clock.seconds = 2 * DELAY_S
    assert going.next() == 2
    going.reader.stop()


def test_max_offsets_apply_once_min_offsets_are_reached(broker: OttlaBroker, topic: str) -> None:
    going = stream(broker, topic)
    going.write(3)
    assert going.next(ReadMaxRows(20)) == 0
    going.write(LEAST + 20)
    assert going.next(ReadMaxRows(20)) == 20
    assert going.next(ReadMaxRows(20)) == LEAST + 3
    going.reader.stop()


def test_available_now_does_not_wait(broker: OttlaBroker, topic: str) -> None:
    going = stream(broker, topic)
    going.write(3)
    going.reader.prepareForTriggerAvailableNow()
    assert going.next() == 3
    going.reader.stop()


@pytest.mark.parametrize("records", [0, 2])
def test_task_waits_for_its_timeout(broker: OttlaBroker, topic: str, records: int) -> None:
    """If a broker does not answer, looking up its log end takes time too."""
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        producer.send_many(topic, [b"v"] * 2, partition=0)
    clock, timeout_s = ManualClock(), 8.0
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
            clock.seconds += 100.0  # Spark may take any time to process them
        begun_s = clock.seconds
        with pytest.raises(TimedOut, match=f"from offset {records} in 8 s"):
            next(found)
        assert clock.seconds - begun_s == timeout_s
    finally:
        reader.close()

"""Topics that are trimmed, deleted, recreated and enlarged under a stream, with both values of
failOnDataLoss.

`micro_batches.py` runs the micro-batches; test_spark_trouble_topics.py uses Spark.
"""

import json
from collections.abc import Callable, Generator
from itertools import count
from typing import Any

import pytest

from judges.ottla_broker import OttlaBroker, ottla_broker
from ottla.ids import PartitionIndex, TopicPartition
from ottla.pipeline.loss import DataLost
from ottla.pipeline.offset_ranges import OffsetRange
from ottla.pipeline.range_reader import RangeReader
from ottla.pipeline.source import OttlaStreamReader
from ottla.sync import Admin, Producer
from pipeline.micro_batches import MicroBatches

_NUMBERS = count()
FIRST = [*range(30)]  # the records before the loss, ten of each partition


class SourceTopic:
    """A topic of three partitions, and the operations on it."""

    def __init__(self, broker: OttlaBroker, admin: Admin) -> None:
        self.servers = broker.bootstrap
        self.topic = f"lost-{next(_NUMBERS)}"
        self.admin = admin

    def make(self, topic: str | None = None) -> None:
        self.admin.create_topic(topic or self.topic, 3)

    def write(self, values: range, *, partitions: int = 3, topic: str | None = None) -> None:
        with Producer({"bootstrap.servers": self.servers}) as producer:
            for n in values:
                producer.send(topic or self.topic, b"%d" % n, partition=n % partitions)

    def trim(self, offset: int) -> None:
        first = TopicPartition(self.topic, PartitionIndex(0))
        self.admin.delete_records({first: offset}).or_raise()

    def delete(self) -> None:
        self.admin.delete_topics([self.topic]).or_raise()

    def query(self, **options: str) -> MicroBatches:
        if not {"subscribePattern", "assign"} & options.keys():
            options["subscribe"] = self.topic
        return MicroBatches(
            **{"kafka.bootstrap.servers": self.servers, "startingOffsets": "earliest"}, **options
        )


@pytest.fixture(scope="module")
def own_broker() -> Generator[OttlaBroker]:
    with ottla_broker({"auto.create.topics.enable": "false"}) as running:
        yield running


@pytest.fixture
def source_topic(own_broker: OttlaBroker) -> Generator[SourceTopic]:
    with Admin({"bootstrap.servers": own_broker.bootstrap}) as admin:
        found = SourceTopic(own_broker, admin)
        found.make()
        found.write(range(30))
        yield found


Going = Callable[[MicroBatches, OttlaStreamReader], list[int]]
"""How a query continues after the loss."""


def in_one_life(query: MicroBatches, reader: OttlaStreamReader) -> list[int]:
    return query.taken(reader)


def after_a_restart(query: MicroBatches, reader: OttlaStreamReader) -> list[int]:
    return query.run()


@pytest.fixture(params=[in_one_life, after_a_restart])
def going(request: pytest.FixtureRequest) -> Going:
    return request.param


class QueryPair:
    """Two queries that have read the same records: one fails on data loss, one does not."""

    def __init__(self, source_topic: SourceTopic, going: Going, **options: str) -> None:
        self._going = going
        self._queries = {
            fails: source_topic.query(failOnDataLoss=fails, **options)
            for fails in ("true", "false")
        }
        self._readers = {fails: one.reader() for fails, one in self._queries.items()}
        for fails, query in self._queries.items():
            assert query.taken(self._readers[fails]) == FIRST

    def goes_on(self, *, fails: bool) -> list[int]:
        key = str(fails).lower()
        return self._going(self._queries[key], self._readers[key])

    @property
    def place(self) -> Any:
        """The offsets of the query that continues."""
        return json.loads(self._queries["false"].place or "")

    def close(self) -> None:
        for one in self._readers.values():
            one.stop()


@pytest.fixture
def begun(source_topic: SourceTopic, going: Going) -> Generator[QueryPair]:
    found = QueryPair(source_topic, going)
    yield found
    found.close()


@pytest.fixture
def begun_by_pattern(source_topic: SourceTopic, going: Going) -> Generator[QueryPair]:
    found = QueryPair(source_topic, going, subscribePattern=f"^{source_topic.topic}(-.*)?$")
    yield found
    found.close()


def test_records_deleted_before_they_were_read(source_topic: SourceTopic, begun: QueryPair) -> None:
    source_topic.write(range(30, 60))
    source_topic.trim(15)
    with pytest.raises(DataLost, match=r"from offset 10 are missing: the partition starts at 15"):
        begun.goes_on(fails=True)
    assert begun.goes_on(fails=False) == [n for n in range(30, 60) if n % 3 or n >= 45]


def test_records_deleted_up_to_the_log_end(source_topic: SourceTopic, begun: QueryPair) -> None:
    source_topic.write(range(30, 60))
    source_topic.trim(20)
    with pytest.raises(DataLost, match=r"from offset 10 are missing: the partition starts at 20"):
        begun.goes_on(fails=True)
    assert begun.goes_on(fails=False) == [n for n in range(30, 60) if n % 3]


def test_deleting_records_after_reading_is_not_a_loss(
    source_topic: SourceTopic, begun: QueryPair
) -> None:
    source_topic.trim(10)
    source_topic.write(range(30, 60))
    assert begun.goes_on(fails=True) == [*range(30, 60)]
    assert begun.goes_on(fails=False) == [*range(30, 60)]


def test_deleted_topic(source_topic: SourceTopic, begun: QueryPair) -> None:
    """Its offsets are forgotten: a topic that is created again is read from its first record."""
    source_topic.delete()
    with pytest.raises(
        DataLost, match=f"UNKNOWN_TOPIC.*{source_topic.topic}.*failOnDataLoss=false"
    ):
        begun.goes_on(fails=True)
    assert begun.goes_on(fails=False) == []
    assert begun.place == {}
    source_topic.make()
    source_topic.write(range(100, 115))
    assert begun.goes_on(fails=False) == [*range(100, 115)]
    with pytest.raises(DataLost, match="ends at offset 5, before its starting offset 10"):
        begun.goes_on(fails=True)


def test_recreated_topic_with_fewer_records(source_topic: SourceTopic, begun: QueryPair) -> None:
    """The query continues at the end of the new topic, like Spark's connector."""
    source_topic.delete()
    source_topic.make()
    source_topic.write(range(100, 115))
    with pytest.raises(DataLost, match="ends at offset 5, before its starting offset 10"):
        begun.goes_on(fails=True)
    assert begun.goes_on(fails=False) == []
    source_topic.write(range(115, 130))
    assert begun.goes_on(fails=False) == [*range(115, 130)]


def test_recreated_topic_with_more_records(source_topic: SourceTopic, begun: QueryPair) -> None:
    """The offsets do not show this: the query continues at its offset, like Spark's connector."""
    source_topic.delete()
    source_topic.make()
    source_topic.write(range(100, 160))
    assert begun.goes_on(fails=True) == [*range(130, 160)]
    assert begun.goes_on(fails=False) == [*range(130, 160)]


def test_added_partitions_are_read(source_topic: SourceTopic, begun: QueryPair) -> None:
    source_topic.admin.create_partitions({source_topic.topic: 5}).or_raise()
    source_topic.write(range(30, 60), partitions=5)
    assert begun.goes_on(fails=True) == [*range(30, 60)]
    assert begun.goes_on(fails=False) == [*range(30, 60)]


def test_topics_of_a_pattern_are_created_and_deleted(
    source_topic: SourceTopic, begun_by_pattern: QueryPair
) -> None:
    begun = begun_by_pattern
    source_topic.make(f"{source_topic.topic}-more")
    source_topic.write(range(30, 60), topic=f"{source_topic.topic}-more")
    assert begun.goes_on(fails=True) == [*range(30, 60)]
    assert begun.goes_on(fails=False) == [*range(30, 60)]
    source_topic.delete()
    source_topic.write(range(60, 90), topic=f"{source_topic.topic}-more")
    with pytest.raises(
        DataLost, match=f"{source_topic.topic}-0, .*: the partitions do not exist any more"
    ):
        begun.goes_on(fails=True)
    assert begun.goes_on(fails=False) == [*range(60, 90)]


def test_deleted_topic_does_not_stop_the_other_topic(source_topic: SourceTopic) -> None:
    other = f"{source_topic.topic}-other"
    source_topic.make(other)
    query = source_topic.query(assign=json.dumps({source_topic.topic: [0, 1, 2], other: [0, 1, 2]}))
    assert query.run() == FIRST
    source_topic.delete()
    source_topic.write(range(30, 60), topic=other)
    assert query.run(failOnDataLoss="false") == [*range(30, 60)]


# A logged micro-batch is read later, or again: its records may be gone by then.


def logged(source_topic: SourceTopic, query: MicroBatches) -> tuple[Any, Any]:
    """The start and the end of a micro-batch that was started and not committed."""
    reader = query.reader()
    query.taken(reader)
    source_topic.write(range(30, 60))
    start = json.loads(query.place or "")
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    reader.stop()
    return start, end


def rows(reader: OttlaStreamReader, start: Any, end: Any) -> int:
    tasks = reader.partitions(start, end)
    return sum(batch.num_rows for task in tasks for batch in reader.read(task))


@pytest.mark.parametrize("is_new", [False, True])
def test_topic_deleted_between_planning_and_reading(
    source_topic: SourceTopic, *, is_new: bool
) -> None:
    """Whether the micro-batch was read before or not."""
    start, end = logged(source_topic, source_topic.query())
    source_topic.delete()
    if is_new:
        start = {}
    reader = source_topic.query(failOnDataLoss="false").reader()
    assert rows(reader, start, end) == 0
    reader.stop()
    reader = source_topic.query().reader()
    with pytest.raises(Exception, match=r"the topic does not exist|UNKNOWN_TOPIC_OR_PARTITION"):
        rows(reader, start, end)
    reader.stop()


def test_topic_recreated_between_planning_and_reading(source_topic: SourceTopic) -> None:
    start, end = logged(source_topic, source_topic.query())
    source_topic.delete()
    source_topic.make()
    source_topic.write(range(100, 145))  # up to offset 15 of 20
    reader = source_topic.query(failOnDataLoss="false").reader()
    assert rows(reader, start, end) == 15
    reader.stop()
    reader = source_topic.query().reader()
    with pytest.raises(DataLost, match="from offset 15 are missing"):
        rows(reader, start, end)
    reader.stop()


@pytest.mark.parametrize("start", [0, 15])
def test_end_above_the_log_end_names_ending_offsets(source_topic: SourceTopic, start: int) -> None:
    settings: dict[str, object] = {
        "bootstrap.servers": source_topic.servers,
        "auto.offset.reset": "none",
    }
    reader = RangeReader(settings)
    wanted = OffsetRange(TopicPartition(source_topic.topic, PartitionIndex(0)), start, 20)
    try:
        with pytest.raises(DataLost, match=r"offsets above the end .*endingOffsets") as told:
            list(reader.read(wanted, 60, skips_lost=False))
        assert "deleted" not in str(told.value)
    finally:
        reader.close()


def test_next_partition_does_not_wait_for_a_long_fetch(source_topic: SourceTopic) -> None:
    """If there are no records, a broker may hold a fetch for longer than a task waits."""
    settings: dict[str, object] = {
        "bootstrap.servers": source_topic.servers,
        "fetch.max.wait.ms": 10 * 60 * 1000,
        "auto.offset.reset": "none",
    }
    reader = RangeReader(settings)
    try:
        for _ in range(3):
            for index in range(3):
                where = TopicPartition(source_topic.topic, PartitionIndex(index))
                parts = [*reader.read(OffsetRange(where, 0, 10), 60, skips_lost=False)]
                assert sum(part.rows for part in parts) == 10
    finally:
        reader.close()

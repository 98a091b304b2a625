"""The first micro-batch of a stream: started, interrupted at each step, and repeated.

Spark stores the end of a micro-batch but not its start. `micro_batches.py` runs the micro-batches
here; test_spark_first_batch.py uses Spark.
"""

import json
from collections.abc import Callable, Generator
from itertools import count
from typing import Any

import pytest

from judges.ottla_broker import OttlaBroker, ottla_broker
from ottla.errors import RequestError
from ottla.ids import PartitionIndex, TopicPartition
from ottla.pipeline.loss import DataLost
from ottla.pipeline.options import BadOption
from ottla.sync import Admin, Producer
from pipeline.micro_batches import MicroBatches
from sampling import sample

_NUMBERS = count()
PARTITIONS = 3
THE_TIME_MS = 1_700_000_000_000
BEFORE_LOG = ("begun", "looked")
BEHIND_LOG = ("logged", "begun again", "planned", "read")
"""The steps of a first micro-batch, before and after its end is logged."""


class Crash(Exception):
    """Ends a run of the query."""


class SourceTopic:
    """A topic with nine records; each value is a number, and each timestamp is a second later."""

    def __init__(self, servers: str, admin: Admin) -> None:
        self.servers = servers
        self.admin = admin
        self.topic = f"first-{next(_NUMBERS)}"
        self.written = 0
        admin.create_topic(self.topic, PARTITIONS)
        self.write(9)

    def write(self, number: int, topic: str | None = None) -> None:
        with Producer({"bootstrap.servers": self.servers}) as producer:
            for n in range(self.written, self.written + number):
                time_ms = THE_TIME_MS + 1000 * n
                where = n % PARTITIONS
                producer.send(topic or self.topic, b"%d" % n, partition=where, timestamp_ms=time_ms)
        self.written += number

    def trim(self, partition: int, offset: int) -> None:
        place = TopicPartition(self.topic, PartitionIndex(partition))
        self.admin.delete_records({place: offset}).or_raise()

    def of(self, *offsets: int) -> str:
        """Offsets or timestamps for the partitions, as JSON."""
        return json.dumps({self.topic: {str(n): offset for n, offset in enumerate(offsets)}})

    def query(self, **options: str) -> MicroBatches:
        if "subscribe" not in options:
            options["subscribePattern"] = f"^{self.topic}(-.*)?$"
        return MicroBatches(**{"kafka.bootstrap.servers": self.servers}, **options)


@pytest.fixture(scope="module")
def own_broker() -> Generator[OttlaBroker]:
    settings = {"auto.create.topics.enable": "false", "log.retention.ms": -1}
    with ottla_broker(settings) as running:
        yield running


@pytest.fixture
def source_topic(own_broker: OttlaBroker) -> Generator[SourceTopic]:
    with Admin({"bootstrap.servers": own_broker.bootstrap}) as admin:
        yield SourceTopic(own_broker.bootstrap, admin)


def crash(
    query: MicroBatches,
    step: str,
    meanwhile: Callable[[str], None] | None = None,
    *,
    lives_on: bool = False,
) -> None:
    """Run a query until a step of its first micro-batch, and call `meanwhile` there."""
    begun = 0

    def step_taken(one: str) -> None:
        nonlocal begun
        begun += one == "begun"
        name = "begun again" if one == "begun" and begun == 2 else one
        if meanwhile is not None:
            meanwhile(name)
        if name == step:
            raise Crash

    query.step_taken = step_taken
    reader = query.reader()
    with pytest.raises(Crash):
        query.taken(reader) if lives_on else query.run()
    reader.stop()
    query.step_taken = lambda _: None
    query.batches.clear()


@pytest.mark.parametrize("way", ["available now", "a living reader"])
def test_stream_from_the_end_starts_on_a_busy_topic(source_topic: SourceTopic, way: str) -> None:
    """Records that arrive between any two steps: all from the initial offset on are read."""
    query = source_topic.query()
    begun: list[int] = []

    def step_taken(step: str) -> None:
        if step == "begun" and not begun:
            begun.append(source_topic.written)
        if len(query.batches) < 3:
            source_topic.write(4)

    query.step_taken = step_taken
    if way == "available now":
        assert query.run() == []
        read = query.run()
    else:
        reader = query.reader()
        read = query.taken(reader)
        reader.stop()
    assert query.batches[0] == []
    query.step_taken = lambda _: None
    read += query.run()
    assert read == [*range(begun[0], source_topic.written)]


@pytest.mark.parametrize("step", BEHIND_LOG)
def test_stream_from_the_end_resumes_where_it_started(source_topic: SourceTopic, step: str) -> None:
    query = source_topic.query()
    crash(query, step, lambda one: source_topic.write(1) if one in ("looked", "planned") else None)
    source_topic.write(10)
    assert query.run() == [*range(9, source_topic.written)]
    source_topic.write(5)
    assert query.run() == [*range(source_topic.written - 5, source_topic.written)]


@pytest.mark.parametrize("step", BEFORE_LOG)
def test_stream_without_a_logged_batch_starts_again(source_topic: SourceTopic, step: str) -> None:
    query = source_topic.query()
    crash(query, step)
    source_topic.write(10)
    assert query.run() == []
    source_topic.write(5)
    assert query.run() == [*range(19, 24)]


@pytest.mark.parametrize(
    ("times", "step"), sample([(times, step) for times in (2, 5) for step in BEHIND_LOG], 4)
)
def test_first_micro_batch_can_be_interrupted_often(
    source_topic: SourceTopic, step: str, times: int
) -> None:
    query = source_topic.query(maxOffsetsPerTrigger="4")
    crash(query, step)
    for _ in range(times):
        source_topic.write(3)
        crash(query, "begun" if step == "begun again" else "planned")
    assert query.run() == [*range(9, source_topic.written)]
    assert all(len(one) <= 4 + PARTITIONS for one in query.batches)


def grown(source_topic: SourceTopic, records: int = 1) -> None:
    """Add a partition with records."""
    source_topic.admin.create_partitions({source_topic.topic: PARTITIONS + 1}).or_raise()
    with Producer({"bootstrap.servers": source_topic.servers}) as producer:
        for n in range(source_topic.written, source_topic.written + records):
            producer.send(source_topic.topic, b"%d" % n, partition=PARTITIONS)
    source_topic.written += records


def joined(source_topic: SourceTopic) -> None:
    source_topic.admin.create_topic(f"{source_topic.topic}-more", PARTITIONS)
    source_topic.write(6, f"{source_topic.topic}-more")


def starts(source_topic: SourceTopic) -> dict[str, dict[str, str]]:
    """Options for the initial offset."""
    late = {"startingOffsetsByTimestampStrategy": "latest"}
    return {
        "latest": {},
        "earliest": {"startingOffsets": "earliest"},
        "offsets": {"startingOffsets": source_topic.of(1, -2, -1)},
        "a time": {"startingTimestamp": str(THE_TIME_MS + 5000)},
        "no record is so new": {"startingTimestamp": str(THE_TIME_MS + 15_000), **late},
        "one partition has one": {"startingTimestamp": str(THE_TIME_MS + 8000), **late},
        "times": {
            "startingOffsetsByTimestamp": source_topic.of(THE_TIME_MS + 6000, THE_TIME_MS * 2, 0),
            **late,
        },
    }


EXPECTED = {
    "latest": [],
    "earliest": [*range(9)],
    "offsets": [1, 3, 4, 6, 7],
    "a time": [5, 6, 7, 8],
    "no record is so new": [],
    "one partition has one": [8],
    "times": [2, 5, 6, 8],
}
"""Which of the first nine records are read."""


def changes(*kinds: Callable[[SourceTopic], None] | None) -> list[tuple[str, Any]]:
    """Each initial offset with each change of the partitions."""
    return [(start, change) for start in EXPECTED for change in kinds]


@pytest.mark.parametrize(("start", "change"), sample(changes(None, grown, joined), 7))
def test_repeated_first_micro_batch_has_the_same_rows(
    source_topic: SourceTopic, start: str, change: Callable[[SourceTopic], None] | None
) -> None:
    query = source_topic.query(**starts(source_topic)[start])
    crash(query, "read")
    logged = query.logged
    source_topic.write(9)
    if change is not None:
        change(source_topic)
    assert query.run() == EXPECTED[start] + [*range(9, source_topic.written)]
    assert query.batches[0] == EXPECTED[start]
    assert query.place != logged


@pytest.mark.parametrize(("start", "change"), sample(changes(grown, joined), 5))
def test_partitions_added_after_the_start_are_read_from_0(
    source_topic: SourceTopic, start: str, change: Callable[[SourceTopic], None]
) -> None:
    def meanwhile(step: str) -> None:
        if step == "begun":
            source_topic.write(3)
            change(source_topic)

    query = source_topic.query(**starts(source_topic)[start])
    crash(query, "planned", meanwhile, lives_on=True)
    assert query.run() == sorted(EXPECTED[start] + [*range(9, source_topic.written)])


@pytest.mark.parametrize("change", [grown, joined])
def test_partitions_added_after_the_end_is_set_are_read_next(
    source_topic: SourceTopic, change: Callable[[SourceTopic], None]
) -> None:
    query = source_topic.query(startingOffsets="earliest")
    query.step_taken = lambda step: change(source_topic) if step == "prepared" else None
    read = query.run()
    assert read == [*range(9)]
    query.step_taken = lambda _: None
    assert query.run() == [*range(9, source_topic.written)]


def test_records_of_a_new_partition_count_for_the_limit(source_topic: SourceTopic) -> None:
    query = source_topic.query(startingOffsets="earliest", maxOffsetsPerTrigger="4")
    assert query.run() == [*range(9)]
    query.batches.clear()
    grown(source_topic, records=10)
    assert query.run() == [*range(9, 19)]
    assert [len(one) for one in query.batches] == [4, 4, 2]


def test_records_during_a_repeated_batch_are_in_the_next(source_topic: SourceTopic) -> None:
    """That micro-batch starts where the stream would start now, and is not the first one."""
    query = source_topic.query()
    crash(query, "logged")
    query.step_taken = lambda step: (
        source_topic.write(3) if step == "read" and not query.batches else None
    )
    reader = query.reader()
    assert query.taken(reader) == [9, 10, 11]
    reader.stop()


def test_available_now_reads_everything_in_one_run(source_topic: SourceTopic) -> None:
    query = source_topic.query(startingOffsets="earliest")
    assert query.run() == [*range(9)]
    assert query.batches == [[*range(9)]]


AT_END = {
    "latest": {0, 1, 2},
    "offsets": {2},
    "no record is so new": {0, 1, 2},
    "times": {1},
}
"""The partitions that start at their end, after the record that was written last."""


@pytest.mark.parametrize("start", EXPECTED)
def test_available_now_may_end_before_the_initial_offset(
    source_topic: SourceTopic, start: str
) -> None:
    """The end is set before the initial offset is looked up, and records arrive in between."""
    query = source_topic.query(**starts(source_topic)[start])
    query.step_taken = lambda step: source_topic.write(6) if step == "prepared" else None
    read = query.run()
    query.step_taken = lambda _: None
    late = [one for one in range(9, 15) if one % 3 not in AT_END.get(start, ())]
    assert sorted(read + query.run()) == EXPECTED[start] + late
    source_topic.write(3)
    assert query.run() == [15, 16, 17]


# Invalid options and lost records.


def test_offset_above_the_end_fails_before_logging(source_topic: SourceTopic) -> None:
    """So the query can start after the option is corrected or the records have arrived."""
    query = source_topic.query(startingOffsets=source_topic.of(3, 4, 3))
    with pytest.raises(DataLost, match="ends at offset 3, before its starting offset 4"):
        query.run()
    assert query.logged is None
    source_topic.write(6)
    assert query.run() == [9, 11, 12, 13, 14]


def test_missing_topic_fails_whatever_fail_on_data_loss_is(source_topic: SourceTopic) -> None:
    """Nothing was lost, so the error does not suggest failOnDataLoss=false."""
    for fails in ("true", "false"):
        query = source_topic.query(subscribe="not-there", failOnDataLoss=fails)
        with pytest.raises(RequestError, match="not-there") as told:
            query.run()
        assert "failOnDataLoss" not in str(told.value)
        assert query.logged is None


def test_offsets_without_a_partition_are_rejected(source_topic: SourceTopic) -> None:
    query = source_topic.query(startingOffsets=source_topic.of(0, 0))
    with pytest.raises(BadOption, match=f"missing: {source_topic.topic}-2"):
        query.run()
    assert query.logged is None


@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_records_deleted_before_a_repeated_batch_are_lost(
    source_topic: SourceTopic, start: str
) -> None:
    query = source_topic.query(startingOffsets=start)
    crash(query, "planned")
    source_topic.write(9)
    source_topic.trim(0, 5)
    with pytest.raises(
        DataLost, match="records from offset 3 are missing: the partition starts at 5"
    ):
        query.run()
    left = [one for one in range(9, 18) if one % 3 or one >= 15]
    assert query.run(failOnDataLoss="false") == left


@pytest.mark.parametrize("start", EXPECTED)
@pytest.mark.parametrize("first", [0, 2, 3])
def test_repeated_first_batch_warns_of_missing_records(
    source_topic: SourceTopic, start: str, first: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Records deleted between the attempts are in neither, and the first start offset is lost."""
    query = source_topic.query(**starts(source_topic)[start])
    crash(query, "planned")
    for partition in range(PARTITIONS):
        source_topic.trim(partition, first)
    if start == "offsets" and first:
        with pytest.raises(DataLost, match=f"from offset 1 are missing: .* starts at {first}"):
            query.run()
    else:
        gone = range(first * PARTITIONS)
        assert query.run() == [one for one in EXPECTED[start] if one not in gone]
    cut = {"latest": [], "offsets": [1]}.get(start, [0, 1, 2]) if first else []
    told = [
        one.getMessage() for one in caplog.records if "micro-batch repeated" in one.getMessage()
    ]
    assert len(told) == bool(cut)
    assert all(f"{source_topic.topic}-{partition}" in told[0] for partition in cut)


@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_topic_deleted_before_a_repeated_batch_is_lost(
    source_topic: SourceTopic, start: str
) -> None:
    query = source_topic.query(startingOffsets=start, subscribe=source_topic.topic)
    crash(query, "planned")
    source_topic.admin.delete_topics([source_topic.topic]).or_raise()
    with pytest.raises((DataLost, RequestError), match="UNKNOWN_TOPIC_OR_PARTITION"):
        query.run()
    assert query.run(failOnDataLoss="false") == []

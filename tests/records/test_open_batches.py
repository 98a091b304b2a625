"""The open batches of a producer append records, one by one or from a queue."""

import sys
import threading
from collections import deque
from typing import Any

import pytest

from cases import each_case
from ottla.client.partitioners import partition_of_key
from ottla.records import (
    COMPILED,
    BatchBuilder,
    OpenBatches,
    QueuedRecord,
    RecordQueue,
    RecordRef,
)

PARTITIONS = 7


class Reference(RecordRef):
    """A reference as a producer returns it."""

    __slots__ = ()

    @property
    def place(self) -> tuple[object, int]:
        return self._batch, self._index


def queued(
    value: bytes | None = b"v",
    *,
    topic: str = "t",
    key: bytes | None = None,
    partition: int | None = None,
    headers: Any = (),
    timestamp: int = 5,
) -> QueuedRecord:
    return QueuedRecord("queue", topic, key, value, partition, headers, timestamp)


def opened(limit: int = 1000) -> "tuple[OpenBatches[Reference], BatchBuilder]":
    """Open a sticky batch in partition 2."""
    batches, builder = OpenBatches(Reference, by_key=True), BatchBuilder(limit)
    batches.add("t", 2, PARTITIONS, builder, "batch", sticky=True)
    return batches, builder


def all_opened(*, by_key: bool = True) -> "OpenBatches[Reference]":
    """Open a batch in every partition; that of partition 3 is sticky."""
    batches = OpenBatches(Reference, by_key)
    for index in range(PARTITIONS):
        batches.add("t", index, PARTITIONS, BatchBuilder(), index, sticky=index == 3)
    return batches


def partition_of(reference: Reference | None) -> object:
    return None if reference is None else reference.place[0]


def test_references_count_the_records_of_the_batch() -> None:
    batches, builder = opened()
    places = [batches.append("t", 5, None, value) for value in (b"a", None, b"c")]
    assert [each.place for each in places if each is not None] == [("batch", n) for n in range(3)]
    assert builder.count == 3
    assert builder.base_timestamp == 5


def test_no_record_enters_a_full_sealed_or_unknown_batch() -> None:
    batches, builder = opened(limit=80)
    assert batches.append("t", 5, None, b"v") is not None
    assert batches.append("t", 5, None, b"x" * 100) is None
    assert batches.append("other", 5, None, b"v") is None
    builder.seal()
    assert batches.append("t", 5, None, b"v") is None
    assert not builder.append(0, None, b"v")
    batches.discard("t", 2)
    assert batches.append("t", 5, None, b"v") is None
    assert builder.count == 1


def test_an_empty_sealed_batch_accepts_no_first_record() -> None:
    builder = BatchBuilder()
    builder.seal()
    assert not builder.append(0, None, b"v")
    assert builder.count == 0


def test_queued_records_leave_in_order_until_the_batch_is_full() -> None:
    batches, builder = opened(limit=100)
    records = [queued(b"x" * 10) for _ in range(5)]
    entries: deque[Any] = deque(records)
    size = batches.take(entries)
    taken = len(records) - len(entries)
    assert 0 < taken < 5
    assert builder.count == taken
    assert size == sum(one.size for one in records[:taken])
    assert [one.is_queued for one in records] == [False] * taken + [True] * (5 - taken)
    assert {one.value for one in records[:taken]} == {None}


@each_case(
    "stops",
    [
        queued(key=b"k"),
        queued(partition=0),
        queued(partition=PARTITIONS),
        queued(partition=-1),
        queued(partition=1 << 70),
        queued(headers=(("h", 5),)),
        queued(headers=("no pair",)),
        queued(topic="other"),
        queued(timestamp=1 << 64),
        "not a record",
    ],
)
def test_other_entries_stay_in_the_queue(stops: object) -> None:
    batches, builder = opened()
    entries: deque[Any] = deque([queued(), stops, queued()])
    assert batches.take(entries) == queued().size
    assert entries[0] is stops
    assert batches.take(entries) == 0
    assert builder.count == 1


def test_references_must_be_record_references() -> None:
    wrong: Any = int
    with pytest.raises(TypeError, match="int is not a subclass of RecordRef"):
        OpenBatches(wrong, by_key=True)


def test_a_key_goes_to_the_partition_that_java_chooses() -> None:
    batches = all_opened()
    keys = [b"", b"k", b"key", *(b"key-%d" % n for n in range(100))]
    chosen = [partition_of(batches.append("t", 5, key, b"v")) for key in keys]
    assert chosen == [partition_of_key(key, PARTITIONS) for key in keys]
    assert partition_of(batches.append("t", 5, bytearray(b"key"), b"v")) == chosen[2]
    assert partition_of(batches.append("t", 5, None, b"v")) == 3


def test_a_named_partition_precedes_the_key() -> None:
    batches = all_opened()
    assert [partition_of(batches.append("t", 5, b"k", b"v", n)) for n in range(PARTITIONS)] == [
        *range(PARTITIONS)
    ]
    for missing in (-1, PARTITIONS, 1 << 70):
        assert batches.append("t", 5, b"k", b"v", missing) is None


def test_ignored_keys_go_to_the_sticky_batch() -> None:
    batches = all_opened(by_key=False)
    assert {partition_of(batches.append("t", 5, b"%d" % n, b"v")) for n in range(20)} == {3}


def test_a_closed_batch_is_forgotten_and_others_stay() -> None:
    batches = all_opened()
    batches.discard("t", 5)
    assert batches.append("t", 5, None, b"v", 5) is None
    assert partition_of(batches.append("t", 5, None, b"v")) == 3
    batches.discard("t", 3)
    assert batches.append("t", 5, None, b"v") is None
    batches.discard("other", 3)
    batches.discard("t", 1 << 40)
    assert partition_of(batches.append("t", 5, None, b"v", 4)) == 4
    batches.clear()
    assert batches.append("t", 5, None, b"v", 4) is None


def test_a_topic_with_more_partitions_starts_without_open_batches() -> None:
    batches = all_opened()
    builder = BatchBuilder()
    batches.add("t", 8, PARTITIONS + 2, builder, "new", sticky=False)
    assert batches.append("t", 5, None, b"v") is None
    keys = [b"key-%d" % n for n in range(50)]
    found = {key: partition_of(batches.append("t", 5, key, b"v")) for key in keys}
    assert {key for key, where in found.items() if where == "new"} == {
        key for key in keys if partition_of_key(key, PARTITIONS + 2) == 8
    }


def test_queued_records_join_the_batch_of_their_key_or_partition() -> None:
    batches = all_opened()
    records = [
        queued(key=b"k"),
        queued(partition=6),
        queued(),
        queued(key=b"k", headers=(("h", b"v"), ("n", None))),
    ]
    entries: deque[Any] = deque(records)
    assert batches.take(entries) == sum(one.size for one in records)
    assert not entries
    key = partition_of_key(b"k", PARTITIONS)
    assert [batches.append("t", 5, None, b"v", n) is not None for n in (key, 6, 3)] == [True] * 3
    assert [(one.place) for one in map(placed, records)] == [(key, 0), (6, 0), (3, 0), (key, 1)]


def placed(record: QueuedRecord) -> Reference:
    return Reference(record._batch, record._index)  # pyright: ignore[reportPrivateUsage]


def test_a_record_has_its_key_and_headers() -> None:
    batches, builder = opened()
    headers = (("h", b"v"), ("n", None))
    assert batches.append("t", 5, b"k", b"v", 2, headers) is not None
    assert batches.take(deque([queued(b"v", key=b"k", partition=2, headers=headers)])) > 0
    expected = BatchBuilder(1000)
    for _ in range(2):
        expected.append(5, b"k", b"v", headers)
    assert builder.encoded() == expected.encoded()


class Queued(QueuedRecord):
    """A queued record as a producer returns it."""

    __slots__ = ()


def awake(bytes_max: int = 10_000) -> RecordQueue[Queued]:
    queue = RecordQueue[Queued](Queued, bytes_max)
    queue.is_awake = True
    return queue


compiled_only = pytest.mark.skipif(not COMPILED, reason="uncompiled code needs a lock")


@compiled_only
def test_queue_takes_records_at_once_and_counts_them() -> None:
    queue = awake()
    headers = [("h", b"v")]
    record = queue.give_at_once("t", b"k", b"value", 3, headers, 5)
    assert type(record) is Queued
    assert [*queue.entries] == [record]
    assert (record.topic, record.key, record.value, record.partition) == ("t", b"k", b"value", 3)
    assert (record.headers, record.timestamp) == ((("h", b"v"),), 5)
    assert record.is_queued
    same = QueuedRecord(queue, "t", b"k", b"value", 3, (("h", b"v"),), 5)
    assert queue.given_bytes == record.size == same.size
    queue.add(same)
    assert queue.given_bytes == 2 * same.size


@each_case("hindrance", ["asleep", "closed", "full", "key", "value"])
def test_queue_takes_nothing_at_once_that_has_to_wait(hindrance: str) -> None:
    queue = awake()
    key: Any = bytearray(b"k") if hindrance == "key" else b"k"
    value: Any = "text" if hindrance == "value" else b"v"
    match hindrance:
        case "asleep":
            queue.is_awake = False
        case "closed":
            queue.is_open = False
        case "full":
            queue.add(queued(bytes(10_000)))
        case _:
            pass
    given = queue.given_bytes
    assert queue.give_at_once("t", key, value, None, (), 5) is None
    assert queue.given_bytes == given
    if hindrance == "full":
        queue.taken_bytes = given
        assert (queue.give_at_once("t", key, value, None, (), 5) is not None) is COMPILED


@compiled_only
def test_threads_that_share_a_queue_lose_no_record() -> None:
    queue, count = awake(1 << 40), 20_000
    size = queued(b"v").size

    def give(name: str) -> None:
        for number in range(count):
            assert queue.give_at_once(name, None, b"v", None, (), number) is not None

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=give, args=(str(n),)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert queue.given_bytes == 3 * count * size
    for name in ("0", "1", "2"):
        times = [one.timestamp for one in queue.entries if one.topic == name]
        assert times == [*range(count)]

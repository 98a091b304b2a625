"""The open batches of a producer append records without a key, one by one or from a queue."""

from collections import deque
from typing import Any

import pytest

from cases import each_case
from ottla.records import BatchBuilder, OpenBatches, QueuedRecord, RecordRef


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
    batches, builder = OpenBatches(Reference), BatchBuilder(limit)
    batches.add("t", builder, "batch")
    return batches, builder


def test_references_count_the_records_of_the_batch() -> None:
    batches, builder = opened()
    places = [batches.append("t", 5, value) for value in (b"a", None, b"c")]
    assert [each.place for each in places if each is not None] == [("batch", n) for n in range(3)]
    assert builder.count == 3
    assert builder.base_timestamp == 5


def test_no_record_enters_a_full_sealed_or_unknown_batch() -> None:
    batches, builder = opened(limit=80)
    assert batches.append("t", 5, b"v") is not None
    assert batches.append("t", 5, b"x" * 100) is None
    assert batches.append("other", 5, b"v") is None
    builder.seal()
    assert batches.append("t", 5, b"v") is None
    assert not builder.append(0, None, b"v")
    batches.discard("t")
    assert batches.append("t", 5, b"v") is None
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
        queued(headers=(("h", b"v"),)),
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
        OpenBatches(wrong)

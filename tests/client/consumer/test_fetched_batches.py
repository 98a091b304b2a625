"""Fetched batches: the records of a fetch that a consumer may see."""

import pytest

from ottla.client.consumer.fetched_batches import FetchedBatches, fetched_batches
from ottla.protocol.messages.fetch import AbortedTransaction
from ottla.records import BatchBuilder, CorruptRecords, EndTxnMarker, marker_batch


def batch(base: int, count: int, *, producer: int = -1, transactional: bool = False) -> bytes:
    builder = BatchBuilder()
    for n in range(count):
        builder.append(0, None, b"%d" % (base + n))
    return builder.build(
        base_offset=base,
        leader_epoch=7,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=0 if producer >= 0 else -1,
        transactional=transactional,
    )


def marker(base: int, producer: int, *, commit: bool) -> bytes:
    ends = EndTxnMarker(commit, 0)
    return marker_batch(ends, producer_id=producer, producer_epoch=0, timestamp=0, base_offset=base)


def visible_offsets(chunk: FetchedBatches | None) -> list[int]:
    assert chunk is not None
    return [int(one.header.base_offset) for one in chunk.batches]


def aborted(producer: int, first: int) -> AbortedTransaction:
    return AbortedTransaction(producer_id=producer, first_offset=first)


def test_control_batches_are_skipped() -> None:
    data = batch(0, 2, producer=1, transactional=True) + marker(2, 1, commit=True) + batch(3, 1)
    chunk = fetched_batches(data + marker(4, 1, commit=True), 0, None)
    assert visible_offsets(chunk) == [0, 3]
    assert chunk is not None
    assert chunk.next_offset == 5


def test_only_aborted_transactions_are_left_out() -> None:
    data = b"".join(
        (
            batch(0, 1, producer=1, transactional=True),  # aborted
            batch(1, 1, producer=2, transactional=True),  # committed
            batch(2, 1),  # not in a transaction
            batch(3, 1, producer=1, transactional=True),  # aborted
            batch(4, 1, producer=1),  # the same producer, outside a transaction
            marker(5, 1, commit=False),
            batch(6, 1, producer=1, transactional=True),  # its next transaction, committed
            marker(7, 2, commit=True),
            marker(8, 1, commit=True),
            batch(9, 1, producer=1, transactional=True),  # aborted again
            marker(10, 1, commit=False),
        )
    )
    found = fetched_batches(data, 0, [aborted(1, 9), aborted(1, 0)])
    assert visible_offsets(found) == [1, 2, 4, 6]
    assert found is not None
    assert found.next_offset == 11
    assert visible_offsets(fetched_batches(data, 0, None)) == [0, 1, 2, 3, 4, 6, 9]
    assert visible_offsets(fetched_batches(data, 0, [])) == [0, 1, 2, 3, 4, 6, 9]


def test_aborted_transaction_from_an_earlier_fetch_is_left_out() -> None:
    data = batch(50, 1, producer=1, transactional=True) + marker(51, 1, commit=False)
    found = fetched_batches(data, 50, [aborted(1, 10)])
    assert visible_offsets(found) == []
    assert found is not None
    assert found.next_offset == 52


def test_incomplete_last_batch_is_left_for_the_next_fetch() -> None:
    data = batch(0, 2) + batch(2, 2)
    found = fetched_batches(data[:-1], 0, None)
    assert visible_offsets(found) == [0]
    assert found is not None
    assert (found.next_offset, found.leader_epoch) == (2, 7)
    assert fetched_batches(data[:50], 0, None) is None


def test_batches_before_the_position_are_skipped() -> None:
    found = fetched_batches(batch(0, 2) + batch(2, 3), 4, None)
    assert visible_offsets(found) == [2]
    found = fetched_batches(batch(0, 2), 4, None)
    assert visible_offsets(found) == []
    assert found is not None
    assert found.next_offset == 4


def test_invalid_batch_is_refused() -> None:
    with pytest.raises(CorruptRecords):
        fetched_batches(b"\xff" * 100, 0, None)

"""Cursors: records that were returned, records that are done, and what a seek drops."""

from collections import deque
from itertools import islice

from client.consumer.test_fetched_batches import batch
from ottla.client.consumer.cursor import FIRST_OFFSET_BYTES, SLACK_BYTES, UNKNOWN, Cursor
from ottla.client.consumer.fetched_batches import FetchedBatches, fetched_batches
from ottla.client.consumer.record import Record
from ottla.ids import PartitionIndex, TopicPartition
from ottla.records import TimestampType

PLACE = TopicPartition("t", PartitionIndex(0))


def record(offset: int) -> Record[bytes, bytes]:
    return Record("t", 0, offset, 0, TimestampType.CREATE_TIME, None, b"", (), 7)


def chunk(base: int, count: int) -> FetchedBatches:
    made = fetched_batches(batch(base, count), base, None)
    assert made is not None
    return made


def at(offset: int) -> Cursor:
    cursor = Cursor(PLACE)
    cursor.move(offset)
    return cursor


def open_next_records(cursor: Cursor, count: int) -> None:
    first = cursor.next_batch()
    assert first is not None
    base = int(first.header.base_offset)
    cursor.open_records([record(base + n) for n in range(count)], base + count)


def test_record_in_hand_is_not_done() -> None:
    cursor = at(10)
    cursor.add(chunk(10, 3))
    open_next_records(cursor, 3)
    assert (cursor.position, cursor.done) == (10, 10)
    hand = cursor.open_hand()
    assert (cursor.position, cursor.done) == (10, 10)
    hand.record = next(hand.left)
    assert (cursor.position, cursor.done) == (11, 10)
    hand.record = next(hand.left)
    assert (cursor.position, cursor.done) == (12, 11)
    cursor.came_back()
    assert (cursor.position, cursor.done, cursor.position_epoch) == (12, 12, 7)
    assert hand.is_over
    assert cursor.left is not None
    assert [*cursor.left]
    assert cursor.close_records()  # it was the last record of its fetched batches
    assert (cursor.position, cursor.done, cursor.buffered_bytes) == (13, 13, 0)
    assert not cursor.has_records


def test_polled_records_are_done_at_the_next_poll() -> None:
    cursor = at(0)
    cursor.add(chunk(0, 5))
    open_next_records(cursor, 5)
    assert cursor.left is not None
    for _ in range(2):
        run = [*islice(cursor.left, 2)]
        cursor.handed_out(run[-1].offset + 1, 7)
    assert (cursor.position, cursor.done) == (4, 0)
    cursor.came_back()
    assert (cursor.position, cursor.done) == (4, 4)
    cursor.chunk_handed_out()
    assert (cursor.position, cursor.done) == (5, 4)


def test_seek_drops_fetched_records() -> None:
    cursor = at(0)
    cursor.add(chunk(0, 5))
    open_next_records(cursor, 5)
    hand = cursor.open_hand()
    hand.record = next(hand.left)
    moves = cursor.moves
    cursor.move(70, 3)
    assert (cursor.position, cursor.done, cursor.fetched, cursor.fetched_epoch) == (70, 70, 70, 3)
    assert cursor.valid_under == UNKNOWN
    assert not cursor.has_records
    assert cursor.buffered_bytes == 0
    assert cursor.moves > moves
    assert hand.is_over
    hand.record = record(2)  # in another thread, which did not see the seek yet
    assert (cursor.position, cursor.done) == (70, 70)
    assert cursor.is_located
    cursor.move_to_time(5)
    assert not cursor.is_located
    assert cursor.position == 70


def test_invisible_batches_are_skipped() -> None:
    cursor = at(0)
    cursor.add(FetchedBatches(deque(), 100, 8, 1))
    cursor.add(chunk(8, 1))
    assert cursor.buffered_bytes > 100
    found = cursor.next_batch()
    assert found is not None
    assert found.header.base_offset == 8
    assert (cursor.position, cursor.done) == (8, 8)


def test_partly_read_batch_is_kept() -> None:
    cursor = at(0)
    cursor.add(chunk(0, 5))
    cursor.open_records([record(0), record(1)], 2)  # the third cannot be deserialized
    assert cursor.left is not None
    assert [*cursor.left]
    assert not cursor.close_records()
    assert cursor.position == 2
    assert cursor.next_batch() is not None


def test_pause_keeps_fetched_records() -> None:
    cursor = at(0)
    cursor.add(chunk(0, 5))
    open_next_records(cursor, 5)
    hand, moves = cursor.open_hand(), cursor.moves
    hand.record = next(hand.left)
    cursor.pause()
    assert hand.is_over
    assert cursor.position == 1
    assert cursor.moves == moves
    assert cursor.has_records


def test_fetch_size_is_limited_by_the_stop_offset() -> None:
    cursor = at(10)
    assert cursor.bytes_wanted(1 << 20) == 1 << 20
    cursor.fetch_end = 20
    assert cursor.bytes_wanted(1 << 20) == 10 * FIRST_OFFSET_BYTES + SLACK_BYTES
    assert cursor.bytes_wanted(1000) == 1000
    fetched = chunk(10, 5)
    cursor.add(fetched)
    assert cursor.bytes_wanted(1 << 20) == fetched.size + SLACK_BYTES  # five more, equally large
    cursor.add(chunk(15, 5))
    assert cursor.is_fetched
    cursor.fetch_end = None
    assert not cursor.is_fetched
    assert cursor.bytes_wanted(1 << 20) == 1 << 20

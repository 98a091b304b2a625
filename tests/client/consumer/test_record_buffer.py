"""The record buffer hands out the batches of a fetch response together, each record once."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fastcrc.crc32 import iscsi as crc32c

from client.consumer.test_fetched_batches import batch
from ottla.client.consumer import record_buffer
from ottla.client.consumer.cursor import Cursor
from ottla.client.consumer.decoding import Corrupt, Decoder
from ottla.client.consumer.fetched_batches import fetched_batches
from ottla.client.consumer.record_buffer import RecordBuffer
from ottla.client.serializers import DeserializationFailed
from ottla.ids import PartitionIndex, TopicPartition
from ottla.records import HEADER_SIZE, Compression

PLACE = TopicPartition("t", PartitionIndex(0))
Buffer = RecordBuffer[bytes, bytes]


def damaged(data: bytes) -> bytes:
    """The batch with another last byte, so that its CRC is wrong."""
    assert len(data) > HEADER_SIZE
    return data[:-1] + bytes([data[-1] ^ 1])


def filled(data: bytes, from_offset: int, decoder: Decoder[bytes, bytes]) -> tuple[Buffer, Cursor]:
    buffer = Buffer(decoder, lambda: None)
    buffer.add([PLACE])
    cursor = buffer.cursors[PLACE]
    cursor.move(from_offset)
    chunk = fetched_batches(data, from_offset, None)
    assert chunk is not None
    cursor.add(chunk)
    buffer.arrived(cursor)
    return buffer, cursor


def plain(value: Callable[[str, bytes], Any] | None = None) -> "Decoder[bytes, bytes]":
    return Decoder(None, value, checks_crc=True, bad_record=None)


SMALL = batch(0, 2) + batch(2, 3) + batch(7, 1)


def test_small_batches_are_handed_out_together() -> None:
    async def read() -> None:
        buffer, cursor = filled(SMALL, 1, plain())
        hand = await buffer.hand(None)
        assert [record.offset for record in hand.left] == [1, 2, 3, 4, 7]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await buffer.hand(hand)
        assert (cursor.position, cursor.buffered_bytes, cursor.has_records) == (8, 0, False)

    asyncio.run(read())


def test_enough_records_end_what_is_decoded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_buffer, "DECODED_MIN", 3)

    async def read() -> None:
        buffer, cursor = filled(SMALL, 0, plain())
        hand = await buffer.hand(None)
        assert [record.offset for record in hand.left] == [0, 1, 2, 3, 4]
        hand = await buffer.hand(hand)
        assert cursor.position == 5
        assert [record.offset for record in hand.left] == [7]

    asyncio.run(read())


def test_enough_bytes_end_what_is_decoded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_buffer, "DECODED_BYTES", len(batch(0, 2)) + 1)

    async def read() -> None:
        buffer, cursor = filled(SMALL, 0, plain())
        records = buffer.records()
        assert (await anext(records)).offset == 0
        assert cursor.left_until == 5
        assert [(await anext(records)).offset for _ in range(5)] == [1, 2, 3, 4, 7]
        # Another thread gets all of them at once.
        buffer, cursor = filled(SMALL, 0, plain())
        assert len([*(await buffer.hand(None)).left]) == 6

    asyncio.run(read())


def test_records_before_a_corrupt_batch_are_handed_out_first() -> None:
    async def read() -> None:
        data = batch(0, 2) + batch(2, 3) + damaged(batch(5, 1)) + batch(6, 1)
        buffer, cursor = filled(data, 0, plain())
        assert [one.offset for one in await buffer.take(500, 0)] == [0, 1, 2, 3, 4]
        with pytest.raises(Corrupt, match="the batch at offset 5 cannot be read") as raised:
            await buffer.take(500, 0)
        assert raised.value.next_offset == 6
        assert cursor.position == 5

    asyncio.run(read())


def wrongly_compressed(data: bytes) -> bytes:
    """The batch as if its records were compressed with zstd, with a correct CRC."""
    raw = bytearray(data)
    raw[22] |= Compression.ZSTD
    raw[17:21] = crc32c(raw[21:]).to_bytes(4, "big")
    return bytes(raw)


def test_batch_that_cannot_be_decompressed_is_corrupt() -> None:
    async def read() -> None:
        data = batch(0, 2) + wrongly_compressed(batch(2, 3)) + batch(5, 1)
        buffer, _ = filled(data, 0, plain())
        assert [one.offset for one in await buffer.take(500, 0)] == [0, 1]
        with pytest.raises(Corrupt, match=r"t-0: the batch at offset 2 .* next .* offset 5"):
            await buffer.take(500, 0)
        buffer, _ = filled(data, 0, plain())
        columns = await buffer.take_columns(0, lambda _, columns: (columns, None))
        assert columns is not None
        assert columns.rows == 2
        with pytest.raises(Corrupt, match=r"t-0: the batch at offset 2 .* next .* offset 5"):
            await buffer.take_columns(0, lambda _, columns: (columns, None))

    asyncio.run(read())


def test_failed_value_ends_what_is_handed_out_before_it() -> None:
    def value(_: str, data: bytes) -> bytes:
        if data == b"3":
            raise ValueError("three")
        return data

    async def read() -> None:
        buffer, cursor = filled(SMALL, 0, plain(value))
        records = buffer.records()
        assert [(await anext(records)).offset for _ in range(3)] == [0, 1, 2]
        for _ in range(2):  # the iterator can be used again
            with pytest.raises(DeserializationFailed, match="three"):
                await anext(records)
            assert cursor.position == 3
        cursor.move(4)
        chunk = fetched_batches(SMALL, 4, None)
        assert chunk is not None
        cursor.add(chunk)
        buffer.arrived(cursor)
        assert [(await anext(records)).offset for _ in range(2)] == [4, 7]

    asyncio.run(read())


def test_corrupt_error_names_the_offset_once() -> None:
    where = TopicPartition("t", PartitionIndex(0))
    corrupt = Corrupt(where, 5, 6, "the batch at offset 5 has a wrong CRC")
    assert str(corrupt.message) == (
        "t-0: the batch at offset 5 cannot be read: it has a wrong CRC; "
        "the next batch starts at offset 6"
    )


def test_a_poll_continues_where_an_iteration_stopped() -> None:
    async def read() -> None:
        buffer, cursor = filled(SMALL, 0, plain())
        hand = await buffer.hand(None)
        for _ in range(3):
            hand.record = next(hand.left)
        assert (cursor.position, cursor.done) == (3, 2)
        assert [one.offset for one in await buffer.take(1, 0)] == [3]
        columns = await buffer.take_columns(0, lambda _, columns: (columns, None))
        assert columns is not None
        assert columns.rows == 2
        assert cursor.position == 8

    asyncio.run(read())


def test_paused_records_are_handed_out_after_resume() -> None:
    async def read() -> None:
        buffer, cursor = filled(SMALL, 0, plain())
        hand = await buffer.hand(None)
        hand.record = next(hand.left)
        cursor.pause()
        assert hand.is_over
        assert await buffer.take(500, 0) == []
        buffer.resume(cursor)
        assert [one.offset for one in await buffer.take(500, 0)] == [1, 2, 3, 4, 7]

    asyncio.run(read())

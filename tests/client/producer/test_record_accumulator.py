"""The record accumulator: memory that is reserved and released, and batches that are split."""

import asyncio
from random import Random

import pytest

from ottla.client.producer.config import sender_config
from ottla.client.producer.identity import Identity
from ottla.client.producer.partition_queue import PartitionQueue
from ottla.client.producer.producer_batch import SEQUENCE_MASK, Ack, ProducerBatch
from ottla.client.producer.record_accumulator import (
    AccumulatorCallbacks,
    AccumulatorConfig,
    RecordAccumulator,
)
from ottla.client.producer.row_ack import RowsAck, Run, WrittenRows
from ottla.errors import ErrorCode, RequestError
from ottla.ids import PartitionIndex, TopicPartition
from ottla.protocol.primitives import Buffer
from ottla.records import Batch, BatchBuilder, Compression
from ottla.settings.config_parser import client_config
from ottla.settings.producer import PRODUCER
from ottla.transport.channel import TimedOut

PLACE = TopicPartition("t", PartitionIndex(0))
RULES = sender_config(client_config(PRODUCER, {"bootstrap.servers": "h:1"}), lambda: 0.5)


def accumulator(memory: int) -> RecordAccumulator:
    rules = AccumulatorConfig(batch_bytes=1000, memory_bytes=memory, compression=Compression.NONE)
    return RecordAccumulator(
        rules, lambda: 0.0, AccumulatorCallbacks(lambda: None, lambda batch: None)
    )


def test_cancelled_waiter_releases_granted_memory() -> None:
    async def scenario() -> None:
        box = accumulator(1000)
        taken = await box.reserve(10, 1)
        waiting = asyncio.create_task(box.reserve(10, 5))
        await asyncio.sleep(0)
        assert box.waiting_calls == 1
        box.give_back(taken)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (box.memory_left, box.waiting_calls) == (1000, 0)

    asyncio.run(scenario())


def test_cancelled_waiter_lets_the_next_continue() -> None:
    async def scenario() -> None:
        box = accumulator(2500)
        taken = await box.reserve(2000, 1)
        large = asyncio.create_task(box.reserve(2500, 5))
        small = asyncio.create_task(box.reserve(1, 5))
        await asyncio.sleep(0)
        box.give_back(taken - 1000)  # enough for the small one, which is second
        await asyncio.sleep(0)
        assert not small.done()
        large.cancel()
        assert await small == 1000
        with pytest.raises(TimedOut, match=r"buffer\.memory"):
            await box.reserve(2500, 0.01)
        assert box.waiting_calls == 0

    asyncio.run(scenario())


def test_memory_for_an_already_open_batch_is_released() -> None:
    async def scenario() -> None:
        box = accumulator(3000)
        first, second = await box.reserve(10, 1), await box.reserve(10, 1)
        box.begin(PLACE, first)
        box.begin(PLACE, second)
        assert box.memory_left == 2000
        assert len(box.queues[PLACE].waiting) == 1

    asyncio.run(scenario())


def pending(values: list[bytes | None], sequence: int = 7) -> ProducerBatch:
    builder = BatchBuilder(100_000, Compression.GZIP, 3)
    for number, value in enumerate(values):
        builder.append(1000 - number, b"k", value, [("h", b"%d" % number)])
    batch = ProducerBatch(PLACE, (4,), builder, 1001, 5.0)
    batch.sequence, batch.identity, batch.tries = sequence, Identity(3, 1), 1
    return batch


def records(batches: list[ProducerBatch]) -> list[tuple[object, ...]]:
    built = [Batch(batch.bytes_to_send(transactional=True)) for batch in batches]
    assert all(batch.header.is_transactional for batch in built)
    return [
        (record.timestamp, record.key, record.value, record.headers)
        for batch in built
        for record in batch.records()
    ]


def test_split_parts_keep_records_sequences_and_memory() -> None:
    random = Random(3)
    for _ in range(200):
        sizes = [random.choice((0, 1, 10, 1000)) for _ in range(random.randrange(2, 30))]
        whole = pending([random.randbytes(size) for size in sizes], SEQUENCE_MASK - 3)
        before = records([whole])
        parts = [*whole.split()]
        assert len(parts) >= 2
        assert records(parts) == before
        assert sum(part.memory for part in parts) == 1001
        assert [part.order for part in parts] == [(4, index) for index in range(len(parts))]
        sequence = SEQUENCE_MASK - 3
        for part in parts:
            assert (part.sequence, part.identity, part.began_s) == (sequence, Identity(3, 1), 5.0)
            assert (part.builder.compression, part.builder.level) == (Compression.GZIP, 3)
            sequence = (sequence + part.builder.count) & SEQUENCE_MASK
        assert (4,) < parts[0].order < parts[-1].order < (5,)


def test_record_of_a_split_batch_completes_with_its_part() -> None:
    async def scenario() -> None:
        whole = pending([bytes(10)] * 8)
        acks = [Ack(whole, index) for index in range(8)]
        early = asyncio.create_task(result_or_error(acks[1]))
        all_of_it = asyncio.create_task(whole.settled())
        await asyncio.sleep(0)
        parts = [*whole.split()]
        while len(parts) < 4:  # split the parts again
            parts = [*parts[0].split(), *parts[1:]]
        await asyncio.sleep(0)
        assert not any(ack.done for ack in acks)
        parts[-1].settle(100, -1)
        assert [ack.done for ack in acks].count(True) == parts[-1].builder.count
        assert (await acks[-1]).offset == 100 + parts[-1].builder.count - 1
        refused = RequestError(ErrorCode.MESSAGE_TOO_LARGE)
        parts[0].fail(refused)
        with pytest.raises(RequestError):
            await acks[0]
        for _ in range(9):
            await asyncio.sleep(0)
        assert not all_of_it.done()
        for part in parts[1:-1]:
            part.settle(10, -1)
        await all_of_it
        assert (await early is refused) == (parts[0].builder.count > 1)
        assert all(ack.done for ack in acks)

    asyncio.run(asyncio.wait_for(scenario(), 10))


async def result_or_error(ack: Ack) -> object:
    try:
        return await ack
    except RequestError as error:
        return error


def queue_of_three() -> PartitionQueue:
    """Three batches that wait."""
    queue = PartitionQueue(PLACE, lambda batch: None)
    for _ in range(3):
        queue.begin(BatchBuilder(1000), 0, 0.0).builder.append(0, None, b"v")
        queue.close()
    return queue


def test_first_batch_of_a_producer_is_sent_alone() -> None:
    # A Kafka whose new topic had no leader yet refused the first batch and stored the second.
    queue = queue_of_three()
    assert queue.may_send(RULES)
    first = queue.take_first(Identity(5, 0))
    assert not queue.may_send(RULES)
    queue.put_back(first)  # refused: the broker still does not know the producer
    queue.take_first(Identity(5, 0))
    assert not queue.may_send(RULES)
    queue.remove(first)
    queue.is_known = True
    assert queue.may_send(RULES)
    queue.take_first(Identity(5, 0))
    assert queue.may_send(RULES)


def test_retried_batch_is_sent_alone() -> None:
    # It may have been appended: the next one waits for its result.
    queue = queue_of_three()
    queue.is_known = True
    first, second = queue.take_first(Identity(5, 0)), queue.take_first(Identity(5, 0))
    assert queue.may_send(RULES)
    queue.put_back(second)  # the connection was lost before the response
    assert not queue.may_send(RULES)  # the first one is in flight
    queue.remove(first)
    assert queue.may_send(RULES)
    assert queue.take_first(Identity(5, 0)) is second
    assert not queue.may_send(RULES)  # the third one waits
    queue.remove(second)
    assert queue.may_send(RULES)


def test_awaiting_rows_marks_all_their_batches_as_awaited() -> None:
    async def scenario() -> None:
        first, second = pending([b"a", b"b"]), pending([b"c"] * 3)
        ack = RowsAck([Run(first, 1, 1), Run(second, 0, 3)])
        result = asyncio.create_task(rows_result(ack))
        await asyncio.sleep(0)
        assert first.awaited
        assert second.awaited  # a flush does not report it again
        second.settle(20, -1)
        assert not ack.done
        first.settle(10, -1)
        assert await result == [WrittenRows("t", 0, 11, 4)]

    asyncio.run(scenario())


async def rows_result(ack: RowsAck) -> list[WrittenRows]:
    return await ack


def first_batch(box: RecordAccumulator, value: bytes = bytes(500)) -> tuple[ProducerBatch, Buffer]:
    """Return a batch with a record, and the bytes that a connection would send."""
    box.begin(PLACE, 1000)
    assert box.add(PLACE, 1, None, value, ()) is not None
    batch = box.queues[PLACE].take_first(Identity(1, 0))
    return batch, batch.bytes_to_send(transactional=False)


def settle(box: RecordAccumulator, batch: ProducerBatch) -> None:
    box.queues[PLACE].remove(batch)
    batch.settle(0, -1)
    box.release(batch)


def test_next_batch_reuses_the_buffer_of_a_settled_one() -> None:
    box = accumulator(10_000)
    batch, sent = first_batch(box)
    del sent  # the connection has sent it
    settle(box, batch)
    (kept,) = box.spare
    _, again = first_batch(box)
    assert memoryview(again).obj is kept
    assert Batch(again).header.record_count == 1


def test_bytes_that_a_closed_connection_still_has_do_not_change() -> None:
    box = accumulator(10_000)
    batch, sent = first_batch(box)
    before = bytes(sent)
    settle(box, batch)
    first_batch(box, b"w" * 700)
    assert bytes(sent) == before


def test_kept_buffers_are_no_larger_than_batches_and_bounded() -> None:
    box = accumulator(4000)
    batches = [first_batch(box)[0] for _ in range(10)]
    for batch in batches:
        settle(box, batch)
    assert 0 < sum(map(len, box.spare)) <= 4000
    box.spare.clear()
    large, _ = first_batch(box, bytes(400_000))
    settle(box, large)
    assert not box.spare

"""A partition and its log: appends, reads up to the high watermark, and failures."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from log.log_managers import TOPIC_ID, opened, partition
from log.logs import append as append_to_log
from log.logs import end, made
from ottla.errors import DiskFull, ErrorCode, RequestError, StorageFailure
from ottla.ids import LeaderEpoch, Offset
from ottla.log.disk import read_whole
from ottla.log.log_config import LogConfig
from ottla.log.log_manager import LogManager
from ottla.log.names import LOG_START_OFFSETS
from ottla.log.segment.timestamps import FoundOffset
from ottla.records.batch import batches
from ottla.records.compression import Compression
from ottla.records.validation import ValidationConfig
from ottla.replication.fetch_purgatory import DelayedFetch
from ottla.replication.partition import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    Partition,
)
from ottla.testing.clock import SimulatedClock, simulated
from ottla.testing.disk import SimulatedDisk

EPOCH = LeaderEpoch(2)
RULES = LogConfig()

Scenario = Callable[[Partition, LogManager, SimulatedDisk], Coroutine[Any, Any, None]]


def run(
    scenario: Scenario, rules: LogConfig = RULES, topic: str = "t", *, in_sync_min: int = 1
) -> None:
    """Run a scenario with a partition that is led in epoch 2."""

    async def program(clock: SimulatedClock) -> None:
        disk = SimulatedDisk()
        logs = await opened(disk, clock, rules=rules)
        hosted = await logs.create(partition(0, topic), TOPIC_ID, rules)
        hosted.log.begin_epoch(EPOCH)
        led = Partition(
            logs,
            hosted,
            TOPIC_ID,
            EPOCH,
            ValidationConfig(timestamp_after_max_ms=2**62),
            in_sync_min,
        )
        await scenario(led, logs, disk)

    simulated(program)


def append(
    led: Partition, *values: bytes, acks: int = -1, timestamp: int = 0, **how: Any
) -> tuple[int, int]:
    """Append and return the first and the last offset."""
    data = made(values, timestamp=timestamp, **how)
    found = led.append(memoryview(data), produce_version=12, acks=acks, now_ms=0)
    return found.base_offset, found.last_offset


def refused(code: ErrorCode, call: Callable[[], object]) -> str:
    with pytest.raises(RequestError) as error:
        call()
    assert error.value.code is code
    return error.value.message or ""


async def refused_later(code: ErrorCode, waiting: Coroutine[Any, Any, object]) -> None:
    with pytest.raises(RequestError) as error:
        await waiting
    assert error.value.code is code


def read(led: Partition, offset: int = 0, *, committed: bool = False) -> list[bytes | None]:
    data = led.read_cached(offset, 1 << 20, committed=committed).cached()
    assert data is not None
    return [record.value for one in batches(data) for record in one.records()]


# Appends.


def test_appended_records_can_be_read_at_once() -> None:
    async def scenario(led: Partition, logs: LogManager, disk: SimulatedDisk) -> None:
        assert led.high_watermark == 0
        assert append(led, b"a", b"b") == (0, 1)
        assert append(led, b"c", acks=1) == (2, 2)
        assert (led.high_watermark, led.log.log_end_offset) == (3, 3)
        assert read(led) == [b"a", b"b", b"c"]
        assert read(led, 2) == [b"c"]
        slice_ = await led.read(2, 1 << 20, committed=False)
        (batch,) = batches(await slice_.read())
        assert (batch.header.base_offset, batch.header.leader_epoch) == (2, EPOCH)
        again = Partition(logs, logs[led.name], TOPIC_ID, EPOCH, led.rules, 1)
        assert again.high_watermark == 3, "it goes on where the log ends"

    run(scenario)


def test_append_wakes_waiters_and_counts_traffic_once() -> None:
    async def scenario(led: Partition, logs: LogManager, disk: SimulatedDisk) -> None:
        first = made([b"a", b"b"], producer_id=7, epoch=0, sequence=0)
        awaited = DelayedFetch([led], len(first) + 1)
        waiting = asyncio.create_task(awaited.wait(60))
        for _ in range(3):  # retries get a response, and nothing is appended
            found = led.append(memoryview(first), produce_version=12, acks=-1, now_ms=0)
            assert (found.base_offset, found.last_offset) == (0, 1)
        await asyncio.sleep(0)
        assert not waiting.done()
        assert (led.traffic.records_in, led.traffic.bytes_in) == (2, len(first))
        append(led, b"c")
        await waiting
        assert not led.waiting
        assert led.traffic.records_in == 3

    run(scenario)


def test_waiters_are_woken_when_the_partition_is_removed() -> None:
    async def scenario(led: Partition, logs: LogManager, disk: SimulatedDisk) -> None:
        waits = [asyncio.create_task(DelayedFetch([led], 1 << 20).wait(60)) for _ in range(3)]
        await asyncio.sleep(0)
        assert len(led.waiting) == 3
        led.wake_all()
        await asyncio.gather(*waits)
        assert not led.waiting

    run(scenario)


@pytest.mark.parametrize("topic", ["__consumer_offsets", "__transaction_state"])
def test_client_cannot_write_to_internal_topics(topic: str) -> None:
    async def scenario(led: Partition, logs: LogManager, disk: SimulatedDisk) -> None:
        said = refused(ErrorCode.INVALID_TOPIC_EXCEPTION, lambda: append(led, b"x"))
        assert topic in said
        assert led.log.log_end_offset == 0

    run(scenario, topic=topic)


def test_acks_all_is_refused_below_min_isr() -> None:
    async def scenario(led: Partition, logs: LogManager, disk: SimulatedDisk) -> None:
        refused(ErrorCode.NOT_ENOUGH_REPLICAS, lambda: append(led, b"x"))
        assert append(led, b"x", acks=1) == (0, 0)
        assert append(led, b"x", acks=0) == (1, 1)

    run(scenario, in_sync_min=2)


def test_transactional_batch_is_refused() -> None:
    async def scenario(led: Partition, logs: LogManager, disk: SimulatedDisk) -> None:
        how = {"producer_id": 7, "epoch": 0, "sequence": 0, "transactional": True}
        refused(ErrorCode.INVALID_TXN_STATE, lambda: append(led, b"x", **how))
        assert led.last_stable_offset == led.log.log_end_offset == 0

    run(scenario)


def test_batch_is_stored_as_the_topic_config_says() -> None:
    async def scenario(led: Partition, logs: LogManager, disk: SimulatedDisk) -> None:
        append(led, b"x" * 100)
        led.rules = ValidationConfig(compression=Compression.ZSTD)
        append(led, b"x" * 100)
        data = led.read_cached(0, 1 << 20, committed=False).cached()
        codecs = [one.header.compression for one in batches(data or b"")]
        assert codecs == [Compression.NONE, Compression.ZSTD]
        assert read(led) == [b"x" * 100] * 2
        stored = sum(segment.size for segment in led.log.segments)
        assert led.traffic.bytes_in == stored

    run(scenario)


# Storage failures.


def test_c5_flush_messages_delays_acknowledgements() -> None:
    async def scenario(led: Partition, logs: LogManager, disk: SimulatedDisk) -> None:
        append(led, b"x")
        assert led.must_flush
        assert led.log.recovery_point == 0
        await led.durable(1)
        assert led.log.recovery_point == 1
        assert not led.must_flush

    async def lax(led: Partition, logs: LogManager, disk: SimulatedDisk) -> None:
        append(led, b"x")
        assert not led.must_flush

    run(scenario, LogConfig(flush_messages=1))
    run(lax)


def test_c5_consumers_read_after_the_flush() -> None:
    async def scenario(led: Partition, logs: LogManager, disk: SimulatedDisk) -> None:
        append(led, b"x")
        append(led, b"y")
        assert (led.high_watermark, read(led)) == (0, [])
        await led.committed(2)
        assert led.high_watermark == led.log.recovery_point == 2
        assert read(led) == [b"x", b"y"]

    run(scenario, LogConfig(flush_messages=1))


def broken(disk: SimulatedDisk, what: str) -> None:
    """Let one kind of call fail from now on."""
    disk.fails = lambda name, path: name == what


def test_failed_write_takes_the_directory_offline() -> None:
    async def scenario(led: Partition, logs: LogManager, disk: SimulatedDisk) -> None:
        append(led, b"a")
        broken(disk, "write")
        refused(ErrorCode.KAFKA_STORAGE_ERROR, lambda: append(led, b"b"))
        (directory,) = logs.directories
        assert directory.failure is not None
        assert (led.high_watermark, led.traffic.records_in) == (1, 1)
        assert read(led) == [b"a"]

    run(scenario)


def test_full_disk_is_reported_and_stays_online() -> None:
    async def scenario(led: Partition, logs: LogManager, disk: SimulatedDisk) -> None:
        disk.capacity_bytes = 0
        refused(ErrorCode.KAFKA_STORAGE_ERROR, lambda: append(led, b"b"))
        (directory,) = logs.directories
        assert directory.failure is None
        assert isinstance(directory.shortage, DiskFull)

    run(scenario)


def test_failed_flush_takes_the_directory_offline() -> None:
    async def scenario(led: Partition, logs: LogManager, disk: SimulatedDisk) -> None:
        append(led, b"a")
        broken(disk, "sync")
        await refused_later(ErrorCode.KAFKA_STORAGE_ERROR, led.durable(1))
        assert logs.directories[0].failure is not None

    run(scenario, LogConfig(flush_messages=1))


# Reads.


def test_a3_request_with_another_leader_epoch_is_fenced() -> None:
    async def scenario(led: Partition, logs: LogManager, disk: SimulatedDisk) -> None:
        led.check_epoch(-1)
        led.check_epoch(EPOCH)
        refused(ErrorCode.FENCED_LEADER_EPOCH, lambda: led.check_epoch(EPOCH - 1))
        refused(ErrorCode.UNKNOWN_LEADER_EPOCH, lambda: led.check_epoch(EPOCH + 1))

    run(scenario)


def test_a6_reads_end_at_the_high_watermark() -> None:
    async def scenario(led: Partition, logs: LogManager, disk: SimulatedDisk) -> None:
        for value in (b"a", b"b", b"c"):
            append(led, value)
        led.high_watermark = Offset(2)
        assert led.upper_offset(committed=False) == 2
        assert read(led) == [b"a", b"b"]
        assert read(led, 2) == []
        later = await led.read(0, 1 << 20, committed=False)
        assert len(list(batches(await later.read()))) == 2

    run(scenario)


def test_e7_read_committed_stops_at_an_open_transaction() -> None:
    async def scenario(led: Partition, logs: LogManager, disk: SimulatedDisk) -> None:
        append(led, b"a")
        append_to_log(led.log, b"open", producer_id=7, transactional=True)
        append(led, b"b")
        assert (led.last_stable_offset, led.high_watermark) == (1, 3)
        assert led.upper_offset(committed=True) == 1
        assert read(led, committed=True) == [b"a"]
        assert read(led) == [b"a", b"open", b"b"]
        slice_ = await led.read(0, 1 << 20, committed=True)
        assert len(list(batches(await slice_.read()))) == 1
        assert await led.find(LATEST, committed=True) == FoundOffset(Offset(1), -1, EPOCH)
        assert await led.find(LATEST, committed=False) == FoundOffset(Offset(3), -1, EPOCH)
        end(led.log, 7, commit=False)
        append(led, b"c")
        assert led.last_stable_offset == led.high_watermark == 5

    run(scenario)


def test_offsets_are_found_by_timestamp_or_special_value() -> None:
    async def scenario(led: Partition, logs: LogManager, disk: SimulatedDisk) -> None:
        begin = FoundOffset(Offset(0), -1, EPOCH)
        assert await led.find(EARLIEST, committed=False) == begin
        assert await led.find(MAX_TIMESTAMP, committed=False) is None
        for timestamp in (1000, 3000, 2000):
            append(led, b"x", timestamp=timestamp)
        led.log.advance_log_start(Offset(1))
        start, latest = FoundOffset(Offset(1), -1, EPOCH), FoundOffset(Offset(3), -1, EPOCH)
        highest = FoundOffset(Offset(1), 3000, EPOCH)
        for asked, found in (
            (EARLIEST, start),
            (EARLIEST_LOCAL, start),
            (LATEST, latest),
            (MAX_TIMESTAMP, highest),
            (LATEST_TIERED, None),
            (EARLIEST_PENDING_UPLOAD, None),
            (0, highest),
            (3000, highest),
            (3001, None),
        ):
            assert await led.find(asked, committed=False) == found, asked
        led.high_watermark = Offset(1)
        for asked in (0, MAX_TIMESTAMP):
            assert await led.find(asked, committed=False) is None, "beyond what can be read"

    run(scenario)


@pytest.mark.parametrize("asked", [0, MAX_TIMESTAMP])
def test_storage_failure_during_a_search_is_reported(
    asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(led: Partition, logs: LogManager, disk: SimulatedDisk) -> None:
        append(led, b"x")

        async def fail(*args: object) -> None:
            raise StorageFailure("read: Input/output error")

        for name in ("find_timestamp", "find_max_timestamp"):
            monkeypatch.setattr(type(led.log), name, fail)
        await refused_later(ErrorCode.KAFKA_STORAGE_ERROR, led.find(asked, committed=False))
        assert logs.directories[0].failure is not None

    run(scenario)


# Deletion of records.


def test_delete_records_up_to_high_watermark_is_durable() -> None:
    async def scenario(led: Partition, logs: LogManager, disk: SimulatedDisk) -> None:
        for value in (b"a", b"b", b"c"):
            append(led, value)
        led.high_watermark = Offset(2)
        for wrong in (3, -2):
            await refused_later(ErrorCode.OFFSET_OUT_OF_RANGE, led.delete_records(wrong))
        assert await led.delete_records(0) == 0
        assert await led.delete_records(1) == 1
        assert b"t 0 1" in read_whole(disk, f"/data/{LOG_START_OFFSETS}"), "before the answer"
        refused(ErrorCode.OFFSET_OUT_OF_RANGE, lambda: read(led, 0))
        assert await led.delete_records(0) == 1, "it never goes back"
        assert await led.delete_records(LATEST) == 2

    run(scenario)


def test_records_of_a_compacted_topic_cannot_be_deleted() -> None:
    async def scenario(led: Partition, logs: LogManager, disk: SimulatedDisk) -> None:
        append(led, b"a")
        await refused_later(ErrorCode.POLICY_VIOLATION, led.delete_records(1))
        assert led.log.log_start_offset == 0

    run(scenario, LogConfig(delete=False, compact=True))


def test_failed_delete_records_is_reported() -> None:
    async def scenario(led: Partition, logs: LogManager, disk: SimulatedDisk) -> None:
        append(led, b"a")
        broken(disk, "write")
        await refused_later(ErrorCode.KAFKA_STORAGE_ERROR, led.delete_records(1))
        assert logs.directories[0].failure is not None

    run(scenario)

"""Offset lookup by timestamp in batches with any timestamps, compared with a list of records."""

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

import pytest
from fastcrc.crc32 import iscsi as crc32c

from cases import each_case
from log.logs import append, new_log, raw
from ottla.broker.effective_config import EffectiveConfig
from ottla.errors import ErrorCode, RequestError
from ottla.ids import Offset
from ottla.log.cleaner.cleaner_runners import LocalCleaner
from ottla.log.cleaner.compaction import CleaningLimits
from ottla.log.log_config import LogConfig, readable_bytes_max
from ottla.log.partition_log import PartitionLog
from ottla.log.segment import timestamps
from ottla.records.batch import CRC_END, DECOMPRESSED_BYTES_MAX, batches
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Compression
from ottla.records.validation import ValidationConfig, validate
from ottla.settings.config_parser import broker_config
from ottla.testing.disk import SimulatedDisk, finish

T = TypeVar("T")


def append_times(
    log: PartitionLog, times: Sequence[int], compression: Compression = Compression.NONE
) -> None:
    """Append a batch whose records have these timestamps."""
    builder = BatchBuilder(compression=compression)
    for timestamp in times:
        builder.append(timestamp, b"k", b"v" * 7)
    data = builder.build()
    rules = ValidationConfig(timestamp_after_max_ms=2**62)
    valid = validate(data, rules, now_ms=0, produce_version=11)
    log.append(valid, memoryview(data), leader_epoch=0, now_ms=0)


def test_max_timestamp_ignores_records_below_the_log_start() -> None:
    log = new_log()
    append_times(log, [100, 5, 5, 20, 50])
    append_times(log, [10])
    log.advance_log_start(Offset(2))
    assert finish(log.find_max_timestamp()) == (4, 50, 0)
    log.advance_log_start(Offset(5))
    assert finish(log.find_max_timestamp()) == (5, 10, 0)


def test_max_timestamp_ignores_emptied_batches() -> None:
    log = new_log(rules=LogConfig(compact=True, delete=False, delete_retention_ms=0))

    def put(timestamp: int, key: bytes, producer_id: int = -1) -> None:
        append(log, b"v", timestamp=timestamp, keys=[key], producer_id=producer_id)

    put(9000, b"a", producer_id=7)  # compaction keeps the last batch of a producer for its sequence
    put(1000, b"b")
    log.roll(1000)
    put(2000, b"a")
    log.roll(2000)
    put(3000, b"c")
    assert finish(log.find_max_timestamp()) == (0, 9000, 0)
    compaction = log.compact(
        LocalCleaner(),
        None,
        high_watermark=log.log_end_offset,
        secret=bytes(16),
        clock_ms=lambda: 3000,
    )
    assert finish(compaction) is not None
    assert next(batches(raw(log))).header.max_timestamp == 9000
    assert finish(log.find_max_timestamp()) == (3, 3000, 0)
    log.advance_log_start(Offset(4))
    assert finish(log.find_max_timestamp()) is None


class ReadCountingDisk(SimulatedDisk):
    """Counts the reads of records files."""

    reads = 0

    def is_cold_here(self, path: str) -> bool:
        self.reads += path.endswith(".log")
        return False


@pytest.mark.parametrize("closed", [False, True])
def test_scan_skips_batches_below_the_log_start(closed: bool) -> None:
    disk = ReadCountingDisk()
    disk.is_cold = disk.is_cold_here
    log = new_log(disk, LogConfig(index_interval_bytes=1))
    for timestamp in (100, *[10] * 2000, 50, 200, 300, *[20] * 9):
        append_times(log, [timestamp])
    if closed:
        log.roll(0)
        finish(log.flush())
        finish(log.find_max_timestamp())  # so that the time index is verified
    end = log.log_end_offset
    searches: list[tuple[int, int, int, tuple[int, int] | None]] = [
        (2000, 0, 300, (2000, 10)),
        (2000, 50, 300, (2001, 50)),
        (2000, 150, 300, (2002, 200)),
        (2000, 250, 300, (2003, 300)),
        (2003, 150, 300, (2003, 300)),
        (2004, 0, 20, (2004, 20)),
        (end - 1, 0, 20, (end - 1, 20)),
        (end, 0, -1, None),
    ]
    for start, timestamp, largest, expected in searches:
        log.advance_log_start(Offset(start))
        disk.reads = 0
        found = finish(log.find_timestamp(timestamp))
        assert (None if found is None else found[:2]) == expected
        latest = finish(log.find_max_timestamp())
        assert (-1 if latest is None else latest.timestamp) == largest
        assert disk.reads < 12  # a scan of all batches takes one read for every 16 KiB


@each_case("seed", range(60))
def test_timestamp_lookup_equals_a_list(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    monkeypatch.setattr(timestamps, "INLINE_BATCHES_MAX", random.choice([0, 1, 5, 500]))
    monkeypatch.setattr(timestamps, "BATCHES_PER_STEP", random.choice([1, 3, 500]))
    segment_bytes = random.choice([400, 1000, 3000])
    log = new_log(rules=LogConfig(segment_bytes=segment_bytes, index_interval_bytes=100))
    times: list[int] = []
    for _ in range(random.randint(1, 30)):
        count = random.randint(1, 5)
        batch = [random.choice([-1, random.randint(0, 50)]) for _ in range(count)]
        append_times(log, batch, random.choice(list(Compression)))
        times += batch
        if random.random() < 0.1:
            finish(log.flush())
    for start in sorted(random.sample(range(len(times) + 1), min(len(times), 6))):
        log.advance_log_start(Offset(start))
        kept = list(enumerate(times))[start:]
        for asked in range(52):
            found = finish(log.find_timestamp(asked))
            expected = next(((offset, time) for offset, time in kept if time >= asked), None)
            assert (None if found is None else found[:2]) == expected
        largest = max((time for _, time in kept if time >= 0), default=None)
        first = next(((offset, time) for offset, time in kept if time == largest), None)
        found = finish(log.find_max_timestamp())
        assert (None if found is None else found[:2]) == first


def test_batch_over_the_limit_is_a_partition_error() -> None:
    log = new_log(rules=LogConfig(decompressed_bytes_max=500))
    append_times(log, [1] * 10, Compression.GZIP)
    append_times(log, [2] * 100, Compression.GZIP)
    assert finish(log.find_timestamp(1)) == (0, 1, 0)
    for search in (lambda: log.find_timestamp(2), log.find_max_timestamp):
        with pytest.raises(RequestError, match="more than 500 bytes") as refused:
            finish(search())
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    log.config = LogConfig(decompressed_bytes_max=5000)
    assert finish(log.find_timestamp(2)) == (10, 2, 0)
    assert finish(log.find_max_timestamp()) == (10, 2, 0)


def test_undecodable_batch_is_a_partition_error() -> None:
    """Another broker may have written such a batch; its CRC is correct."""
    log = new_log()
    builder = BatchBuilder()
    builder.append(7, b"k", b"no zstd")
    data = bytearray(builder.build(leader_epoch=0))
    data[22] |= Compression.ZSTD  # the low byte of the attributes
    data[17:21] = crc32c(memoryview(data)[CRC_END:]).to_bytes(4, "big")
    log.append_replicated(bytes(data), fetched_offset=0, now_ms=0)
    with pytest.raises(RequestError, match="zstd") as refused:
        finish(log.find_timestamp(7))
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("setting", "expected"),
    [(33_554_432, DECOMPRESSED_BYTES_MAX), (200_000_000, 200_000_000)],
)
def test_logs_read_every_batch_size_the_broker_accepts(setting: int, expected: int) -> None:
    config = broker_config(overrides=[f"max.decompressed.message.bytes={setting}"])
    assert readable_bytes_max(config) == expected
    assert CleaningLimits.of(config).decompressed_bytes_max == expected
    assert EffectiveConfig(config).log_config("t").decompressed_bytes_max == expected


class CallCountingDisk(SimulatedDisk):
    """Counts the reads of callers that may block, and the work that runs in threads."""

    worked = waited = 0

    async def blocking(self, call: Callable[[], T]) -> T:
        self.waited += 1
        return await super().blocking(call)

    async def working(self, call: Callable[[], T]) -> T:
        self.worked += 1
        self.before_work()
        return call()

    def before_work(self) -> None:
        """Called before each piece of work in a thread."""


@pytest.mark.parametrize(
    ("compression", "count", "in_thread"),
    [(Compression.NONE, 10, 0), (Compression.NONE, 2000, 1), (Compression.LZ4, 10, 1)],
)
def test_large_batches_are_decoded_in_a_thread(
    compression: Compression, count: int, in_thread: int
) -> None:
    disk = CallCountingDisk()
    log = new_log(disk, LogConfig())
    append_times(log, [9, 9])
    append_times(log, [*range(count)], compression)
    assert finish(log.find_timestamp(8)) == (0, 9, 0)
    assert disk.worked == 0
    log.advance_log_start(Offset(2))
    disk.cold = True
    assert finish(log.find_timestamp(9)) == (11, 9, 0)
    assert disk.worked == in_thread
    # The latest record is deleted: the batch at the log start is asked, then searched.
    disk.worked = 0
    log.advance_log_start(Offset(count + 1))
    assert finish(log.find_max_timestamp()) == (count + 1, count - 1, 0)
    assert disk.worked == in_thread


@pytest.mark.parametrize("cold", [False, True])
def test_long_timestamp_scan_runs_in_a_thread(cold: bool) -> None:
    """The latest record has a future timestamp and is deleted; the index has no other entry."""
    disk = CallCountingDisk()
    log = new_log(disk, LogConfig(index_interval_bytes=1))
    for timestamp in (9_000, *[10] * 3000, 500, *[20] * 3000):
        append_times(log, [timestamp])
    log.advance_log_start(Offset(1))
    disk.cold = cold
    for search, steps in ((lambda: log.find_timestamp(400), 1), (log.find_max_timestamp, 3)):
        disk.worked = disk.waited = 0
        assert finish(search()) == (3001, 500, 0)
        assert 0 < disk.worked <= steps
        assert disk.waited < 10 * steps  # one read for every 16 KiB would be far more
    assert finish(log.find_timestamp(501)) is None


def test_search_restarts_after_a_truncation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timestamps, "INLINE_BATCHES_MAX", 0)
    disk = CallCountingDisk()
    log = new_log(disk, LogConfig())

    def write(*times: int) -> None:
        for timestamp in times:
            append_times(log, [timestamp])

    write(9_000, 10, 10, 500, 20)
    log.advance_log_start(Offset(1))

    def cut_once() -> None:
        disk.before_work = lambda: None
        finish(log.truncate_to(2))
        write(30, 10, 10, 400)

    disk.before_work = cut_once
    assert finish(log.find_timestamp(300)) == (5, 400, 0)
    disk.before_work = cut_once
    assert finish(log.find_max_timestamp()) == (5, 400, 0)


def test_long_scan_runs_in_steps_and_ignores_new_appends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timestamps, "INLINE_BATCHES_MAX", 0)
    monkeypatch.setattr(timestamps, "BATCHES_PER_STEP", 10)
    disk = CallCountingDisk()
    log = new_log(disk, LogConfig())
    for timestamp in (9_000, *[10] * 100):
        append_times(log, [timestamp])
    log.advance_log_start(Offset(1))
    disk.before_work = lambda: append_times(log, [20] * 5)
    assert finish(log.find_timestamp(30)) is None
    assert disk.worked == 10

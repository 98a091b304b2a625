"""Helpers that open, fill and read a log on a simulated disk."""

from collections.abc import Sequence

from ottla.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from ottla.log.appender import Appended
from ottla.log.disk import Disk
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import OpenedLog, PartitionLog, open_log
from ottla.records.batch import TimestampType, batches
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Compression
from ottla.records.control import EndTxnMarker
from ottla.records.validation import ValidationConfig, validate
from ottla.testing.disk import SimulatedDisk, finish

FOLDER = "/data/t-0"
SMALL = LogConfig(segment_bytes=1000, index_interval_bytes=150)


def made(
    values: Sequence[bytes],
    *,
    timestamp: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    compression: Compression = Compression.NONE,
    keys: Sequence[bytes] = (),
) -> bytes:
    """A batch whose records are a millisecond apart, with one key by default."""
    builder = BatchBuilder(compression=compression)
    for number, value in enumerate(values):
        builder.append(timestamp + number, keys[number] if keys else b"k", value)
    return builder.build(
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def opened(
    disk: Disk,
    rules: LogConfig = SMALL,
    *,
    clean: bool = True,
    recovery_point: int = 0,
    log_start: int = 0,
    now_ms: int = 0,
    folder: str = FOLDER,
) -> OpenedLog:
    return open_log(
        disk,
        folder,
        rules,
        recovery_point=recovery_point,
        log_start_offset=log_start,
        clean=clean,
        now_ms=now_ms,
        random=lambda: 0.5,
    )


def new_log(disk: SimulatedDisk | None = None, rules: LogConfig = SMALL) -> PartitionLog:
    """A new log on a simulated disk, led in epoch 0."""
    log = opened(disk or SimulatedDisk(), rules).log
    log.begin_epoch(LeaderEpoch(0))
    return log


def append(
    log: PartitionLog,
    *values: bytes,
    timestamp: int = 0,
    now_ms: int = 0,
    leader_epoch: int | None = None,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = 0,
    transactional: bool = False,
    compression: Compression = Compression.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    keys: Sequence[bytes] = (),
) -> Appended:
    """Produce a batch as a client does."""
    with_producer = producer_id >= 0
    data = made(
        values,
        timestamp=timestamp,
        producer_id=producer_id,
        epoch=epoch if with_producer else -1,
        sequence=sequence if with_producer else -1,
        transactional=transactional,
        compression=compression,
        keys=keys,
    )
    rules = ValidationConfig(timestamp_type=timestamp_type, timestamp_after_max_ms=2**62)
    valid = validate(data, rules, now_ms=now_ms, produce_version=11)
    latest = log.epochs.latest
    assert latest is not None
    leader_epoch = latest.epoch if leader_epoch is None else leader_epoch
    return log.append(valid, memoryview(data), leader_epoch=leader_epoch, now_ms=now_ms)


def end(log: PartitionLog, producer_id: int, *, commit: bool, epoch: int = 0) -> Appended:
    """Append the marker of a transaction as its coordinator does."""
    latest = log.epochs.latest
    assert latest is not None
    return log.append_marker(
        EndTxnMarker(commit, 0),
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(epoch),
        transaction_version=1,
        leader_epoch=latest.epoch,
        now_ms=0,
    )


def raw(log: PartitionLog, start: int | None = None, bytes_max: int = 300) -> bytes:
    """The bytes from an offset to the log end, read in several fetches."""
    offset = log.log_start_offset if start is None else Offset(start)
    found = b""
    while True:
        piece = finish(finish(log.read(offset, log.log_end_offset, bytes_max)).read())
        if not piece:
            return found
        found += piece
        offset = list(batches(piece))[-1].header.next_offset


def contents(log: PartitionLog, start: int | None = None) -> list[tuple[int, bytes | None]]:
    """Offsets and values from an offset to the log end; checks the CRC of each batch."""
    first = log.log_start_offset if start is None else start
    found: list[tuple[int, bytes | None]] = []
    for batch in batches(raw(log, start)):
        assert batch.crc_ok
        if not batch.header.is_control:
            found += [(r.offset, r.value) for r in batch.records() if r.offset >= first]
    return found


def fill(log: PartitionLog, count: int, *, size: int = 60, start: int = 0) -> None:
    """Append batches of one record."""
    for number in range(start, start + count):
        append(log, b"%06d" % number + bytes(size), timestamp=number)

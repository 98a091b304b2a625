"""A data directory with every kind of file, on a simulated disk, for tests that damage it."""

from collections.abc import Iterator, Mapping

from log.logs import FOLDER, SMALL, append, end, fill, new_log, opened
from ottla.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    TopicPartition,
    Uuid,
)
from ottla.inspection.directory_check import check_directory, check_file, check_partition
from ottla.inspection.findings import Finding, Level
from ottla.inspection.segment_check import Tally
from ottla.log.checkpoints import (
    MetaProperties,
    format_clean_shutdown,
    format_meta_properties,
    format_offsets,
    format_partition_metadata,
)
from ottla.log.disk import read_whole
from ottla.log.names import (
    CLEAN_SHUTDOWN,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
)
from ottla.log.partition_log import PartitionLog
from ottla.records.compression import Compression
from ottla.testing.disk import SimulatedDisk, finish

DATA = "/data"
OTHER = "/data/t-1"
ID = Uuid(bytes(range(16)))
PARTITIONS = [TopicPartition("t", PartitionIndex(number)) for number in (0, 1)]


def put(disk: SimulatedDisk, path: str, data: bytes) -> None:
    """Replace the content of a file, or create it."""
    if disk.exists(path):
        disk.remove(path)
    disk.open(path, create=True).write([data], 0)


def content(disk: SimulatedDisk, path: str) -> bytes:
    return read_whole(disk, path)


def flip(disk: SimulatedDisk, path: str, at: int, mask: int) -> None:
    """Flip bits of a byte in place; a second call undoes it."""
    file = disk.open(path)
    (byte,) = file.read(at, 1)
    file.write([bytes((byte ^ mask,))], at)
    file.sync()


def is_directory(disk: SimulatedDisk, path: str) -> bool:
    try:
        disk.names(path)
    except FileNotFoundError:
        return False
    return True


def paths(disk: SimulatedDisk, folder: str = DATA) -> list[str]:
    """The path of every file."""
    found: list[str] = []
    for name in disk.names(folder):
        path = f"{folder}/{name}"
        found += paths(disk, path) if is_directory(disk, path) else [path]
    return found


def history(disk: SimulatedDisk) -> PartitionLog:
    """A log with segments, epochs, deleted records, aborted, committed and open transactions."""
    log = new_log(disk, SMALL)
    fill(log, 4)
    append(log, b"t", b"u", producer_id=5, transactional=True, timestamp=20)
    append(log, b"v", producer_id=6, transactional=True, timestamp=21)
    log.begin_epoch(LeaderEpoch(2))
    append(log, *[b"compressed"] * 9, compression=Compression.GZIP, timestamp=22)
    end(log, 6, commit=False)
    fill(log, 6, start=30)
    end(log, 5, commit=False)
    append(log, b"i", b"j", producer_id=7, timestamp=40)
    fill(log, 3, start=41)
    append(log, b"open", producer_id=8, transactional=True, timestamp=60)
    fill(log, 1, start=61)
    return log


def write_offsets(disk: SimulatedDisk, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    text = format_offsets({key: Offset(offset) for key, offset in offsets.items()})
    put(disk, f"{DATA}/{name}", text.encode())


def data_directory(*, clean: bool = True) -> SimulatedDisk:
    """The directory after a clean shutdown: two partitions of a topic, and all checkpoints."""
    disk = SimulatedDisk()
    disk.make_directory(DATA)
    log = history(disk)
    log.advance_log_start(Offset(2))
    finish(log.close())
    other = opened(disk, SMALL, folder=OTHER).log
    other.begin_epoch(LeaderEpoch(0))
    fill(other, 2)
    finish(other.close())
    ends = dict(zip(PARTITIONS, (log.log_end_offset, other.log_end_offset), strict=True))
    write_offsets(disk, RECOVERY_POINTS, ends)
    write_offsets(disk, HIGH_WATERMARKS, ends)
    write_offsets(disk, LOG_START_OFFSETS, {PARTITIONS[0]: 2})
    meta = MetaProperties("kmTz0oq_QEuTJkbO1bVnOg", BrokerId(1), ID)
    put(disk, f"{DATA}/{META_PROPERTIES}", format_meta_properties(meta).encode())
    for folder in (FOLDER, OTHER):
        text = format_partition_metadata(ID)
        put(disk, f"{folder}/{PARTITION_METADATA}", text.encode())
    if clean:
        put(disk, f"{DATA}/{CLEAN_SHUTDOWN}", format_clean_shutdown(BrokerEpoch(21)).encode())
    return disk


def each(
    disk: SimulatedDisk, path: str = DATA, *, compacted: bool = False, tally: Tally | None = None
) -> Iterator[Finding]:
    """Yield the findings of a check one by one."""
    if is_directory(disk, path):
        check = check_directory if path == DATA else check_partition
    else:
        check = check_file
    return check(disk, path, tally or Tally(), ignore_progress, compacted=compacted)


def ignore_progress(path: str, done: int, total: int) -> None:
    """Ignore the progress."""


def checked(disk: SimulatedDisk, path: str = DATA, *, compacted: bool = False) -> list[Finding]:
    """All findings of a check."""
    return list(each(disk, path, compacted=compacted))


def damage(disk: SimulatedDisk, path: str = DATA, *, compacted: bool = False) -> list[Finding]:
    """The findings that are damage."""
    return [f for f in each(disk, path, compacted=compacted) if f.level is Level.DAMAGE]


def is_damaged(disk: SimulatedDisk, path: str = DATA) -> bool:
    """Whether there is damage; stops at the first finding."""
    return any(finding.level is Level.DAMAGE for finding in each(disk, path))

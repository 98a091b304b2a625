"""Opens all logs of a data directory, several at a time, and reports the progress.

Invariant: a directory that does not belong to a partition is left alone. If one partition cannot be
opened, the whole data directory fails, because its checkpoints would lose that partition.

Opening a log that needs no check is Python code, which one thread runs faster than several: they
would wait for each other. The other threads help while records are checked, in compiled code.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final, NamedTuple, Self

from ottla.clock import Clock
from ottla.errors import StorageFailure
from ottla.ids import Offset, TopicPartition, Uuid
from ottla.log.checkpoints import format_partition_metadata, parse_partition_metadata
from ottla.log.directory import DataDirectory
from ottla.log.disk import Disk, read_whole, remove_tree, write_atomically
from ottla.log.errors import CorruptText
from ottla.log.flusher import GroupCommit
from ottla.log.log_config import LogConfig
from ottla.log.names import (
    CLEANED_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    DirectoryState,
    Kind,
    parse_offset_file,
    parse_partition_directory,
    partition_directory,
)
from ottla.log.partition_log import PartitionLog, open_log

_LOG = logging.getLogger(__name__)

REPORT_SECONDS: Final = 5.0  # between two progress events
LOAD_SECONDS: Final = 0.05  # per call in a thread; a cancelled start waits for the calls
HELP_SECONDS: Final = 0.05  # between two looks whether more threads help
HELP_BYTES: Final = 1 << 20  # they help if so much was checked meanwhile

_BEGINNING: Final = Offset(0)

# The metadata log of Kafka in KRaft mode: not a topic that clients read.
_KRAFT_TOPIC: Final = "__cluster_metadata"


@dataclass(slots=True)
class HostedLog:
    """A log of this broker with its data directory and checkpointed offsets."""

    partition: TopicPartition
    topic_id: Uuid | None  # None in directories of old Kafkas
    log: PartitionLog
    directory: DataDirectory
    high_watermark: Offset = _BEGINNING  # from the checkpoint
    first_dirty_offset: Offset | None = None  # the log is clean below it
    recovered_end_offset: Offset = _BEGINNING  # recovery has checked the records below it
    flushed_ms: int = 0  # time of the last periodic flush
    seen_ms: int = 0  # time when its files were last seen in their place
    seen_end_offset: Offset = _BEGINNING  # the log end offset at that time
    commit: GroupCommit = field(init=False)

    def __post_init__(self) -> None:
        self.commit = GroupCommit(self.log, self.directory.parallel_flushes)


CHECKPOINTS: Mapping[str, Callable[[HostedLog], Offset | None]] = {
    RECOVERY_POINTS: lambda hosted: hosted.log.recovery_point,
    # As in Kafka: no entry if the log starts at the base offset of its first segment.
    LOG_START_OFFSETS: lambda hosted: (
        hosted.log.log_start_offset
        if hosted.log.log_start_offset > hosted.log.segments.first.base_offset
        else None
    ),
    CLEANED_OFFSETS: lambda hosted: (
        hosted.first_dirty_offset if hosted.log.config.compact else None
    ),
    HIGH_WATERMARKS: lambda hosted: hosted.high_watermark,
}
"""The offset of a log in each checkpoint of its data directory; None: no entry."""


@dataclass(slots=True)
class Loading:
    """The progress of opening a data directory."""

    path: str
    partitions: int
    count_bytes: Callable[[], int] = lambda: 0  # how many must be checked; 0: none
    opened: int = 0
    bytes_checked: int = 0
    _to_check: int | None = None
    _within: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])

    def add_checked(self, partition: TopicPartition, checked: int) -> None:
        """Record how many bytes of a partition were checked."""
        self.bytes_checked += checked - self._within.get(partition, 0)
        self._within[partition] = checked

    @property
    def bytes_to_check(self) -> int:
        """The number of bytes that must be checked, counted at the first call."""
        if self._to_check is None:
            self._to_check = self.count_bytes()
        return self._to_check

    @property
    def share(self) -> float:
        """The completed share of the work, from 0 to 1."""
        of_partitions = self.opened / self.partitions if self.partitions else 1.0
        if self.opened == self.partitions or not self.bytes_to_check:
            return of_partitions
        return min(self.bytes_checked / self.bytes_to_check, 1.0)

    def facts(self, elapsed_s: float) -> dict[str, object]:
        """The progress as fields of a log event."""
        share = self.share
        facts: dict[str, object] = {
            "directory": self.path,
            "opened": self.opened,
            "partitions": self.partitions,
        }
        if self.bytes_to_check:
            facts["checked_gib"] = round(self.bytes_checked / 2**30, 1)
            facts["to_check_gib"] = round(self.bytes_to_check / 2**30, 1)
        facts["percent"] = int(share * 100)
        if 0 < share < 1 and elapsed_s > 0:
            facts["seconds_left"] = round(elapsed_s * (1 - share) / share)
        return facts


Report = Callable[[Loading], None]


def reporter(clock: Clock) -> Report:
    """A function that logs the progress every few seconds."""
    started = reported = clock.elapsed_s()

    def report(loading: Loading) -> None:
        nonlocal reported
        now = clock.elapsed_s()
        if now - reported >= REPORT_SECONDS:
            reported = now
            _LOG.info("data directory loading", loading.facts(now - started))

    return report


@dataclass(slots=True)
class Loaded:
    """The content of a data directory."""

    logs: list[HostedLog] = field(default_factory=list[HostedLog])
    deleted: list[str] = field(default_factory=list[str])  # directories that wait to be removed
    strays: list[str] = field(default_factory=list[str])  # directories of stray partitions
    notes: list[str] = field(default_factory=list[str])


async def load(
    directory: DataDirectory,
    config_of: Callable[[str], LogConfig],
    *,
    clock: Clock,
    random: Callable[[], float],
    parallel: int,
    report: Report = lambda loading: None,
) -> Loaded:
    """Open the logs of a data directory; StorageFailure if one of them cannot be opened."""
    disk, clean = directory.disk, directory.stopped_cleanly
    known = await disk.blocking(lambda: _Known.read(directory))
    found, loaded = await disk.blocking(lambda: _survey(directory))
    loaded.notes += directory.notes
    loading = Loading(directory.path, len(found))
    if not clean:
        loading.count_bytes = lambda: _bytes_to_check(directory, found, known.recovery_points)
    config_by_topic: dict[str, LogConfig] = {}
    waiting = iter(found)  # the threads share it
    is_all_taken = False

    def open_one(partition: TopicPartition) -> tuple[HostedLog, list[str]]:
        def progress(checked: int, total: int) -> None:
            loading.add_checked(partition, checked)
            report(loading)

        path = f"{directory.path}/{partition}"
        topic_id, notes = _topic_id(disk, path)
        config = config_by_topic.get(partition.topic)
        if config is None:
            config = config_by_topic[partition.topic] = config_of(partition.topic)
        opened = open_log(
            disk,
            path,
            config,
            recovery_point=known.recovery_points.get(partition, 0),
            log_start_offset=known.log_starts.get(partition, 0),
            clean=clean,
            now_ms=clock.now_ms(),
            random=random,
            progress=progress,
        )
        log = opened.log
        hosted = HostedLog(
            partition,
            topic_id,
            log,
            directory,
            Offset(min(known.high_watermarks.get(partition, 0), log.log_end_offset)),
            known.cleaned.get(partition),
            _BEGINNING if clean else log.log_end_offset,
            clock.now_ms(),
        )
        return hosted, [*notes, *opened.notes]

    def open_some() -> bool:
        """Open logs for a while; return whether there may be more."""
        nonlocal is_all_taken
        until_s = clock.elapsed_s() + LOAD_SECONDS
        while (partition := next(waiting, None)) is not None:
            hosted, notes = open_one(partition)
            loaded.logs.append(hosted)
            loaded.notes.extend(notes)
            loading.opened = len(loaded.logs)
            report(loading)
            if clock.elapsed_s() >= until_s:
                return True
        is_all_taken = True
        return False

    async def open_in_turn() -> None:
        while await disk.blocking(open_some):
            pass

    async def help_to_check() -> None:
        checked = 0
        while not is_all_taken:
            before, checked = checked, loading.bytes_checked
            if checked - before >= HELP_BYTES:
                await disk.blocking(open_some)
            else:
                await clock.sleep(HELP_SECONDS)

    failures: list[Exception] = []
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(open_in_turn())
            for _ in range(parallel - 1 if not clean else 0):
                group.create_task(help_to_check())
    except* (StorageFailure, FileNotFoundError) as group_of_failures:
        failures += group_of_failures.exceptions
    for failure in failures:
        raise failure
    return loaded


def make(
    directory: DataDirectory,
    partition: TopicPartition,
    topic_id: Uuid,
    config: LogConfig,
    aside: str,
    now_ms: int,
    random: Callable[[], float],
) -> HostedLog:
    """Create the log of a new partition; waits for the device.

    An existing directory belongs to an earlier partition of this name: it is renamed as stray, so
    that nothing of it gets into the new log. If the new log cannot be created, its directory is
    removed as far as the device allows.
    """
    disk, path = directory.disk, f"{directory.path}/{partition_directory(partition)}"
    if disk.exists(path):
        disk.rename(path, f"{directory.path}/{aside}")
        _LOG.warning("stray partition directory renamed", {"old": path, "new": aside})
    disk.make_directory(path)
    log: PartitionLog | None = None
    try:
        log = open_log(disk, path, config, clean=True, now_ms=now_ms, random=random).log
        metadata = format_partition_metadata(topic_id).encode()
        write_atomically(disk, f"{path}/{PARTITION_METADATA}", metadata)
        directory.sync_names()
    except BaseException as failure:
        if log is not None:
            log.close_files()
        if isinstance(failure, StorageFailure):
            with suppress(StorageFailure, FileNotFoundError):  # as far as possible
                remove_tree(disk, path)
        raise
    return HostedLog(partition, topic_id, log, directory, flushed_ms=now_ms)


class _Known(NamedTuple):
    """The offsets of the checkpoints of a data directory."""

    recovery_points: dict[TopicPartition, Offset]
    log_starts: dict[TopicPartition, Offset]
    high_watermarks: dict[TopicPartition, Offset]
    cleaned: dict[TopicPartition, Offset]

    @classmethod
    def read(cls, directory: DataDirectory) -> Self:
        names = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANED_OFFSETS)
        return cls(*map(directory.read_offsets, names))


def _survey(directory: DataDirectory) -> tuple[list[TopicPartition], Loaded]:
    """The partitions of a data directory, and its other directories."""
    found: list[TopicPartition] = []
    loaded = Loaded()
    for name in directory.disk.names(directory.path):
        parsed = parse_partition_directory(name)
        if parsed is None:
            continue  # files of the data directory, and foreign files
        if not directory.disk.is_directory(f"{directory.path}/{name}"):
            loaded.notes.append(f"{directory.path}/{name} is a file, ignored")
        elif parsed.state is DirectoryState.LIVE and parsed.partition.topic != _KRAFT_TOPIC:
            found.append(parsed.partition)
        elif parsed.state is DirectoryState.DELETED:
            loaded.deleted.append(f"{directory.path}/{name}")
        elif parsed.state is DirectoryState.STRAY:
            loaded.strays.append(f"{directory.path}/{name}")
            loaded.notes.append(f"{directory.path}/{name} is a stray partition, not opened")
        else:
            loaded.notes.append(f"{directory.path}/{name} is not a live partition, ignored")
    return found, loaded


def _bytes_to_check(
    directory: DataDirectory,
    found: Sequence[TopicPartition],
    recovery_points: Mapping[TopicPartition, Offset],
) -> int:
    """The size of the segments that reach the recovery points."""
    disk, total = directory.disk, 0
    for partition in found:
        path = f"{directory.path}/{partition}"
        names = [name for name in disk.names(path) if name.endswith(Kind.RECORDS)]
        for name, following in zip_longest(names, names[1:], fillvalue=""):
            end = parse_offset_file(following)
            if end is None or end.offset >= recovery_points.get(partition, 0):
                file = disk.open(f"{path}/{name}")
                total += file.size()
                file.close()
    return total


def _topic_id(disk: Disk, directory: str) -> tuple[Uuid | None, list[str]]:
    path = f"{directory}/{PARTITION_METADATA}"
    try:
        text = read_whole(disk, path).decode("utf-8", "replace")
        return parse_partition_metadata(text), []
    except FileNotFoundError:
        return None, []
    except CorruptText as error:
        return None, [f"{path}: ignored: {error}"]

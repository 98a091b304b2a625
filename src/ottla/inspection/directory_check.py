"""Checks a data directory, a partition's directory, or a single file.

Invariant: every partition is checked with its checkpoints, and the checkpoints with the logs. A
checkpoint that only makes a start slower is a note.
"""

from collections.abc import Iterator

from ottla.errors import StorageFailure
from ottla.ids import TopicPartition, Uuid
from ottla.inspection.contents import Content, identify
from ottla.inspection.directory_context import Checkpoints, DirectoryContext
from ottla.inspection.findings import Finding, Level, missing_or_unreadable
from ottla.inspection.history import Epochs, OpenTransactions
from ottla.inspection.listing import (
    FileProgress,
    View,
    list_file,
    partition_directories,
)
from ottla.inspection.partition_check import PartitionCheck
from ottla.inspection.segment_check import LogState, SegmentCheck, SegmentFiles, Tally
from ottla.log.disk import Disk
from ottla.log.names import (
    CLEANED_OFFSETS,
    DIRECTORY_LOCK,
    HIGH_WATERMARKS,
    META_PROPERTIES,
    DirectoryState,
    FileState,
    Kind,
    parse_partition_directory,
)

_OF_SEGMENT = (
    Content.RECORDS,
    Content.OFFSET_INDEX,
    Content.TIME_INDEX,
    Content.TXN_INDEX,
)


def check_directory(
    disk: Disk, directory: str, tally: Tally, progress: FileProgress, *, compacted: bool = False
) -> Iterator[Finding]:
    """Check a data directory with all its partitions."""
    known = Checkpoints.read(disk, directory)
    names = disk.names(directory)
    for name in names:
        if parse_partition_directory(name) is None and name != DIRECTORY_LOCK:
            yield from _check_alone(disk, f"{directory}/{name}", tally, progress)
    if META_PROPERTIES not in names:
        yield Finding(Level.NOTE, f"{directory}/{META_PROPERTIES}", "missing")
    ends: dict[TopicPartition, int | None] = {}
    topic_ids: dict[str, tuple[Uuid, str]] = {}
    for name in partition_directories(names):
        parsed = parse_partition_directory(name)
        assert parsed is not None
        path = f"{directory}/{name}"
        if parsed.state in (DirectoryState.DELETED, DirectoryState.STRAY):
            yield Finding(Level.NOTE, path, "deleted, not checked")
            continue
        context = known.context(parsed.partition, compacted=compacted)
        check = PartitionCheck(disk, path, context, tally, progress)
        try:
            yield from check.run()
        except (FileNotFoundError, StorageFailure) as error:
            yield missing_or_unreadable(path, error)
            continue
        ends[parsed.partition] = check.end_offset
        if check.topic_id is not None:
            topic = parsed.partition.topic
            topic_id, first_path = topic_ids.setdefault(topic, (check.topic_id, path))
            if topic_id != check.topic_id:
                problem = f"topic id {check.topic_id}, but {first_path} has {topic_id}"
                yield Finding(Level.DAMAGE, path, problem)
    yield from _check_checkpoints(known, ends)


def _check_checkpoints(
    known: Checkpoints, ends: dict[TopicPartition, int | None]
) -> Iterator[Finding]:
    for name, offsets in known.offsets.items():
        path = f"{known.path}/{name}"
        for partition, offset in offsets.items():
            if partition not in ends:
                yield Finding(Level.NOTE, path, f"{partition} has an entry but no directory")
                continue
            end = ends[partition]
            if end is not None and offset > end and name in (HIGH_WATERMARKS, CLEANED_OFFSETS):
                level = Level.DAMAGE if known.clean else Level.NOTE
                problem = f"{partition} has offset {offset}, but its log end offset is {end}"
                yield Finding(level, path, problem)


def check_partition(
    disk: Disk, directory: str, tally: Tally, progress: FileProgress, *, compacted: bool = False
) -> Iterator[Finding]:
    """Check a partition's directory, with the checkpoints if it is in a data directory."""
    context = _context(disk, directory, compacted)
    yield from PartitionCheck(disk, directory, context, tally, progress).run()


def check_file(
    disk: Disk, path: str, tally: Tally, progress: FileProgress, *, compacted: bool = False
) -> Iterator[Finding]:
    """Check one file; an index is compared with the records file beside it."""
    directory, _, name = path.rpartition("/")
    identity = identify(name)
    is_set_aside = identity is not None and identity.state is FileState.TRUNCATED
    if identity is None or identity.content not in _OF_SEGMENT or is_set_aside:
        yield from _check_alone(disk, path, tally, progress)
        return
    # The files of a segment differ in what follows the first dot after the offset.
    stem = path[: len(path) - len(identity.state)].rpartition(".")[0]
    files = SegmentFiles(
        stem, identity.offset, _next_base(disk, directory, identity.offset), identity.state
    )
    records = files.path(Kind.RECORDS)
    if not disk.exists(records):
        problem = "checked without its records file, which does not exist"
        yield Finding(Level.NOTE, path, problem)
        yield from _check_alone(disk, path, tally, progress)
        return
    context = _context(disk, directory, compacted)
    transactions = OpenTransactions([] if identity.offset == 0 else None)
    state = LogState(Epochs(), transactions)
    tally.files += 1
    for finding in SegmentCheck(disk, files, context, state, tally, progress).run():
        if finding.path == path:
            yield finding
        elif finding.level is Level.DAMAGE and identity.content is not Content.RECORDS:
            yield Finding(Level.NOTE, path, f"the records file is damaged: {finding.problem}")


def _next_base(disk: Disk, directory: str, base: int | None) -> int | None:
    if base is None:
        return None
    bases = [
        identity.offset
        for name in disk.names(directory or ".")
        if (identity := identify(name))
        and identity.content is Content.RECORDS
        and not identity.state
        and identity.offset is not None
        and identity.offset > base
    ]
    return min(bases, default=None)


def _context(disk: Disk, directory: str, compacted: bool) -> DirectoryContext:
    parent, _, name = directory.rpartition("/")
    parsed_name = parse_partition_directory(name)
    partition = None if parsed_name is None else parsed_name.partition
    return Checkpoints.read(disk, parent or "/").context(partition, compacted=compacted)


def _check_alone(disk: Disk, path: str, tally: Tally, progress: FileProgress) -> Iterator[Finding]:
    """Check a file that is not compared with others."""
    for entry in list_file(disk, path, View(), progress):
        if isinstance(entry, Finding):
            yield entry
        elif entry.KIND == "file":
            tally.files += 1

"""Reads the data directories of a stopped Kafka broker, before Ottla adopts them.

Invariant: the directories are locked meanwhile, so that no broker starts, and nothing is changed
except lock files. A directory that is in use, or that was not shut down cleanly, is refused.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple, TypeVar

from ottla.ids import TopicPartition, Uuid
from ottla.log.checkpoints import MetaProperties, parse_partition_metadata
from ottla.log.directory import DirectoryRefused, read_meta
from ottla.log.disk import Disk, read_whole
from ottla.log.epochs import EpochHistory
from ottla.log.errors import CorruptSnapshot, CorruptText
from ottla.log.names import (
    CLEAN_SHUTDOWN,
    DIRECTORY_LOCK,
    LEADER_EPOCHS,
    PARTITION_METADATA,
    DirectoryState,
    FileState,
    Kind,
    parse_offset_file,
    parse_partition_directory,
)
from ottla.log.producer_snapshot import read_snapshot
from ottla.log.producer_state_manager import ProducerStateManager
from ottla.records.batch import batches

_METADATA_DIRECTORY: Final = "__cluster_metadata-0"
_CHECKPOINT: Final = re.compile(r"([0-9]{20})-[0-9]{10}\.checkpoint")

T = TypeVar("T")


class KafkaPartition(NamedTuple):
    """A partition and its files."""

    partition: TopicPartition
    topic_id: Uuid | None
    leader_epoch: int
    size: int
    producers: ProducerStateManager


class KafkaDirectories(NamedTuple):
    """The content of the data directories of one broker."""

    meta: MetaProperties
    partitions: tuple[KafkaPartition, ...]
    left_alone: tuple[str, ...]  # directories that are not a live partition
    metadata: tuple[bytes, ...] | None  # the records of __cluster_metadata, if it is here


def hold(disk: Disk, directories: Sequence[str], held: ExitStack) -> None:
    """Lock directories until the stack is closed; DirectoryRefused if one is in use."""
    for path in directories:
        if not disk.exists(path):
            raise DirectoryRefused(f"{path} does not exist")
        lock = disk.lock(f"{path}/{DIRECTORY_LOCK}")
        if lock is None:
            raise DirectoryRefused(f"{path} is in use by another process: stop that broker first")
        held.callback(lock.release)


def read_directories(disk: Disk, directories: Sequence[str]) -> KafkaDirectories:
    """Read directories that are locked."""
    meta = _identity(disk, directories)
    for path in directories:
        if not disk.exists(f"{path}/{CLEAN_SHUTDOWN}"):
            raise DirectoryRefused(
                f"{path} was not shut down cleanly: start that broker again and stop it, so that "
                f"it recovers and closes its logs"
            )
    partitions: list[KafkaPartition] = []
    left_alone: list[str] = []
    metadata: tuple[bytes, ...] | None = None
    for path in directories:
        for name in sorted(disk.names(path)):
            inner = f"{path}/{name}"
            if not disk.is_directory(inner):
                continue
            found = parse_partition_directory(name)
            if name == _METADATA_DIRECTORY:
                metadata = tuple(_records(disk, inner))
            elif found is None or found.state is not DirectoryState.LIVE:
                left_alone.append(inner)
            else:
                partitions.append(_partition(disk, inner, found.partition))
    return KafkaDirectories(meta, tuple(partitions), tuple(left_alone), metadata)


def _identity(disk: Disk, directories: Sequence[str]) -> MetaProperties:
    """The owner of the directories; all of them belong to the same broker."""
    first: MetaProperties | None = None
    for path in directories:
        meta = read_meta(disk, path)
        if meta is None or meta.cluster_id is None or meta.node_id is None:
            raise DirectoryRefused(
                f"{path} is not a data directory: meta.properties has no cluster.id or node.id"
            )
        if first is not None and (meta.cluster_id, meta.node_id) != (
            first.cluster_id,
            first.node_id,
        ):
            raise DirectoryRefused(
                f"{path} belongs to broker {meta.node_id} of cluster {meta.cluster_id}, and "
                f"{directories[0]} to broker {first.node_id} of {first.cluster_id}"
            )
        first = first or meta
    assert first is not None
    return first


def _partition(disk: Disk, path: str, partition: TopicPartition) -> KafkaPartition:
    epochs = _text(disk, f"{path}/{LEADER_EPOCHS}", EpochHistory.parse)
    latest = None if epochs is None else epochs.latest
    size, snapshot = 0, ""
    for name in sorted(disk.names(path)):
        file = parse_offset_file(name)
        if file is None or file.state is not FileState.LIVE:
            continue
        if file.kind is Kind.RECORDS:
            size += _size(disk, f"{path}/{name}")
        elif file.kind is Kind.PRODUCER_SNAPSHOT:
            snapshot = f"{path}/{name}"
    return KafkaPartition(
        partition,
        _text(disk, f"{path}/{PARTITION_METADATA}", parse_partition_metadata),
        -1 if latest is None else latest.epoch,
        size,
        _producers(disk, snapshot),
    )


def _size(disk: Disk, path: str) -> int:
    file = disk.open(path)
    try:
        return file.size()
    finally:
        file.close()


def _text(disk: Disk, path: str, parse: Callable[[str], T]) -> T | None:
    try:
        return parse(read_whole(disk, path).decode("utf-8", "replace"))
    except FileNotFoundError:
        return None
    except CorruptText as error:
        raise DirectoryRefused(f"{path}: {error}") from error


def _producers(disk: Disk, path: str) -> ProducerStateManager:
    if not path:
        return ProducerStateManager()
    try:
        return read_snapshot(read_whole(disk, path))
    except CorruptSnapshot as error:
        raise DirectoryRefused(f"{path}: {error}") from error


def _records(disk: Disk, path: str) -> Iterator[bytes]:
    """The values of __cluster_metadata: those of the last checkpoint, and those after it."""
    names = disk.names(path)
    checkpoints = sorted(filter(None, map(_CHECKPOINT.fullmatch, names)), key=lambda one: one[0])
    start = 0
    if checkpoints:
        start = int(checkpoints[-1][1])
        yield from _values(read_whole(disk, f"{path}/{checkpoints[-1][0]}"))
    for name in sorted(names):
        file = parse_offset_file(name)
        if file is not None and file.kind is Kind.RECORDS and file.state is FileState.LIVE:
            yield from _values(read_whole(disk, f"{path}/{name}"), start)


def _values(data: bytes, start: int = 0) -> Iterator[bytes]:
    for batch in batches(data, lenient=True):
        if batch.header.is_control:
            continue
        for record in batch.records(from_offset=start):
            if record.value is not None and record.offset >= start:
                yield bytes(record.value)

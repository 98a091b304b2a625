"""Reads the small text files: checkpoints, leader epochs, meta.properties, the clean shutdown mark.

Invariant: a file that breaks its format, or is larger than any broker writes it, is one finding
with its line; every other file is read completely.
"""

from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from ottla.errors import StorageFailure
from ottla.ids import Offset, TopicPartition, Uuid
from ottla.inspection.contents import Content
from ottla.inspection.entries import CheckpointEntry, DamageEntry, Entry, EpochEntry, FactsEntry
from ottla.inspection.findings import Finding, Level, missing_or_unreadable
from ottla.log.checkpoints import (
    number,
    parse_clean_shutdown,
    parse_meta_properties,
    parse_offsets,
    parse_partition_metadata,
    read_checkpoint,
)
from ottla.log.damage import parse_damage
from ottla.log.disk import Disk
from ottla.log.errors import CorruptText

# Enough for 200,000 partitions with usual topic names.
TEXT_BYTES_MAX: Final = 16 * 1024 * 1024

_META_PROPERTIES: Final = ("version", "cluster_id", "node_id", "directory_id")
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1

T = TypeVar("T")


def parsed(disk: Disk, path: str, parse: Callable[[str], T]) -> T | Finding | None:
    """The parsed content, a finding, or None if the file does not exist."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    except StorageFailure as error:
        return missing_or_unreadable(path, error)
    try:
        size = file.size()
        if size > TEXT_BYTES_MAX:
            return Finding(Level.DAMAGE, path, f"{size} bytes: too large for this file")
        text = file.read(0, size).decode("utf-8")
        return parse(text)
    except UnicodeDecodeError as error:
        return Finding(Level.DAMAGE, path, "not valid UTF-8", error.start)
    except CorruptText as error:
        return Finding(Level.DAMAGE, path, error.problem, line=error.line)
    finally:
        file.close()


def parse_epochs(text: str) -> list[EpochEntry]:
    """The leader epochs, which must increase with their offsets."""
    entries: list[EpochEntry] = []
    for line, (epoch, start) in read_checkpoint(text, 2):
        entry = EpochEntry(
            number(epoch, _INT32_MAX, "epoch", line), number(start, _INT64_MAX, "offset", line)
        )
        if entries and (
            entry.epoch <= entries[-1].epoch or entry.start_offset <= entries[-1].start_offset
        ):
            before = entries[-1]
            raise CorruptText(
                f"epoch {entry.epoch} from {entry.start_offset} after epoch {before.epoch} "
                f"from {before.start_offset}: both must increase",
                line,
            )
        entries.append(entry)
    return entries


def text_entries(disk: Disk, path: str, content: Content) -> Iterator[Entry | Finding]:
    """The entries of a small file."""
    match content:
        case Content.LEADER_EPOCHS:
            found = parsed(disk, path, parse_epochs)
        case Content.KNOWN_DAMAGE:
            found = parsed(disk, path, _damage_entries)
        case Content.OFFSETS:
            found = parsed(disk, path, _checkpoint_entries)
        case Content.PARTITION_METADATA:
            found = parsed(disk, path, _partition_metadata)
        case Content.META_PROPERTIES:
            found = parsed(disk, path, _meta_properties)
        case _:
            assert content is Content.CLEAN_SHUTDOWN
            found = parsed(disk, path, _clean_shutdown)
    if isinstance(found, Finding):
        yield found
        return
    for entry in found or ():
        yield entry
        if content is Content.META_PROPERTIES and isinstance(entry, FactsEntry):
            for name, _ in entry.facts[len(_META_PROPERTIES) :]:
                yield Finding(Level.NOTE, path, f"unknown property {name!a}")


def offsets_in(disk: Disk, path: str) -> dict[TopicPartition, Offset]:
    """A checkpoint for comparisons; empty if it is missing or invalid (reported elsewhere)."""
    found = parsed(disk, path, parse_offsets)
    return found if isinstance(found, dict) else {}


def topic_id_in(disk: Disk, path: str) -> Uuid | None:
    """The topic id of a valid `partition.metadata`."""
    found = parsed(disk, path, parse_partition_metadata)
    return found if isinstance(found, Uuid) else None


def _damage_entries(text: str) -> list[DamageEntry]:
    return [
        DamageEntry(base, one.position, one.size, one.first_offset, one.end_offset)
        for base, damaged in parse_damage(text).items()
        for one in damaged
    ]


def _checkpoint_entries(text: str) -> list[CheckpointEntry]:
    return [
        CheckpointEntry(key.topic, key.partition, offset)
        for key, offset in parse_offsets(text).items()
    ]


def _partition_metadata(text: str) -> list[FactsEntry]:
    return [FactsEntry((("topic_id", str(parse_partition_metadata(text))),))]


def _meta_properties(text: str) -> list[FactsEntry]:
    meta = parse_meta_properties(text)
    if meta.cluster_id is None and meta.node_id is None:
        raise CorruptText("cluster.id and node.id are missing")
    directory_id = None if meta.directory_id is None else str(meta.directory_id)
    values = (meta.version, meta.cluster_id, meta.node_id, directory_id)
    return [FactsEntry((*zip(_META_PROPERTIES, values, strict=True), *meta.other))]


def _clean_shutdown(text: str) -> list[FactsEntry]:
    return [FactsEntry((("broker_epoch", parse_clean_shutdown(text)),))]

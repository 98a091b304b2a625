"""Reads the entries of a segment's index files in chunks.

Invariant: the yielded entries are in the order of their index; an entry out of order, and bytes
that are not an entry, are findings. Kafka preallocates index files with zeros; zeros are a finding
where they are not allowed.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, TypeVar

from ottla.inspection.entries import AbortedEntry, OffsetIndexEntry, TimeIndexEntry
from ottla.inspection.findings import Finding, Level
from ottla.log.disk import File
from ottla.log.segment.index import OffsetIndex, TimeIndex
from ottla.log.segment.txn_index import TransactionIndex

_ENTRIES_AT_ONCE: Final = 8192
_ABORTED_VERSION: Final = 0

E = TypeVar("E")


def offset_entries(
    file: File, base_offset: int, *, zeros_allowed: bool
) -> Iterator[OffsetIndexEntry | Finding]:
    """The entries of an `.index` file: offsets and positions increase, no position is 0."""
    last_relative, last_position = -1, 0
    for at, (relative, position) in _raw(file, OffsetIndex.ENTRY):
        if not relative and not position:
            yield from _zeros(file, at, zeros_allowed)
            return
        if relative <= last_relative or position <= last_position:
            yield _damage(
                file,
                at,
                f"entry ({relative}, {position}) after ({last_relative}, {last_position}): "
                "offsets and positions must increase",
            )
            continue
        last_relative, last_position = relative, position
        yield OffsetIndexEntry(base_offset + relative, position)
    yield from _remainder(file, OffsetIndex.ENTRY)


def time_entries(
    file: File, base_offset: int, *, zeros_allowed: bool
) -> Iterator[TimeIndexEntry | Finding]:
    """The entries of a `.timeindex` file: timestamps increase, offsets do not decrease."""
    last_timestamp, last_relative = -1, 0
    size = TimeIndex.ENTRY.size
    for at, (timestamp, relative) in _raw(file, TimeIndex.ENTRY):
        # The first entry may have timestamp 0 at the base offset.
        if not timestamp and not relative and (at or not any(file.read(size, size) or b"\1")):
            yield from _zeros(file, at, zeros_allowed)
            return
        if timestamp <= last_timestamp or relative < last_relative:
            yield _damage(
                file,
                at,
                f"entry ({timestamp}, {relative}) after ({last_timestamp}, {last_relative}): "
                "timestamps must increase, offsets must not decrease",
            )
            continue
        last_timestamp, last_relative = timestamp, relative
        yield TimeIndexEntry(timestamp, base_offset + relative)
    yield from _remainder(file, TimeIndex.ENTRY)


def aborted_entries(file: File, base_offset: int) -> Iterator[AbortedEntry | Finding]:
    """The entries of a `.txnindex` file, in the order of their markers."""
    last_end, last_stable = base_offset - 1, 0
    for at, fields in _raw(file, TransactionIndex.ENTRY):
        entry = AbortedEntry(*fields)
        first, last, stable = entry.first_offset, entry.last_offset, entry.last_stable_offset
        problem = None
        if entry.version != _ABORTED_VERSION:
            problem = f"unknown version {entry.version} of an aborted transaction"
        elif entry.producer_id < 0 or not 0 <= first <= last:
            problem = f"invalid entry: producer {entry.producer_id}, offsets {first} to {last}"
        elif last <= last_end:
            problem = f"last offset {last} after {last_end}: last offsets must increase"
        elif not last_stable <= stable <= last + 1:
            problem = (
                f"last stable offset {stable} after {last_stable}, with a marker at offset {last}"
            )
        if problem is not None:
            yield _damage(file, at, problem)
            continue
        last_end, last_stable = last, stable
        yield entry
    yield from _remainder(file, TransactionIndex.ENTRY)


def _raw(file: File, layout: Struct) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Each complete entry with its position."""
    position, size = 0, layout.size
    while piece := file.read(position, size * _ENTRIES_AT_ONCE):
        whole = len(piece) // size * size
        for fields in layout.iter_unpack(memoryview(piece)[:whole]):
            yield position, fields
            position += size
        if whole < len(piece):
            return


def _zeros(file: File, position: int, allowed: bool) -> Iterator[Finding]:
    start = position
    while piece := file.read(position, 64 * 1024):
        if any(piece):
            at = position + next(n for n, byte in enumerate(piece) if byte)
            yield _damage(file, at, f"an entry after the zeros that start at position {start}")
            return
        position += len(piece)
    if not allowed:
        yield _damage(file, start, f"{position - start} bytes of zeros after the entries")


def _remainder(file: File, layout: Struct) -> Iterator[Finding]:
    size = file.size()
    if size % layout.size:
        at = size // layout.size * layout.size
        yield _damage(file, at, f"{size} bytes: not a multiple of the entry size {layout.size}")


def _damage(file: File, position: int, problem: str) -> Finding:
    return Finding(Level.DAMAGE, file.path, problem, position)

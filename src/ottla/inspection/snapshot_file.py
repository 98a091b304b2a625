"""Reads the producers of a `.snapshot` file in chunks.

Invariant: nothing is yielded before the checksum of the whole file was verified. The earlier
batches of the producers, which follow in the file, are not yielded.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from fastcrc.crc32 import iscsi as crc32c

from ottla.inspection.entries import ProducerStateEntry
from ottla.inspection.findings import Finding, Level
from ottla.log.disk import File
from ottla.log.producer_snapshot import EARLIER_BATCH, EARLIER_COUNT

_HEAD: Final = Struct(">hIi")  # version, CRC of the rest, number of entries
_CRC_END: Final = 6
_ENTRY: Final = Struct(">qhiqiqiq")  # the fields of ProducerStateEntry, in their order
_ENTRIES_AT_ONCE: Final = 4096
_VERSION: Final = 1


def producer_entries(file: File, end_offset: int | None) -> Iterator[ProducerStateEntry | Finding]:
    """The producers of a snapshot that was taken at an offset."""
    if problem := _problem(file):
        yield Finding(Level.DAMAGE, file.path, problem)
        return
    position = _HEAD.size
    _, _, count = _HEAD.unpack(file.read(0, position))
    end = position + count * _ENTRY.size
    while piece := file.read(position, min(end - position, _ENTRY.size * _ENTRIES_AT_ONCE)):
        for fields in _ENTRY.iter_unpack(piece):
            entry = ProducerStateEntry(*fields)
            last = max(entry.last_offset, entry.transaction_first_offset)
            if end_offset is not None and last >= end_offset:
                yield Finding(
                    Level.DAMAGE,
                    file.path,
                    f"producer {entry.producer_id} has offset {last}, snapshot offset {end_offset}",
                    position,
                )
            yield entry
            position += _ENTRY.size


def _problem(file: File) -> str | None:
    size, head = file.size(), file.read(0, _HEAD.size)
    if len(head) < _HEAD.size:
        return f"{size} bytes: too short for a snapshot"
    version, crc, count = _HEAD.unpack(head)
    if version != _VERSION:
        return f"unknown version {version}, expected {_VERSION}"
    actual, position = crc32c(head[_CRC_END:]), _HEAD.size
    while piece := file.read(position, _ENTRY.size * _ENTRIES_AT_ONCE):
        actual = crc32c(piece, actual)
        position += len(piece)
    if actual != crc:
        return "wrong checksum"
    end = _HEAD.size + count * _ENTRY.size
    if count < 0 or size - end not in (0, _earlier_size(file, end)):
        return f"{count} producers do not match the file size {size}"
    return None


def _earlier_size(file: File, position: int) -> int | None:
    """The size of the earlier batches at a position; None if there are none."""
    head = file.read(position, EARLIER_COUNT.size)
    if len(head) < EARLIER_COUNT.size:
        return None
    (count,) = EARLIER_COUNT.unpack(head)
    return EARLIER_COUNT.size + count * EARLIER_BATCH.size

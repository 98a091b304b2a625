"""Reads the producers of a `.snapshot` file in chunks.

Invariant: nothing is yielded before the checksum of the whole file was verified.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from fastcrc.crc32 import iscsi as crc32c

from ottla.inspection.entries import ProducerStateEntry
from ottla.inspection.findings import Finding, Level
from ottla.log.disk import File

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
    while piece := file.read(position, _ENTRY.size * _ENTRIES_AT_ONCE):
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
    if size != _HEAD.size + count * _ENTRY.size:
        return f"{count} producers do not match the file size {size}"
    return None

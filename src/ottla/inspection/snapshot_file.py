"""The producers in a `.snapshot` file, read piece by piece.

Invariant: nothing is yielded before the checksum of the whole file was found to be right.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final

from fastcrc.crc32 import iscsi as crc32c

from ottla.inspection.entries import ProducerStateEntry
from ottla.inspection.findings import Finding, Level
from ottla.log.disk import File

_HEAD: Final = Struct(">hIi")  # version, CRC of what follows it, number of entries
_CRC_END: Final = 6
_ENTRY: Final = Struct(">qhiqiqiq")  # the fields of ProducerStateEntry, in their order
_ENTRIES_AT_ONCE: Final = 4096
_VERSION: Final = 1


def producer_entries(file: File, end_offset: int | None) -> Iterator[ProducerStateEntry | Finding]:
    """The producers of a snapshot that saw the log up to an offset."""
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
                    f"producer {entry.producer_id} wrote at {last}, the file is of {end_offset}",
                    position,
                )
            yield entry
            position += _ENTRY.size


def _problem(file: File) -> str | None:
    size, head = file.size(), file.read(0, _HEAD.size)
    if len(head) < _HEAD.size:
        return f"{size} bytes are too few for a snapshot"
    version, crc, count = _HEAD.unpack(head)
    if version != _VERSION:
        return f"version {version} is not known, only {_VERSION}"
    actual, position = crc32c(head[_CRC_END:]), _HEAD.size
    while piece := file.read(position, _ENTRY.size * _ENTRIES_AT_ONCE):
        actual = crc32c(piece, actual)
        position += len(piece)
    if actual != crc:
        return "the checksum does not match"
    if size != _HEAD.size + count * _ENTRY.size:
        return f"{count} producers are announced in {size} bytes"
    return None

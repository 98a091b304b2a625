"""The state of the producers, read from the log alone (rule D3).

Invariant: what comes out is what a leader that wrote the same batches has, up to the batches that
a snapshot does not keep. Records are not read, only headers and markers.
"""

from collections.abc import Collection, Iterator

from ottla.ids import Offset
from ottla.log.aborted import AbortedTransaction
from ottla.log.producers import CompletedTransaction, Producers
from ottla.log.reading import read_waiting
from ottla.log.segment import WALK_BYTES, Segment
from ottla.log.segments import Segments
from ottla.log.snapshots import Snapshots
from ottla.records.batch import HEADER_SIZE, Batch, BatchHeader, read_header


def replayed(
    segments: Segments,
    snapshots: Snapshots,
    end: int,
    without_aborted: Collection[Segment] = (),
) -> Producers:
    """The producers of a log that ends at an offset; waits for the device.

    Segments without an index of aborted transactions get it on the way, so the replay begins at
    a snapshot that was taken before them.
    """
    until = min([end, *(segment.base_offset for segment in without_aborted)])
    found = snapshots.latest(until)
    start, producers = found if found is not None else (Offset(0), Producers())
    for segment in segments.from_offset(start):
        first = segment.locate(start, read_waiting)
        if first is None:
            continue
        rebuilds = segment in without_aborted
        for position, header in _headers(segment, first):
            if segment.is_damaged(position):
                continue
            completed = _replay(producers, segment, position, header)
            if rebuilds and completed is not None and completed.aborted:
                note_aborted(segment, completed)
    return producers


def note_aborted(segment: Segment, completed: CompletedTransaction) -> None:
    """Put an aborted transaction into the index of the segment that has its marker."""
    segment.aborted.append(
        AbortedTransaction(
            completed.producer_id,
            completed.first_offset,
            completed.last_offset,
            completed.last_stable_offset,
        )
    )


def _replay(
    producers: Producers, segment: Segment, position: int, header: BatchHeader
) -> CompletedTransaction | None:
    if header.producer_id < 0:
        return None
    if header.is_control:
        return producers.replay(Batch(segment.file.read(position, header.size), header))
    producers.append(header, header.base_offset, header.max_timestamp)
    return None


def _headers(segment: Segment, position: int) -> Iterator[tuple[int, BatchHeader]]:
    """The headers from a position on: many in one read, or one each where batches are large."""
    chunk, chunk_at, wanted = b"", position, WALK_BYTES
    while position < segment.size:
        at = position - chunk_at
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_at, at = segment.file.read(position, wanted), position, 0
        header = read_header(chunk, at)
        yield position, header
        size = header.size
        wanted = WALK_BYTES if size < WALK_BYTES // 4 else HEADER_SIZE
        position += size

"""Rebuilds producer state and leader epochs from the batches of a log (rule D3).

Invariant: the result is the state of a leader that appended the same batches, except for the cached
batches that a producer snapshot of Kafka does not have. Only headers and markers are read, not
records.
"""

from collections.abc import Collection, Iterator

from ottla.ids import Offset
from ottla.log.cached_reads import read_blocking
from ottla.log.damage import damage_at
from ottla.log.epochs import EpochStart
from ottla.log.producer_state_manager import CompletedTransaction, ProducerStateManager
from ottla.log.segment.batch_headers import WALK_BYTES, BrokenSegment
from ottla.log.segment.segment import Segment
from ottla.log.segment.segments import Segments
from ottla.log.snapshots import Snapshots
from ottla.records.batch import HEADER_SIZE, Batch, BatchHeader, read_header
from ottla.records.errors import CorruptRecords


def replay_producers(
    segments: Segments,
    snapshots: Snapshots,
    end: int,
    without_aborted: Collection[Segment] = (),
) -> ProducerStateManager:
    """The producer state of a log that ends at an offset; waits for the device.

    The transaction indexes of `without_aborted` segments are rebuilt on the way. So the replay
    starts at a snapshot that was taken before these segments.
    """
    until = min([end, *(segment.base_offset for segment in without_aborted)])
    found = snapshots.latest(until)
    start, producers = found if found is not None else (Offset(0), ProducerStateManager())
    for segment in segments.from_offset(start):
        if segment.base_offset >= end:
            break
        if not segment.size and not segment.damaged:
            continue
        first = segment.locate(start, read_blocking)
        if first is None:
            continue
        rebuilds = segment in without_aborted
        for position, header in _headers(segment, first):
            if header.base_offset >= end:
                break  # the log is about to be truncated here
            if header.producer_id >= 0:
                replay(producers, segment, position, header, index_aborted=rebuilds)
    return producers


def find_epoch_starts(segments: Segments) -> Iterator[EpochStart]:
    """Every change of the leader epoch in a log; waits for the device."""
    known: int | None = None
    for segment in segments:
        for head in segment.located_headers(0, segment.size, read_blocking):
            if head.leader_epoch != known:
                known = head.leader_epoch
                yield EpochStart(head.leader_epoch, head.base_offset)


def replay(
    producers: ProducerStateManager,
    segment: Segment,
    position: int,
    header: BatchHeader,
    *,
    index_aborted: bool,
) -> None:
    """Apply a producer's batch to the producer state."""
    if not header.is_control:
        producers.append(header, header.base_offset, header.max_timestamp)
        return
    completed = _end_of_transaction(producers, segment, position, header)
    if index_aborted and completed is not None and completed.aborted:
        segment.index_aborted(completed)


def _end_of_transaction(
    producers: ProducerStateManager, segment: Segment, position: int, header: BatchHeader
) -> CompletedTransaction | None:
    data = segment.file.read(position, header.size)
    try:
        return producers.replay(Batch(data, header))
    except CorruptRecords as error:
        if len(data) == header.size and Batch(data, header).crc_ok:
            return None  # an unknown marker that is not damaged
        raise BrokenSegment(segment.base_offset, f"{segment.file.path}: {error}") from error


def _headers(segment: Segment, position: int) -> Iterator[tuple[int, BatchHeader]]:
    """The headers from a position on; many per read, or one per read if batches are large."""
    chunk, chunk_at, wanted = b"", position, WALK_BYTES
    expected = segment.base_offset
    while position < segment.size:
        if damage := damage_at(segment.damaged, position):
            position = damage.end
            continue
        at = position - chunk_at
        if at + HEADER_SIZE > len(chunk):
            chunk, chunk_at, at = segment.file.read(position, wanted), position, 0
        try:
            header = read_header(chunk, at)
            if header.base_offset < expected or position + header.size > segment.size:
                raise CorruptRecords(f"there is no batch at position {position}")
        except CorruptRecords as error:
            raise BrokenSegment(segment.base_offset, f"{segment.file.path}: {error}") from error
        yield position, header
        size, expected = header.size, header.next_offset
        wanted = WALK_BYTES if size < WALK_BYTES // 4 else HEADER_SIZE
        position += size

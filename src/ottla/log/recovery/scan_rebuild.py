"""Rebuilds indexes, leader epochs and producer state while a segment is scanned.

Invariant: the result equals the state after appending the same batches (rule D3). Damaged ranges
add nothing.
"""

from collections.abc import Sequence

from ottla.ids import Offset
from ottla.log.damage import Damage
from ottla.log.epochs import EpochStart
from ottla.log.producer_state_manager import ProducerStateManager
from ottla.log.recovery.replay import replay
from ottla.log.segment.segment import Segment
from ottla.records.batch import CONTROL, LENGTH_END, BatchHeader


class ScanRebuild:
    """The observer of the scan of one segment."""

    __slots__ = ("_epoch", "_interval", "_producers", "_segment", "_starts")

    def __init__(
        self,
        segment: Segment,
        index_interval_bytes: int,
        epoch_starts: list[EpochStart],
        producers: ProducerStateManager | None,
    ) -> None:
        """Without producers none are replayed: earlier segments are not complete yet."""
        self._segment = segment
        self._interval = index_interval_bytes
        self._starts = epoch_starts
        self._epoch = epoch_starts[-1].epoch if epoch_starts else None
        self._producers = producers

    def batches(self, position: int, headers: Sequence[BatchHeader]) -> None:
        """Index batches, and record their leader epochs and producers."""
        segment, producers, interval = self._segment, self._producers, self._interval
        index_batch = segment.index_batch
        for header in headers:
            base_offset, timestamp = header.base_offset, header.max_timestamp
            size = LENGTH_END + header.length
            last_offset = Offset(base_offset + header.last_offset_delta)
            index_batch(position, last_offset, size, timestamp, interval)
            if header.leader_epoch != self._epoch:
                self._epoch = header.leader_epoch
                self._starts.append(EpochStart(header.leader_epoch, base_offset))
            if header.producer_id >= 0 and producers is not None:
                if header.attributes & CONTROL:
                    replay(producers, segment, position, header, index_aborted=True)
                else:
                    producers.append(header, base_offset, timestamp)
            position += size

    def damage(self, damage: Damage) -> None:
        """Let readers find the damaged range."""
        self._segment.index_damage(damage)

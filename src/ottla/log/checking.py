"""What a log learns from its batches while they are checked, so that they are read once.

Invariant: the indexes of the segment, the epochs and the producers are those that whoever appended
the same batches has (rule D3); what is damaged adds nothing to them.
"""

from ottla.log.damage import Damage
from ottla.log.epochs import EpochStart
from ottla.log.producers import Producers
from ottla.log.replay import replay
from ottla.log.segment import Segment
from ottla.records.batch import BatchHeader


class Checking:
    """The witness of one segment's examination."""

    __slots__ = ("_epoch", "_interval", "_producers", "_segment", "_starts")

    def __init__(
        self,
        segment: Segment,
        index_interval_bytes: int,
        epoch_starts: list[EpochStart],
        producers: Producers | None,
    ) -> None:
        """Without producers none are replayed: the segments before this one are not done yet."""
        self._segment = segment
        self._interval = index_interval_bytes
        self._starts = epoch_starts
        self._epoch = epoch_starts[-1].epoch if epoch_starts else None
        self._producers = producers

    def batch(self, position: int, header: BatchHeader) -> None:
        """Index a batch, and note its epoch and its producer."""
        segment, last_offset = self._segment, header.last_offset
        segment.note(position, last_offset, header.size, header.max_timestamp, self._interval)
        if header.leader_epoch != self._epoch:
            self._epoch = header.leader_epoch
            self._starts.append(EpochStart(header.leader_epoch, header.base_offset))
        if header.producer_id >= 0 and self._producers is not None:
            replay(self._producers, segment, position, header, notes_aborted=True)

    def damage(self, damage: Damage) -> None:
        """Let readers meet it."""
        self._segment.note_damage(damage)

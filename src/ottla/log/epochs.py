"""The leader epochs of a log and their start offsets.

Invariant: epochs and start offsets both increase. Replicas compare these histories to find where
their logs diverge (rules A1 and A2, KIP-101, KIP-279). An entry is on the device before the
recovery point passes its first record: above the recovery point, recovery takes the epochs from the
batches. The first entry outlives its records.

`assign` and the truncations return whether they changed anything, so that the file must be written.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple, Self

from ottla.ids import LeaderEpoch, Offset
from ottla.log.checkpoints import number, read_checkpoint, write_checkpoint

_EPOCH_MAX: Final = 2**31 - 1
_OFFSET_MAX: Final = 2**63 - 1


class EpochStart(NamedTuple):
    """An epoch and its first offset."""

    epoch: LeaderEpoch
    start_offset: Offset


class EpochEnd(NamedTuple):
    """An epoch and the offset after its last record."""

    epoch: LeaderEpoch
    end_offset: Offset


class EpochHistory:
    """The leader epochs of one replica, in memory and as `leader-epoch-checkpoint`."""

    __slots__ = ("_epochs", "_starts")

    def __init__(self) -> None:
        self._epochs: list[LeaderEpoch] = []
        self._starts: list[Offset] = []

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the file, or raise CorruptText; conflicting entries are resolved by `assign`."""
        history = cls()
        for line, (epoch, start_offset) in read_checkpoint(text, 2):
            history.assign(
                LeaderEpoch(number(epoch, _EPOCH_MAX, "epoch", line)),
                Offset(number(start_offset, _OFFSET_MAX, "offset", line)),
            )
        return history

    def format(self) -> str:
        """The text of the file."""
        return write_checkpoint([f"{entry.epoch} {entry.start_offset}" for entry in self])

    def __iter__(self) -> Iterator[EpochStart]:
        return map(EpochStart, self._epochs, self._starts)

    @property
    def latest(self) -> EpochStart | None:
        """The last entry."""
        return EpochStart(self._epochs[-1], self._starts[-1]) if self._epochs else None

    @property
    def latest_epoch(self) -> int:
        """The epoch of the last entry; -1 if there is none."""
        return self._epochs[-1] if self._epochs else -1

    @property
    def earliest(self) -> EpochStart | None:
        """The first entry."""
        return EpochStart(self._epochs[0], self._starts[0]) if self._epochs else None

    def previous(self, epoch: int) -> LeaderEpoch | None:
        """The last epoch below an epoch."""
        at = bisect_left(self._epochs, epoch)
        return self._epochs[at - 1] if at else None

    def next(self, epoch: int) -> LeaderEpoch | None:
        """The first epoch above an epoch."""
        at = bisect_right(self._epochs, epoch)
        return self._epochs[at] if at < len(self._epochs) else None

    def epoch_of(self, offset: int) -> LeaderEpoch | None:
        """The epoch of an offset; None below the first entry."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else None

    def end_offset(self, epoch: int, log_end_offset: Offset) -> EpochEnd | None:
        """The end of the last epoch at or below the requested one (rule A2).

        It is the start of the next epoch, or the log end offset for the latest epoch. An epoch
        below all entries ends where the first one starts, because its records are gone. None for an
        epoch above all entries and for -1.
        """
        if epoch < 0 or not self._epochs or epoch > self._epochs[-1]:
            return None
        if epoch == self._epochs[-1]:
            return EpochEnd(self._epochs[-1], log_end_offset)
        above = bisect_right(self._epochs, epoch)
        known = self._epochs[above - 1] if above else LeaderEpoch(epoch)
        return EpochEnd(known, self._starts[above])

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """Add an epoch; True if the checkpoint must be written with the records of the epoch.

        Called for each batch; usually the latest epoch continues and nothing changes. Entries that
        conflict with the new one are removed: the log is right, not they.
        """
        assert epoch >= 0
        assert start_offset >= 0
        epochs, starts = self._epochs, self._starts
        if epochs and epoch == epochs[-1] and start_offset >= starts[-1]:
            return False
        kept = min(bisect_left(epochs, epoch), bisect_left(starts, start_offset))
        epochs[kept:] = [epoch]
        starts[kept:] = [start_offset]
        return True

    def truncate_from_end(self, offset: int) -> bool:
        """The log now ends at an offset: drop the epochs that start there or later."""
        assert offset >= 0
        return self._keep(0, bisect_left(self._starts, offset))

    def truncate_from_start(self, offset: Offset) -> bool:
        """The log now starts at an offset: drop earlier epochs, and clip the one it lies in."""
        first = bisect_right(self._starts, offset) - 1
        if first < 0 or (first == 0 and self._starts[0] == offset):
            return False
        self._keep(first, len(self._epochs))
        self._starts[0] = offset
        return True

    def until(self, offset: int) -> "EpochHistory":
        """The history of a log that ends at an offset."""
        history = EpochHistory()
        history._epochs, history._starts = self._epochs, self._starts
        history.truncate_from_end(offset)
        return history

    def _keep(self, start: int, end: int) -> bool:
        before = len(self._epochs)
        if end - start == before:
            return False
        self._epochs = self._epochs[start:end]
        self._starts = self._starts[start:end]
        return len(self._epochs) != before

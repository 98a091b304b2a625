"""What the batches of a log tell from one to the next: offsets, leader epochs, open transactions.

Invariant: it is what all batches up to here say, or it says that it does not know. Memory does not
grow with the log but with what is open in it, up to a bound.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ottla.inspection.entries import EpochEntry, ProducerStateEntry
from ottla.inspection.index_check import Abort
from ottla.records.batch import Batch, BatchHeader
from ottla.records.control import read_control, read_end_txn_marker

# More than a broker could bear; beyond it transactions are not followed any further.
OPEN_TRANSACTIONS_MAX: Final = 100_000


class OpenTransactions:
    """Which producers have a transaction open, and since when."""

    def __init__(self, producers: Iterable[ProducerStateEntry] | None) -> None:
        """Begin with what a snapshot says; None: what came before is not known."""
        self.exact = producers is not None
        self.followed = True
        opened = sorted(
            (producer.transaction_first_offset, producer.producer_id)
            for producer in producers or ()
            if producer.transaction_first_offset >= 0
        )
        # They begin in the order of the log, so the first one is the earliest.
        self._first_offsets = OrderedDict((producer_id, first) for first, producer_id in opened)

    def lose_track(self) -> None:
        """A batch could not be read: it may have been any producer's."""
        self.followed = False
        self._first_offsets.clear()

    def note(self, batch: Batch) -> Abort | None:
        """Note a batch; what it aborted, if it is the marker of that."""
        header = batch.header
        producer_id = header.producer_id
        if producer_id < 0 or not self.followed:
            return None
        if not header.is_control:
            if header.is_transactional:
                self._first_offsets.setdefault(producer_id, header.base_offset)
                if len(self._first_offsets) > OPEN_TRANSACTIONS_MAX:
                    self.lose_track()
            return None
        record = read_control(batch)
        marker = None if record is None else read_end_txn_marker(record)
        if marker is None:
            return None
        first = self._first_offsets.pop(producer_id, None)
        if marker.commit or (first is None and self.exact):
            return None
        stable = next(iter(self._first_offsets.values()), header.base_offset + 1)
        return Abort(
            producer_id,
            header.base_offset if first is None else first,
            header.base_offset,
            stable,
            self.exact,
        )


class EpochProblem(NamedTuple):
    """What is wrong with a leader epoch, and whether the file only lags behind the records."""

    problem: str
    may_be_new: bool


class Epochs:
    """The leader epochs of the batches beside those of the file."""

    def __init__(self, entries: Sequence[EpochEntry] = ()) -> None:
        """Take the entries of the file; without any nothing is compared with them."""
        self.uncovered_until = -1  # the last offset that was written before the first entry
        self._entries = entries
        self._at = -1
        self._latest = -1

    def problem(self, header: BatchHeader) -> EpochProblem | None:
        """Why the epoch of the next batch cannot be right; None when it can."""
        epoch = header.leader_epoch
        if epoch < self._latest or epoch < -1:
            problem = f"leader epoch {epoch} after {self._latest}: epochs may not fall"
            return EpochProblem(problem, may_be_new=False)
        if epoch < 0:
            return None  # of a log that was begun before there were epochs
        self._latest = epoch
        entries = self._entries
        while (
            self._at + 1 < len(entries) and entries[self._at + 1].start_offset <= header.base_offset
        ):
            self._at += 1
        if self._at < 0:
            self.uncovered_until = header.last_offset
            return None
        known = entries[self._at]
        if known.epoch == epoch:
            return None
        problem = f"leader epoch {epoch}, but epoch {known.epoch} began at {known.start_offset}"
        return EpochProblem(problem, may_be_new=epoch > entries[-1].epoch)

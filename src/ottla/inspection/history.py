"""What the batches of a log imply for later ones: offsets, leader epochs, open transactions.

Invariant: the state is exact for all batches so far, or it is marked as unknown. Memory grows with
the open transactions only, up to a bound.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ottla.inspection.entries import EpochEntry, ProducerStateEntry
from ottla.inspection.index_check import Abort
from ottla.records.batch import Batch, BatchHeader
from ottla.records.control import read_control, read_end_txn_marker

# More than a broker has; above it transactions are not followed any more.
OPEN_TRANSACTIONS_MAX: Final = 100_000


class OpenTransactions:
    """The open transactions by producer, with their first offsets."""

    def __init__(self, producers: Iterable[ProducerStateEntry] | None) -> None:
        """Start with the entries of a snapshot; None: earlier transactions are unknown."""
        self.exact = producers is not None
        self.followed = True
        opened = sorted(
            (producer.transaction_first_offset, producer.producer_id)
            for producer in producers or ()
            if producer.transaction_first_offset >= 0
        )
        # In log order, so the first one is the earliest.
        self._first_offsets = OrderedDict((producer_id, first) for first, producer_id in opened)

    def lose_track(self) -> None:
        """Stop following transactions: a batch could not be read."""
        self.followed = False
        self._first_offsets.clear()

    def apply(self, batch: Batch) -> Abort | None:
        """Apply a batch; return the transaction that it aborts."""
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
    """What is wrong with a leader epoch, and whether the checkpoint may just be older."""

    problem: str
    may_be_new: bool


class Epochs:
    """Compares the leader epochs of batches with the checkpoint."""

    def __init__(self, entries: Sequence[EpochEntry] = (), stored_until: int | None = None) -> None:
        """Take the entries of the checkpoint; without entries nothing is compared.

        The checkpoint has the epochs of records below `stored_until`; None: of all records. Later
        epochs are only in the batches, where recovery reads them.
        """
        self.uncovered_until = -1  # the last offset before the first entry that should have one
        self._entries = entries
        self._stored_until = stored_until
        self._at = -1
        self._latest = -1

    def problem(self, header: BatchHeader) -> EpochProblem | None:
        """Why the epoch of the next batch is wrong; None if it is right."""
        epoch = header.leader_epoch
        if epoch < self._latest or epoch < -1:
            problem = f"leader epoch {epoch} after {self._latest}: epochs must not decrease"
            return EpochProblem(problem, may_be_new=False)
        if epoch < 0:
            return None  # a log that is older than leader epochs
        self._latest = epoch
        entries = self._entries
        while (
            self._at + 1 < len(entries) and entries[self._at + 1].start_offset <= header.base_offset
        ):
            self._at += 1
        if self._at < 0:
            if self._stored_until is None or header.base_offset < self._stored_until:
                self.uncovered_until = header.last_offset
            return None
        known = entries[self._at]
        if known.epoch == epoch:
            return None
        problem = (
            f"leader epoch {epoch}, but the checkpoint has epoch {known.epoch} "
            f"from offset {known.start_offset}"
        )
        return EpochProblem(problem, may_be_new=epoch > entries[-1].epoch)

"""The aborted transactions of a segment, which read_committed consumers leave out (`.txnindex`).

Invariant: an entry is written for each abort marker in the segment, in the markers' order, so
that last offsets rise; the transaction may have begun in an earlier segment. Last stable offsets
do not fall, and no later entry's transaction begins below an entry's last stable offset.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from ottla.ids import Offset, ProducerId
from ottla.log.errors import CorruptIndex
from ottla.log.segment.index import Index

_VERSION: Final = 0
_INT64: Final = Struct(">q")
_LAST_OFFSET_AT: Final = 18


class AbortedTransaction(NamedTuple):
    """What one producer wrote between two offsets and took back."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset  # of the abort marker
    last_stable_offset: Offset  # below which all was decided once this one was


class Overlap(NamedTuple):
    """The transactions that touch a range, and whether later segments can hold no more."""

    transactions: list[AbortedTransaction]
    complete: bool


class TransactionIndex(Index):
    """The entries of one segment, 34 bytes each. Most segments have none, and no file."""

    __slots__ = ()

    ENTRY = Struct(">hqqqq")  # version, producer id, first, last and last stable offset

    def append(self, transaction: AbortedTransaction) -> None:
        """Add a transaction, when its abort marker is in the segment."""
        assert transaction.last_offset >= self.base_offset
        assert transaction.first_offset <= transaction.last_offset
        assert not self._entries or transaction.last_offset > self._entry(-1).last_offset
        self._add(self.ENTRY.pack(_VERSION, *transaction))

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return (self._entry(number) for number in range(self._entries))

    def overlapping(self, fetch_offset: int, upper_bound: int) -> Overlap:
        """The transactions with records in [fetch_offset, upper_bound).

        A transaction that touches the range may end in a later segment, so the search goes on
        there until one entry was written when all below the upper bound was decided.
        """
        found: list[AbortedTransaction] = []
        # Of those that ended before the range, the last one tells whether the search ends there.
        ended_before = self._entries_below(_INT64, _LAST_OFFSET_AT, fetch_offset)
        for number in range(max(ended_before - 1, 0), self._entries):
            transaction = self._entry(number)
            if transaction.last_offset >= fetch_offset and transaction.first_offset < upper_bound:
                found.append(transaction)
            if transaction.last_stable_offset >= upper_bound:
                return Overlap(found, complete=True)
        return Overlap(found, complete=False)

    def truncate_to(self, offset: int) -> None:
        """Remove the transactions whose marker is at or behind an offset."""
        self._cut(self._entries_below(_INT64, _LAST_OFFSET_AT, offset))

    def check(self) -> None:
        """Raise CorruptIndex unless every entry is right."""
        last_end = self.base_offset - 1
        for version, producer_id, first, last, _ in self._checked(every_entry=True):
            if version != _VERSION:
                raise CorruptIndex(f"an aborted transaction of version {version}")
            if producer_id < 0 or not 0 <= first <= last:
                raise CorruptIndex(f"producer {producer_id} aborted from {first} to {last}")
            if last <= last_end:
                raise CorruptIndex(f"an aborted transaction to {last} after {last_end}")
            last_end = last

    def _entry(self, number: int) -> AbortedTransaction:
        at = (number if number >= 0 else self._entries + number) * self.ENTRY.size
        _, producer_id, first, last, stable = self.ENTRY.unpack_from(self._data, at)
        return AbortedTransaction(
            ProducerId(producer_id), Offset(first), Offset(last), Offset(stable)
        )

"""The transaction index of a segment: its aborted transactions (`.txnindex`).

Invariant: there is one entry per abort marker in the segment, in the order of the markers, so that
last offsets increase. The transaction may have started in an earlier segment. Last stable offsets
do not decrease, and no later transaction starts below the last stable offset of an entry.
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
    """The aborted records of one producer between two offsets."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset  # of the abort marker
    last_stable_offset: Offset  # when the marker was appended


class Overlap(NamedTuple):
    """The transactions in a range, and whether later segments cannot have more of them."""

    transactions: list[AbortedTransaction]
    complete: bool


class TransactionIndex(Index):
    """The entries of one segment, 34 bytes each; most segments have none, and no file."""

    __slots__ = ()

    ENTRY = Struct(">hqqqq")  # version, producer id, first, last and last stable offset

    def append(self, transaction: AbortedTransaction) -> None:
        """Add a transaction after its abort marker was appended to the segment."""
        assert transaction.last_offset >= self.base_offset
        assert transaction.first_offset <= transaction.last_offset
        assert not self._entries or transaction.last_offset > self._entry(-1).last_offset
        self._add(self.ENTRY.pack(_VERSION, *transaction))

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return (self._entry(number) for number in range(self._entries))

    def overlapping(self, fetch_offset: int, upper_bound: int) -> Overlap:
        """The transactions with records in [fetch_offset, upper_bound).

        A transaction with records in the range may end in a later segment. The search continues
        there until an entry has a last stable offset at or above the upper bound.
        """
        found: list[AbortedTransaction] = []
        # The last transaction that ended before the range may complete the search.
        ended_before = self._entries_below(_INT64, _LAST_OFFSET_AT, fetch_offset)
        for number in range(max(ended_before - 1, 0), self._entries):
            transaction = self._entry(number)
            if transaction.last_offset >= fetch_offset and transaction.first_offset < upper_bound:
                found.append(transaction)
            if transaction.last_stable_offset >= upper_bound:
                return Overlap(found, complete=True)
        return Overlap(found, complete=False)

    def truncate_to(self, offset: int) -> None:
        """Remove the transactions whose marker is at or above an offset."""
        self._truncate(self._entries_below(_INT64, _LAST_OFFSET_AT, offset))

    def check(self) -> None:
        """Raise CorruptIndex unless every entry is valid."""
        last_end = self.base_offset - 1
        for version, producer_id, first, last, _ in self._checked(every_entry=True):
            if version != _VERSION:
                raise CorruptIndex(f"unknown version {version} of an aborted transaction")
            if producer_id < 0 or not 0 <= first <= last:
                raise CorruptIndex(f"invalid: producer {producer_id}, offsets {first} to {last}")
            if last <= last_end:
                raise CorruptIndex(f"last offset {last} is not above the previous one, {last_end}")
            last_end = last

    def _entry(self, number: int) -> AbortedTransaction:
        at = (number if number >= 0 else self._entries + number) * self.ENTRY.size
        _, producer_id, first, last, stable = self.ENTRY.unpack_from(self._data, at)
        return AbortedTransaction(
            ProducerId(producer_id), Offset(first), Offset(last), Offset(stable)
        )

"""The transactions that a cleaning comes past, each of which has been decided.

Invariant: the records of an aborted transaction go; its marker, and its entry in the index of
aborted transactions, stay as long as a batch of it was seen, be it an empty one. The marker of a
committed transaction stays as long as well. So a marker goes in a later cleaning than the last
batch before it, and no transaction looks open to who reads the log anew.

Batches are to be shown in the order of the log.
"""

from bisect import bisect_right
from collections.abc import Iterable

from ottla.log.segment.txn_index import AbortedTransaction
from ottla.records.batch import Batch, BatchHeader
from ottla.records.control import read_control, read_end_txn_marker


class CleanedTransactions:
    """Which batches were aborted, and which markers nothing needs any more."""

    __slots__ = ("_aborted", "_committed", "_first_offsets", "_observed")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        for one in sorted(aborted, key=lambda one: one.first_offset):
            self._aborted.setdefault(one.producer_id, []).append(one)
        self._first_offsets = {
            producer: [one.first_offset for one in ones] for producer, ones in self._aborted.items()
        }
        self._observed: set[int] = set()  # markers of aborted transactions with batches
        self._committed: set[int] = set()  # producers with batches since their last marker

    def is_aborted(self, header: BatchHeader) -> bool:
        """Note a batch of records; whether they were taken back."""
        if not header.is_transactional:
            return False
        found = self._around(header.producer_id, header.last_offset)
        if found is None:
            self._committed.add(header.producer_id)
            return False
        self._observed.add(found.last_offset)
        return True

    def marker(self, batch: Batch) -> tuple[bool, AbortedTransaction | None]:
        """Note a control batch; whether nothing needs it, and what the aborted index must say."""
        header = batch.header
        record = read_control(batch)
        if record is None:
            return True, None
        marker = read_end_txn_marker(record)
        if marker is None:
            return False, None
        if marker.commit:
            seen = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not seen, None
        found = self._around(header.producer_id, header.last_offset)
        if found is None or found.last_offset not in self._observed:
            return True, None
        return False, found

    def _around(self, producer_id: int, offset: int) -> AbortedTransaction | None:
        """The aborted transaction of a producer that was open at an offset, or ended there."""
        at = bisect_right(self._first_offsets.get(producer_id, []), offset) - 1
        if at < 0:
            return None
        found = self._aborted[producer_id][at]
        return found if offset <= found.last_offset else None

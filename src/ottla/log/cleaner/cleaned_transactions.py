"""The transactions that a cleaning meets; all of them are complete.

Invariant: records of an aborted transaction are removed. Its marker and its entry in the
transaction index stay while a batch of it exists, even an empty one; so does the marker of a
committed transaction. So a marker is removed by a later cleaning than the last batch before it, and
no transaction looks open to a reader.

Batches are passed in log order.
"""

from bisect import bisect_right
from collections.abc import Iterable

from ottla.log.segment.txn_index import AbortedTransaction
from ottla.records.batch import Batch, BatchHeader
from ottla.records.control import read_control, read_end_txn_marker


class CleanedTransactions:
    """Tells which batches are aborted and which markers are no longer needed."""

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
        """Record a batch; return whether its transaction was aborted."""
        if not header.is_transactional:
            return False
        found = self._around(header.producer_id, header.last_offset)
        if found is None:
            self._committed.add(header.producer_id)
            return False
        self._observed.add(found.last_offset)
        return True

    def marker(self, batch: Batch) -> tuple[bool, AbortedTransaction | None]:
        """Record a control batch; return whether it can go, and its transaction index entry."""
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

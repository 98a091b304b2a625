"""The batches of one partition in one fetch response, without those a reader must not see.

Invariant: control batches are excluded; under read_committed so are the batches of aborted
transactions. `next_offset` is after everything that was fetched, so that a reader moves past what
it does not see.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from ottla.protocol.messages.fetch import AbortedTransaction
from ottla.protocol.primitives import Buffer
from ottla.records import Batch, ControlType, complete_batches, read_control


class FetchedBatches(NamedTuple):
    """A run of batches."""

    batches: deque[Batch]
    size: int
    next_offset: int
    leader_epoch: int


def fetched_batches(
    data: Buffer, from_offset: int, aborted: Iterable[AbortedTransaction] | None
) -> FetchedBatches | None:
    """Return the batches of a fetch; None without a whole batch. Raises CorruptRecords.

    `aborted` are the aborted transactions of a read_committed fetch, otherwise None.
    """
    whole = complete_batches(data)
    if not whole:
        return None
    last = whole[-1].header
    seen = _plain(whole) if aborted is None else _committed(whole, aborted)
    # The first batch may start before the fetch offset, and may also end before it.
    wanted = deque(batch for batch in seen if batch.header.next_offset > from_offset)
    next_offset = max(from_offset, int(last.next_offset))
    return FetchedBatches(wanted, len(data), next_offset, last.leader_epoch)


def _plain(whole: Iterable[Batch]) -> Iterable[Batch]:
    return (batch for batch in whole if not batch.header.is_control)


def _committed(whole: Iterable[Batch], aborted: Iterable[AbortedTransaction]) -> Iterable[Batch]:
    """Skip the batches of aborted transactions: from the first record to the abort marker."""
    coming = deque(sorted(aborted, key=lambda one: one.first_offset))
    open_: set[int] = set()
    for batch in whole:
        header = batch.header
        while coming and coming[0].first_offset <= header.last_offset:
            open_.add(coming.popleft().producer_id)
        if header.is_control:
            marker = read_control(batch)
            if marker is not None and marker.type == ControlType.ABORT:
                open_.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_):
            yield batch

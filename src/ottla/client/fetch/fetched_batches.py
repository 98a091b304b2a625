"""What one fetch brought of one partition: batches that a reader may see.

Invariant: batches of the broker's own markers are never in a chunk; under read_committed neither
are those of transactions that were aborted, whatever stands between them. `next_offset` is behind
all that was fetched, seen or not, so that a reader moves on over what it does not see.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from ottla.protocol.messages.fetch import AbortedTransaction
from ottla.protocol.primitives import Buffer
from ottla.records import Batch, ControlType, batches, read_control


class FetchedBatches(NamedTuple):
    """A run of batches."""

    batches: deque[Batch]
    size: int
    next_offset: int
    leader_epoch: int


def fetched_batches(
    data: Buffer, from_offset: int, aborted: Iterable[AbortedTransaction] | None
) -> FetchedBatches | None:
    """The chunk of a fetch; None when no whole batch came. CorruptRecords for what is none.

    `aborted` are the transactions that a broker named under read_committed, None otherwise.
    """
    whole = [*batches(data, lenient=True)]
    if not whole:
        return None
    last = whole[-1].header
    seen = _plain(whole) if aborted is None else _committed(whole, aborted)
    # The first batch may begin before what was asked for, and may end before it as well.
    wanted = deque(batch for batch in seen if batch.header.next_offset > from_offset)
    next_offset = max(from_offset, int(last.next_offset))
    return FetchedBatches(wanted, len(data), next_offset, last.leader_epoch)


def _plain(whole: Iterable[Batch]) -> Iterable[Batch]:
    return (batch for batch in whole if not batch.header.is_control)


def _committed(whole: Iterable[Batch], aborted: Iterable[AbortedTransaction]) -> Iterable[Batch]:
    """Leave out what belongs to aborted transactions: from its first record to its marker."""
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

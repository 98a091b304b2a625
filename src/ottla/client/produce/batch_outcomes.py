"""Verdicts: what a producer does with a batch that a broker did not take.

Invariant: a batch is numbered anew only when the broker surely does not have it, and split only
when it is refused for its size; so nothing is written twice, and nothing that could be written is
given up.
"""

from enum import Enum, auto
from typing import Final

from ottla.client.produce.pending_batch import PendingBatch
from ottla.errors import ErrorCode


class BatchOutcome(Enum):
    """What to do with a batch."""

    HAD_ALREADY = auto()  # it is there, and the broker does not remember where
    AGAIN = auto()
    AGAIN_ANEW = auto()  # under another number: there is a gap before it
    SPLIT = auto()
    NEVER = auto()


_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_MISSED: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


def batch_outcome(
    code: ErrorCode, batch: PendingBatch, *, is_first: bool, transactional: bool
) -> BatchOutcome:
    """Judge a batch that was refused; `is_first` when none of its partition is before it."""
    numbered = batch.sequence >= 0
    if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        return BatchOutcome.HAD_ALREADY
    if code in _TOO_LARGE and batch.builder.count > 1 and not (numbered and batch.is_unsure):
        # One that may be there already cannot be known again by its parts.
        return BatchOutcome.SPLIT
    if code in _MISSED and numbered:
        # Behind one that is sent again it is only too early; the first itself is not missed by
        # any, so that the broker's sequence has a gap, or has been forgotten.
        if not is_first:
            return BatchOutcome.AGAIN
        # A transaction keeps its numbers: it has to be done again as a whole.
        return BatchOutcome.NEVER if transactional else BatchOutcome.AGAIN_ANEW
    return BatchOutcome.AGAIN if code.retriable else BatchOutcome.NEVER

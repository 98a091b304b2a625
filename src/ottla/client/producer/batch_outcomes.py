"""What a producer does with a batch that a broker refused.

Invariant: a batch gets new sequence numbers only if the broker certainly does not have it, and is
split only if it is refused for its size. Nothing is written twice, and nothing that could be
written is given up.
"""

from enum import Enum, auto
from typing import Final

from ottla.client.producer.producer_batch import ProducerBatch
from ottla.errors import ErrorCode, RequestError
from ottla.protocol.messages.produce import PartitionProduceResponse
from ottla.records.errors import InvalidRecords, described_errors


class BatchOutcome(Enum):
    """What to do with a refused batch."""

    HAD_ALREADY = auto()  # a duplicate whose offset the broker does not remember
    AGAIN = auto()
    AGAIN_ANEW = auto()  # with new sequence numbers: there is a gap before it
    SPLIT = auto()
    NEVER = auto()


_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_MISSED: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


def batch_outcome(
    code: ErrorCode, batch: ProducerBatch, *, is_first: bool, transactional: bool
) -> BatchOutcome:
    """Return what to do with a batch; `is_first` if it is its partition's first unsettled one."""
    numbered = batch.sequence >= 0
    if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
        return BatchOutcome.HAD_ALREADY
    if code in _TOO_LARGE and batch.builder.count > 1 and not (numbered and batch.is_unsure):
        # The parts of a batch that may have been appended could not be recognised as duplicates.
        return BatchOutcome.SPLIT
    if code in _MISSED and numbered:
        # After a batch that is being retried this one is only early. For the first batch itself,
        # the broker's sequence has a gap or was forgotten.
        if not is_first:
            return BatchOutcome.AGAIN
        # A transaction keeps its sequence numbers: it has to be repeated as a whole.
        return BatchOutcome.NEVER if transactional else BatchOutcome.AGAIN_ANEW
    return BatchOutcome.AGAIN if code.retriable else BatchOutcome.NEVER


def may_have_appended(code: ErrorCode, response: PartitionProduceResponse | None) -> bool:
    """Whether the leader may have appended a batch although it responds with an error.

    An error after the append comes with the offset, for example when the ISR has shrunk. A failed
    flush comes without one.
    """
    if response is None or code is ErrorCode.KAFKA_STORAGE_ERROR:
        return True
    return response.base_offset >= 0


def broker_error(
    code: ErrorCode, batch: ProducerBatch, response: PartitionProduceResponse | None
) -> RequestError:
    """Return the error of a refused batch, with the reasons that the broker gave."""
    if response is None:
        return RequestError(code)
    reason = response.error_message
    if response.record_errors:
        errors = [
            (one.batch_index, one.batch_index_error_message or reason or code.text)
            for one in response.record_errors
        ]
        return InvalidRecords(code, f"{batch.partition}: {described_errors(errors)}", errors)
    return RequestError(code, reason and f"{batch.partition}: {reason}")

"""Decisions about a batch that was refused."""

from cases import each_case
from ottla.client.producer.batch_outcomes import BatchOutcome, batch_outcome
from ottla.client.producer.producer_batch import ProducerBatch
from ottla.errors import ErrorCode
from ottla.ids import PartitionIndex, TopicPartition
from ottla.records import BatchBuilder

FIRST, BEHIND = True, False


def batch(records: int, *, sequence: int = 0, unsure: bool = False) -> ProducerBatch:
    builder = BatchBuilder(10_000)
    for _ in range(records):
        builder.append(0, None, None)
    made = ProducerBatch(TopicPartition("t", PartitionIndex(0)), (0,), builder, 0, 0.0)
    made.sequence, made.is_unsure = sequence, unsure
    return made


@each_case(
    ("code", "refused", "is_first", "is_transactional", "expected"),
    [
        (ErrorCode.MESSAGE_TOO_LARGE, batch(2), FIRST, False, BatchOutcome.SPLIT),
        (ErrorCode.MESSAGE_TOO_LARGE, batch(2), BEHIND, True, BatchOutcome.SPLIT),
        (ErrorCode.RECORD_LIST_TOO_LARGE, batch(2), FIRST, False, BatchOutcome.SPLIT),
        (ErrorCode.MESSAGE_TOO_LARGE, batch(1), FIRST, False, BatchOutcome.NEVER),
        # The batch may have been written, and then its parts would be duplicates.
        (ErrorCode.MESSAGE_TOO_LARGE, batch(2, unsure=True), FIRST, False, BatchOutcome.NEVER),
        (ErrorCode.MESSAGE_TOO_LARGE, batch(2, sequence=-1), FIRST, False, BatchOutcome.SPLIT),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, batch(2), BEHIND, False, BatchOutcome.AGAIN),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, batch(2), FIRST, False, BatchOutcome.AGAIN_ANEW),
        (ErrorCode.UNKNOWN_PRODUCER_ID, batch(2), FIRST, False, BatchOutcome.AGAIN_ANEW),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, batch(2), BEHIND, True, BatchOutcome.AGAIN),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, batch(2), FIRST, True, BatchOutcome.NEVER),
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, batch(2), FIRST, False, BatchOutcome.HAD_ALREADY),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, batch(2), FIRST, False, BatchOutcome.AGAIN),
        (ErrorCode.CORRUPT_MESSAGE, batch(2), FIRST, False, BatchOutcome.AGAIN),
        (ErrorCode.INVALID_RECORD, batch(2), FIRST, False, BatchOutcome.NEVER),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, batch(2), FIRST, False, BatchOutcome.NEVER),
    ],
)  # fmt: skip
def test_refused_batch_has_one_outcome(
    code: ErrorCode,
    refused: ProducerBatch,
    is_first: bool,
    is_transactional: bool,
    expected: BatchOutcome,
) -> None:
    assert (
        batch_outcome(code, refused, is_first=is_first, transactional=is_transactional) is expected
    )

"""Handles offset commits.

Invariant: an offset is committed and acknowledged when it is in the log (rule F7). An offset that
may not be committed (rules F2 and E9) is never appended.
"""

from ottla.errors import ErrorCode
from ottla.groups.classic import committed
from ottla.groups.effects import OffsetsStored
from ottla.groups.events import DEFAULT_RETENTION_MS, Commit
from ottla.groups.ledger import Ledger
from ottla.groups.offsets import CommittedOffset, metadata_fits
from ottla.groups.records import offset_record
from ottla.groups.request_checks import refusal
from ottla.groups.responses import PartitionErrors
from ottla.groups.step_context import StepContext
from ottla.ids import NO_PRODUCER_ID, TOPIC_NAME_LENGTH_MAX, Offset, TopicPartition


def commit(ledger: Ledger, event: Commit, context: StepContext) -> None:
    """Append offsets, or refuse them."""
    if problem := _problem(ledger, event):
        context.respond(event.token, refusal(event, problem))
        return
    group = ledger.groups.get(event.group_id)
    if group is not None and event.transaction is None:
        committed(group, event.member_id, context)
    fitting, answer = _sorted_out(event, context)
    if not fitting:
        context.respond(event.token, answer)
        return
    ledger.offsets.send(event.group_id, (partition for partition, _ in fitting))
    records = tuple(
        offset_record(event.group_id, partition, offset) for partition, offset in fitting
    )
    then = OffsetsStored(event.group_id, event.token, fitting, event.transaction, answer)
    context.append(records, then, transaction=event.transaction)


def _problem(ledger: Ledger, event: Commit) -> ErrorCode:
    group = ledger.groups.get(event.group_id)
    if group is not None:
        return group.commit_problem(
            event.member_id,
            event.instance_id,
            event.generation,
            transactional=event.transaction is not None,
        )
    if event.generation < 0:
        return ErrorCode.NONE  # a consumer with manual assignment creates a simple group
    if event.transaction is None and event.knows_group_id_not_found:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.ILLEGAL_GENERATION


def _sorted_out(
    event: Commit, context: StepContext
) -> tuple[tuple[tuple[TopicPartition, CommittedOffset], ...], PartitionErrors]:
    """Return what can be committed, and the result."""
    retention_ms = None if event.retention_ms == DEFAULT_RETENTION_MS else event.retention_ms
    fitting: list[tuple[TopicPartition, CommittedOffset]] = []
    errors: list[tuple[TopicPartition, ErrorCode]] = []
    for asked in event.offsets:
        if len(asked.partition.topic) > TOPIC_NAME_LENGTH_MAX:
            errors.append((asked.partition, ErrorCode.INVALID_TOPIC_EXCEPTION))
        elif metadata_fits(asked.metadata, context.rules.offset_metadata_length_max):
            offset = CommittedOffset.of_request(asked, context.now_ms, retention_ms)
            fitting.append((asked.partition, offset))
            errors.append((asked.partition, ErrorCode.NONE))
        else:
            errors.append((asked.partition, ErrorCode.OFFSET_METADATA_TOO_LARGE))
    return tuple(fitting), PartitionErrors(partitions=tuple(errors))


def offsets_stored(
    ledger: Ledger, then: OffsetsStored, base_offset: Offset, context: StepContext
) -> None:
    """Continue after the append: the offsets count, or wait for their transaction."""
    ledger.offsets.settle(then.group_id, (partition for partition, _ in then.offsets))
    producer_id = then.transaction.producer_id if then.transaction else NO_PRODUCER_ID
    for record_offset, (partition, offset) in enumerate(then.offsets, base_offset):
        offset = offset._replace(record_offset=Offset(record_offset))
        ledger.commit(then.group_id, partition, offset, producer_id)
    context.respond(then.token, then.answer)


def offsets_not_stored(
    ledger: Ledger, then: OffsetsStored, error: ErrorCode, context: StepContext
) -> None:
    """Continue after a failed append: nothing is committed."""
    ledger.offsets.settle(then.group_id, (partition for partition, _ in then.offsets))
    ledger.sweep(then.group_id)
    context.respond(then.token, not_stored_answer(then, error))


def not_stored_answer(then: OffsetsStored, error: ErrorCode) -> PartitionErrors:
    """Return the result for the client: nothing was committed."""
    partitions = tuple((partition, error) for partition, _ in then.answer.partitions)
    return PartitionErrors(partitions=partitions)

"""Deletes groups and offsets: on request, or with their topic.

Invariant: a deletion writes tombstones for everything that the log may hold, and a later commit
survives them.
"""

from ottla.errors import ErrorCode
from ottla.groups.classic import cancel_timers
from ottla.groups.effects import OffsetsDeleted
from ottla.groups.events import DeleteGroups, DeleteOffsets
from ottla.groups.group import ClassicGroup
from ottla.groups.ledger import Ledger
from ottla.groups.records import group_tombstone, offset_tombstone
from ottla.groups.responses import GroupErrors, PartitionErrors
from ottla.groups.step_context import StepContext
from ottla.ids import Offset, TopicPartition


def delete_groups(ledger: Ledger, event: DeleteGroups, context: StepContext) -> None:
    """Delete groups without members, with all their offsets."""
    errors: list[tuple[str, ErrorCode]] = []
    offsets: list[tuple[str, TopicPartition]] = []
    buried: list[ClassicGroup] = []
    for group_id in event.group_ids:
        group = ledger.groups.get(group_id)
        if group is None:
            errors.append((group_id, ErrorCode.GROUP_ID_NOT_FOUND))
        elif not group.is_empty:
            errors.append((group_id, ErrorCode.NON_EMPTY_GROUP))
        else:
            errors.append((group_id, ErrorCode.NONE))
            offsets += [(group_id, known) for known in ledger.offsets.known_partitions(group_id)]
            buried.append(remove_group(ledger, group, context))
    answer = GroupErrors(tuple(errors))
    if buried:
        append_tombstones(
            OffsetsDeleted(tuple(offsets), tuple(buried), event.token, answer), context
        )
    else:
        context.respond(event.token, answer)


def delete_offsets(ledger: Ledger, event: DeleteOffsets, context: StepContext) -> None:
    """Delete offsets of a group, except of topics that its members read."""
    group = ledger.groups.get(event.group_id)
    problem = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.offset_delete_problem
    if group is None or problem:
        context.respond(event.token, PartitionErrors(problem))
        return
    known = set(ledger.offsets.known_partitions(event.group_id))
    errors: list[tuple[TopicPartition, ErrorCode]] = []
    going: list[tuple[str, TopicPartition]] = []
    for partition in event.partitions:
        if group.is_subscribed(partition.topic):
            errors.append((partition, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC))
            continue
        errors.append((partition, ErrorCode.NONE))
        if partition in known:
            going.append((event.group_id, partition))
    answer = PartitionErrors(partitions=tuple(errors))
    if going:
        append_tombstones(OffsetsDeleted(tuple(going), token=event.token, answer=answer), context)
    else:
        context.respond(event.token, answer)


def forget_partitions(
    ledger: Ledger, partitions: frozenset[TopicPartition], context: StepContext
) -> None:
    """Delete the offsets of deleted partitions."""
    going = ledger.offsets.committed_for(partitions)
    if going:
        append_tombstones(OffsetsDeleted(tuple(going)), context)


def remove_group(ledger: Ledger, group: ClassicGroup, context: StepContext) -> ClassicGroup:
    """Remove a group at once: a later join creates a new one after the tombstone."""
    cancel_timers(group, context)
    group.roster.pending.clear()
    return ledger.groups.pop(group.group_id)


def append_tombstones(then: OffsetsDeleted, context: StepContext) -> None:
    """Write the tombstones of deleted offsets and groups."""
    records = (
        *(offset_tombstone(group_id, partition) for group_id, partition in then.offsets),
        *(group_tombstone(group.group_id) for group in then.groups),
    )
    context.append(records, then, atomic=False)


def offsets_deleted(
    ledger: Ledger, then: OffsetsDeleted, base_offset: Offset, context: StepContext
) -> None:
    """Continue after the tombstones were appended."""
    for group_id, partition in then.offsets:
        ledger.delete(group_id, partition, base_offset)
    if then.token is not None and then.answer is not None:
        context.respond(then.token, then.answer)


def offsets_not_deleted(
    ledger: Ledger, then: OffsetsDeleted, error: ErrorCode, context: StepContext
) -> None:
    """Continue after the append failed: nothing is deleted."""
    for group in then.groups:
        successor = ledger.groups.get(group.group_id)
        if successor is None or successor.is_trace:
            ledger.groups[group.group_id] = group
    if then.token is not None:
        context.respond(then.token, not_deleted_answer(then, error))


def not_deleted_answer(then: OffsetsDeleted, error: ErrorCode) -> PartitionErrors | GroupErrors:
    """Return the result for the client."""
    if isinstance(then.answer, GroupErrors):
        return GroupErrors(tuple((group_id, error) for group_id, _ in then.answer.groups))
    return PartitionErrors(error)

"""Expires committed offsets, and groups that have nothing left.

Invariant: nothing expires while a commit for it is pending (rule F7).
"""

from ottla.groups.deletion import append_tombstones, remove_group
from ottla.groups.effects import OffsetsDeleted
from ottla.groups.group import ClassicGroup
from ottla.groups.ledger import Ledger
from ottla.groups.step_context import StepContext
from ottla.ids import TopicPartition


def expire_offsets(ledger: Ledger, context: StepContext) -> None:
    """Delete expired offsets, and groups that have nothing left."""
    for group in list(ledger.groups.values()):
        going = _expired(ledger, group, context)
        buried: list[ClassicGroup] = []
        left = len(ledger.offsets.of(group.group_id)) - len(going)
        pending = ledger.offsets.is_pending(group.group_id) or group.roster.pending
        if group.is_empty and not left and not pending:
            buried.append(remove_group(ledger, group, context))
        if going or buried:
            offsets = tuple((group.group_id, partition) for partition in going)
            append_tombstones(OffsetsDeleted(offsets, tuple(buried), expired=True), context)


def _expired(ledger: Ledger, group: ClassicGroup, context: StepContext) -> list[TopicPartition]:
    if not group.offsets_may_expire:
        return []
    retention_ms = context.rules.offsets_retention_ms
    return [
        partition
        for partition, committed in ledger.offsets.of(group.group_id).items()
        if not group.is_subscribed(partition.topic)
        and committed.expired(
            group.idle_since_ms(committed.committed_ms), context.now_ms, retention_ms
        )
        and not ledger.offsets.is_unstable(group.group_id, partition)
    ]

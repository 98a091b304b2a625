"""The coordinator of the groups in one partition of __consumer_offsets.

Invariant: it has state only as leader of the partition in one leader epoch, and all of it comes
from the partition's log (rule F1). A newer epoch drops everything and loads again; nothing that an
older epoch started has an effect.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Final

from ottla.errors import ErrorCode
from ottla.groups.classic import (
    loaded,
    not_stored,
    step,
    stored,
    timer_fired,
    unload,
)
from ottla.groups.config import GroupConfig
from ottla.groups.deletion import (
    delete_groups,
    delete_offsets,
    forget_partitions,
    not_deleted_answer,
    offsets_deleted,
    offsets_not_deleted,
)
from ottla.groups.effects import Effect, EmptyGenerationStored, OffsetsDeleted, OffsetsStored, Then
from ottla.groups.events import (
    UNKNOWN_MEMBER,
    Appended,
    AppendFailed,
    Commit,
    DeleteGroups,
    DeleteOffsets,
    Event,
    Heartbeat,
    Join,
    Leave,
    PartitionsDeleted,
    Request,
    RequestDropped,
    Sync,
    TimerFired,
    TransactionEnded,
)
from ottla.groups.ledger import Ledger
from ottla.groups.member_expiration import request_dropped
from ottla.groups.offset_commit import (
    commit,
    not_stored_answer,
    offsets_not_stored,
    offsets_stored,
)
from ottla.groups.offset_expiration import expire_offsets
from ottla.groups.queries import describe, list_groups
from ottla.groups.request_checks import append_error_for_clients, problem_of, refusal
from ottla.groups.responses import FetchResult, GroupDescription, GroupList
from ottla.groups.step_context import StepContext, Timers
from ottla.groups.types import Timer, TimerKind
from ottla.ids import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    ProducerId,
    TopicPartition,
    Uuid,
)
from ottla.protocol.primitives import Buffer

_EXPIRY: Final = Timer(TimerKind.EXPIRY)


def partition_for(group_id: str, partition_count: int) -> PartitionIndex:
    """Return the partition of __consumer_offsets for a group: Java's hash of the id."""
    units = memoryview(group_id.encode("utf-16-be", "surrogatepass"))
    hashed = 0
    for i in range(0, len(units), 2):
        hashed = (31 * hashed + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    if hashed == 0x80000000:
        hashed = 0  # the 32-bit number without an absolute value; Kafka uses 0
    elif hashed > 0x7FFFFFFF:
        hashed = 0x100000000 - hashed
    return PartitionIndex(hashed % partition_count)


class Phase(Enum):
    """Whether a coordinator serves requests, and its error if not."""

    RESIGNED = ErrorCode.NOT_COORDINATOR
    LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    ACTIVE = ErrorCode.NONE


class Coordinator:
    """Takes events and returns effects; its owner carries them out."""

    __slots__ = ("_gone", "_ledger", "_timers", "leader_epoch", "phase", "rules")

    def __init__(self, rules: GroupConfig) -> None:
        self.rules = rules
        self.phase = Phase.RESIGNED
        self.leader_epoch = NO_LEADER_EPOCH
        self._ledger = Ledger()
        self._timers = Timers()
        self._gone: set[TopicPartition] = set()  # partitions deleted while the log is being loaded

    @property
    def ledger(self) -> Ledger:
        """The groups and their offsets, read-only."""
        return self._ledger

    @property
    def timers(self) -> frozenset[Timer]:
        """The active timers."""
        return self._timers.live()

    def _context(self, now_ms: int) -> StepContext:
        return StepContext(now_ms, self.rules, self._timers, self.leader_epoch)

    # Leadership (rule F1).

    def lead(self, leader_epoch: LeaderEpoch, now_ms: int) -> list[Effect]:
        """Become leader in this epoch: drop all state and wait for the load."""
        if leader_epoch <= self.leader_epoch:
            return []
        effects = self._unload(now_ms)
        self.leader_epoch = leader_epoch
        self.phase = Phase.LOADING
        return effects

    def resign(self, leader_epoch: LeaderEpoch | None, now_ms: int) -> list[Effect]:
        """Resign in favour of another broker's epoch; None: the partition was deleted."""
        if leader_epoch is not None:
            if leader_epoch <= self.leader_epoch:
                return []
            self.leader_epoch = leader_epoch
        return self._unload(now_ms)

    def _unload(self, now_ms: int) -> list[Effect]:
        context = self._context(now_ms)
        for group in self._ledger.groups.values():
            unload(group, context)
        context.cancel_timer(_EXPIRY)
        self._ledger = Ledger()
        self._gone.clear()
        self.phase = Phase.RESIGNED
        return context.effects

    def replay(
        self,
        leader_epoch: LeaderEpoch,
        record_offset: Offset,
        key: Buffer | None,
        value: Buffer | None,
        producer_id: ProducerId = NO_PRODUCER_ID,
    ) -> bool:
        """Apply a record of the log; False if another epoch is loading by now."""
        if not self._loads(leader_epoch):
            return False
        self._ledger.replay(record_offset, key, value, producer_id)
        return True

    def replay_marker(
        self, leader_epoch: LeaderEpoch, producer_id: ProducerId, *, committed: bool
    ) -> bool:
        """Apply a transaction marker; False if another epoch is loading by now."""
        if not self._loads(leader_epoch):
            return False
        self._ledger.end_transaction(producer_id, committed=committed)
        return True

    def finish_loading(self, leader_epoch: LeaderEpoch, now_ms: int) -> list[Effect]:
        """Finish the load and serve requests."""
        if not self._loads(leader_epoch):
            return []
        self.phase = Phase.ACTIVE
        context = self._context(now_ms)
        for group in self._ledger.groups.values():
            loaded(group, context)
        if self._gone:
            forget_partitions(self._ledger, frozenset(self._gone), context)
            self._gone.clear()
        self._set_expiry(context)
        return context.effects

    def _loads(self, leader_epoch: LeaderEpoch) -> bool:
        return self.phase is Phase.LOADING and leader_epoch == self.leader_epoch

    # Events.

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Apply an event and return its effects."""
        context = self._context(now_ms)
        match event:
            case Appended() | AppendFailed():
                self._outcome(event, context)
            case TimerFired():
                self._timer_fired(event, context)
            case PartitionsDeleted() | TransactionEnded():
                self._news(event, context)
            case RequestDropped():
                if (group := self._ledger.groups.get(event.group_id)) is not None:
                    request_dropped(group, event.token, context)
                    self._ledger.sweep(event.group_id)
            case _:
                self._request(event, context)
        return context.effects

    def _request(self, event: Request, context: StepContext) -> None:
        error = problem_of(event, self.rules) or self.phase.value
        if error:
            context.respond(event.token, refusal(event, error))
            return
        match event:
            case Join() | Sync() | Heartbeat() | Leave():
                self._member_request(event, context)
            case Commit():
                commit(self._ledger, event, context)
            case DeleteGroups():
                delete_groups(self._ledger, event, context)
            case DeleteOffsets():
                delete_offsets(self._ledger, event, context)

    def _member_request(self, event: Join | Sync | Heartbeat | Leave, context: StepContext) -> None:
        group = self._ledger.groups.get(event.group_id)
        if group is None and isinstance(event, Join) and event.member_id == UNKNOWN_MEMBER:
            group = self._ledger.group(event.group_id)
        if group is None:
            context.respond(event.token, refusal(event, ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            step(group, event, context)
            self._ledger.sweep(event.group_id)

    def _news(self, event: PartitionsDeleted | TransactionEnded, context: StepContext) -> None:
        if isinstance(event, PartitionsDeleted):
            if self.phase is Phase.LOADING:
                self._gone |= event.partitions
            else:
                forget_partitions(self._ledger, event.partitions, context)
        elif self.phase is Phase.ACTIVE:  # markers written during the load are in the log
            self._ledger.end_transaction(event.producer_id, committed=event.committed)

    def _timer_fired(self, event: TimerFired, context: StepContext) -> None:
        if not self._timers.take(event):
            return
        if event.timer == _EXPIRY:
            expire_offsets(self._ledger, context)
            self._set_expiry(context)
        else:
            timer_fired(self._ledger.groups[event.timer.group_id], event.timer, context)
            self._ledger.sweep(event.timer.group_id)

    def _set_expiry(self, context: StepContext) -> None:
        context.set_timer(_EXPIRY, self.rules.offsets_retention_check_interval_ms)

    # Append results.

    def _outcome(self, event: Appended | AppendFailed, context: StepContext) -> None:
        then = event.append.then
        current = event.append.leader_epoch == self.leader_epoch and self.phase is Phase.ACTIVE
        error = append_error_for_clients(event.error) if isinstance(event, AppendFailed) else None
        if not current:
            self._answer_late(then, error, context)
        elif isinstance(event, Appended):
            self._appended(then, event.base_offset, context)
        else:
            assert error is not None
            self._failed(then, error, context)

    def _answer_late(self, then: Then, error: ErrorCode | None, context: StepContext) -> None:
        """Answer a client whose state is gone."""
        if isinstance(then, OffsetsStored):
            answer = then.answer if error is None else not_stored_answer(then, error)
            context.respond(then.token, answer)
        elif isinstance(then, OffsetsDeleted) and then.token is not None:
            assert then.answer is not None
            answer = then.answer if error is None else not_deleted_answer(then, error)
            context.respond(then.token, answer)

    def _appended(self, then: Then, base_offset: Offset, context: StepContext) -> None:
        match then:
            case OffsetsStored():
                offsets_stored(self._ledger, then, base_offset, context)
            case OffsetsDeleted():
                offsets_deleted(self._ledger, then, base_offset, context)
            case EmptyGenerationStored():
                pass
            case _:
                if (group := self._ledger.groups.get(then.group_id)) is not None:
                    stored(group, then, context)

    def _failed(self, then: Then, error: ErrorCode, context: StepContext) -> None:
        match then:
            case OffsetsStored():
                offsets_not_stored(self._ledger, then, error, context)
            case OffsetsDeleted():
                offsets_not_deleted(self._ledger, then, error, context)
            case EmptyGenerationStored():
                pass
            case _:
                if (group := self._ledger.groups.get(then.group_id)) is not None:
                    not_stored(group, then, error, context)

    # Queries.

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition] | None,
        *,
        require_stable: bool = False,
        topic_ids: Mapping[str, Uuid] = MappingProxyType({}),
    ) -> FetchResult:
        """Return the committed offsets of a group for some or all partitions (OffsetFetch)."""
        if self.phase is not Phase.ACTIVE:
            return FetchResult(self.phase.value, {})
        offsets = self._ledger.offsets.fetch(
            group_id, partitions, require_stable=require_stable, topic_ids=topic_ids
        )
        return FetchResult(ErrorCode.NONE, offsets)

    def describe(self, group_id: str) -> GroupDescription:
        """Return a group and its members (DescribeGroups)."""
        if self.phase is not Phase.ACTIVE:
            return GroupDescription(group_id, self.phase.value)
        return describe(self._ledger, group_id)

    def list_groups(self, states: Collection[str] = (), types: Collection[str] = ()) -> GroupList:
        """Return the groups that match the filters (ListGroups); none if not leading."""
        if self.phase is Phase.LOADING:
            return GroupList(self.phase.value, ())
        return GroupList(ErrorCode.NONE, list_groups(self._ledger, states, types))

"""A coordinator with a minimal log, timers and clients.

Every effect is checked when it is carried out: a token gets one response, a timer is set once, and
appends reach the log in order. Appends wait until the test commits them or lets them fail.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from types import MappingProxyType
from typing import Any, TypeVar

from msgspec.structs import replace

from ottla.errors import ErrorCode
from ottla.groups.config import GroupConfig
from ottla.groups.coordinator import Coordinator
from ottla.groups.effects import Append, CancelTimer, Effect, Respond, SetTimer, TopicRecord
from ottla.groups.events import (
    Appended,
    AppendFailed,
    Commit,
    DeleteGroups,
    DeleteOffsets,
    Event,
    Heartbeat,
    Join,
    Leave,
    Leaver,
    Sync,
    TimerFired,
)
from ottla.groups.group import ClassicGroup
from ottla.groups.responses import (
    FetchedOffset,
    GroupErrors,
    HeartbeatResult,
    JoinResult,
    LeaveResult,
    PartitionErrors,
    Response,
    SyncResult,
)
from ottla.groups.types import OffsetToCommit, Protocol, RequestToken, Timer, Transaction
from ottla.ids import (
    NO_PRODUCER_ID,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
)
from ottla.protocol.consumer_protocol import ConsumerProtocolSubscription, encode_embedded

A = TypeVar("A", bound=Response)

GROUP = "billing"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000


def subscription(*topics: str) -> bytes:
    return encode_embedded(ConsumerProtocolSubscription(topics=topics), 1)


RANGE = Protocol("range", subscription("orders"))
ROUND_ROBIN = Protocol("roundrobin", subscription("orders"))


def partition(topic: str, index: int = 0) -> TopicPartition:
    return TopicPartition(topic, PartitionIndex(index))


ORDERS = partition("orders")


@dataclass(frozen=True)
class Entry:
    """A record in the log, or a transaction marker."""

    record: TopicRecord | None
    producer_id: ProducerId = NO_PRODUCER_ID
    committed: bool = False


class Harness:
    """The coordinator of one partition, with its log and its clients."""

    def __init__(self, rules: GroupConfig | None = None, *, auto: bool = True) -> None:
        self.rules = rules or GroupConfig()
        self.auto = auto  # commit appends at once
        self.now_ms = 1_000_000
        self.log: list[Entry] = []
        self.appends: list[Append] = []
        self.timers: dict[Timer, SetTimer] = {}
        self.due: list[tuple[int, int, SetTimer]] = []  # includes stale timers
        self.order = count()
        self.answers: dict[RequestToken, Response] = {}
        self.tokens = count(1)
        self.names = count(1)
        self.told: list[Effect] = []
        self.epoch = LeaderEpoch(0)
        self.coordinator = Coordinator(self.rules)
        self.begin()

    # Control.

    def begin(self) -> None:
        """Lead in a new epoch and replay the log."""
        self.epoch = LeaderEpoch(self.epoch + 1)
        self.carry_out(self.coordinator.lead(self.epoch, self.now_ms))
        self.load()

    def load(self) -> None:
        for offset, entry in enumerate(self.log):
            if entry.record is None:
                read = self.coordinator.replay_marker(
                    self.epoch, entry.producer_id, committed=entry.committed
                )
            else:
                read = self.coordinator.replay(
                    self.epoch, Offset(offset), *entry.record, entry.producer_id
                )
            assert read
        self.carry_out(self.coordinator.finish_loading(self.epoch, self.now_ms))

    def crash(self) -> None:
        """Crash the broker: its state and the appends that are not in the log are lost."""
        self.appends.clear()
        self.timers.clear()
        self.coordinator = Coordinator(self.rules)
        self.begin()

    def do(self, event: Event) -> None:
        self.carry_out(self.coordinator.step(event, self.now_ms))
        while self.auto and self.appends:
            self.commit_append()

    def carry_out(self, effects: Sequence[Effect]) -> None:
        self.told.extend(effects)
        for effect in effects:
            match effect:
                case Respond(token, answer):
                    assert token not in self.answers, "answered twice"
                    self.answers[token] = answer
                case SetTimer(timer):
                    self.timers[timer] = effect
                    heappush(self.due, (effect.at_ms, next(self.order), effect))
                case CancelTimer(timer):
                    del self.timers[timer]
                case Append():
                    self.appends.append(effect)
        # With thousands of timers, a comparison at each step would take most of the time.
        if len(self.timers) < 100 or not len(self.told) % 1_000:
            assert self.coordinator.timers == self.timers.keys()

    def write(self, append: Append) -> Offset:
        """Write the records of an append to the log."""
        base = Offset(len(self.log))
        producer_id = append.transaction.producer_id if append.transaction else NO_PRODUCER_ID
        self.log.extend(Entry(record, producer_id) for record in append.records)
        return base

    def commit_append(self) -> None:
        append = self.appends.pop(0)
        self.do(Appended(append, self.write(append)))

    def fail_append(self, error: ErrorCode = ErrorCode.NOT_ENOUGH_REPLICAS) -> None:
        self.do(AppendFailed(self.appends.pop(0), error))

    def advance(self, milliseconds: int) -> None:
        """Advance time; due timers fire in order."""
        end_ms = self.now_ms + milliseconds
        while self.due and self.due[0][0] <= end_ms:
            _, _, timer = heappop(self.due)
            if self.timers.get(timer.timer) is timer:
                self.fire(timer)
        self.now_ms = end_ms

    def fire(self, timer: SetTimer) -> None:
        self.now_ms = max(self.now_ms, timer.at_ms)
        del self.timers[timer.timer]
        self.do(TimerFired(timer.timer, timer.version))

    # Clients.

    def token(self) -> RequestToken:
        return RequestToken(next(self.tokens))

    def join(
        self,
        member_id: str = "",
        *,
        group_id: str = GROUP,
        instance_id: str | None = None,
        protocols: tuple[Protocol, ...] = (RANGE,),
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        but: Mapping[str, Any] = MappingProxyType({}),
    ) -> RequestToken:
        event = Join(
            token=self.token(),
            group_id=group_id,
            member_id=member_id,
            instance_id=instance_id,
            client_id="client",
            client_host="/10.0.0.1",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=protocols,
            new_member_id=f"{instance_id or 'client'}-{next(self.names)}",
        )
        event = replace(event, **but)
        self.do(event)
        return event.token

    def join_twice(self, **how: Any) -> tuple[str, RequestToken]:
        """Join as a new dynamic member: once for the member id, once to wait."""
        first = self.joined(self.join(**how))
        assert first.error is ErrorCode.MEMBER_ID_REQUIRED
        return first.member_id, self.join(first.member_id, **how)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
        group_id: str = GROUP,
    ) -> RequestToken:
        token = self.token()
        self.do(
            Sync(
                token,
                group_id,
                member_id,
                instance_id,
                generation,
                protocol_type,
                protocol_name,
                assignments or {},
            )
        )
        return token

    def heartbeat(
        self, member_id: str, generation: int, instance_id: str | None = None
    ) -> ErrorCode:
        token = self.token()
        self.do(Heartbeat(token, GROUP, member_id, instance_id, generation))
        return self.answer(token, HeartbeatResult).error

    def leave(self, *leavers: Leaver | str, group_id: str = GROUP) -> LeaveResult:
        token = self.token()
        named = tuple(Leaver(who) if isinstance(who, str) else who for who in leavers)
        self.do(Leave(token, group_id, named))
        return self.answer(token, LeaveResult)

    def send_commit(
        self,
        offset: int = 5,
        *,
        at: TopicPartition = ORDERS,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        group_id: str = GROUP,
        but: Mapping[str, Any] = MappingProxyType({}),
        producer_id: int | None = None,
    ) -> RequestToken:
        transaction = None
        if producer_id is not None:
            transaction = Transaction(ProducerId(producer_id), ProducerEpoch(0))
        event = Commit(
            self.token(),
            group_id,
            member_id,
            instance_id,
            generation,
            (OffsetToCommit(at, offset, 2, "note"),),
            transaction=transaction,
        )
        event = replace(event, **but)
        self.do(event)
        return event.token

    def commit(self, offset: int = 5, **how: Any) -> ErrorCode:
        token = self.send_commit(offset, **how)
        ((_, error),) = self.answer(token, PartitionErrors).partitions
        return error

    def delete_groups(self, *group_ids: str) -> RequestToken:
        token = self.token()
        self.do(DeleteGroups(token, group_ids))
        return token

    def deleted(self, *group_ids: str) -> list[ErrorCode]:
        answer = self.answer(self.delete_groups(*group_ids), GroupErrors)
        return [error for _, error in answer.groups]

    def delete_offsets(self, *partitions: TopicPartition, group_id: str = GROUP) -> PartitionErrors:
        token = self.token()
        self.do(DeleteOffsets(token, group_id, partitions))
        return self.answer(token, PartitionErrors)

    def fetch(
        self, at: TopicPartition = ORDERS, *, group_id: str = GROUP, stable: bool = False
    ) -> FetchedOffset:
        answer = self.coordinator.fetch_offsets(group_id, [at], require_stable=stable)
        assert answer.error is ErrorCode.NONE
        return answer.offsets[at]

    def offset(self, at: TopicPartition = ORDERS, group_id: str = GROUP) -> int:
        return self.fetch(at, group_id=group_id).offset

    def answer(self, token: RequestToken, kind: type[A]) -> A:
        answer = self.answers[token]
        assert isinstance(answer, kind)
        return answer

    def joined(self, token: RequestToken) -> JoinResult:
        return self.answer(token, JoinResult)

    def synced(self, token: RequestToken) -> SyncResult:
        return self.answer(token, SyncResult)

    def waits(self, token: RequestToken) -> bool:
        return token not in self.answers

    # Inspection.

    @property
    def group(self) -> ClassicGroup:
        return self.coordinator.ledger.groups[GROUP]

    @property
    def state(self) -> str:
        return self.coordinator.describe(GROUP).state

    @property
    def generation(self) -> int:
        return self.group.generation

    def members(self) -> list[str]:
        return [member.member_id for member in self.group.roster]

    # Common situations.

    def preparing(self, members: int = 2, **how: Any) -> list[str]:
        """Return members that wait for the first generation."""
        return [self.join_twice(**how)[0] for _ in range(members)]

    def completing(self, members: int = 2, **how: Any) -> list[str]:
        """Return a generation that waits for its assignment; the first member leads."""
        ids = self.preparing(members, **how)
        while self.state == "PreparingRebalance":
            self.advance(DELAY_MS)
        return ids

    def stable(self, members: int = 2, **how: Any) -> list[str]:
        """Return a generation that has its assignment."""
        ids = self.completing(members, **how)
        self.sync_all(ids)
        return ids

    def sync_all(self, ids: Sequence[str]) -> None:
        shares = {member_id: f"share of {member_id}".encode() for member_id in ids}
        for member_id in ids:
            leads = self.group.roster.leader == member_id
            instance_id = self.group.roster[member_id].instance_id
            self.sync(
                member_id,
                self.generation,
                shares if leads else None,
                instance_id=instance_id,
                protocol_type=None,
                protocol_name=None,
            )

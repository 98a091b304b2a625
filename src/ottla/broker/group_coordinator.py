"""Group coordinators: carries out the decisions of `groups/`.

`groups/classic.py` decides when a member's session is over, and `groups/rebalance.py` removes it.

Invariant: effects are carried out in order, appends reach the log in that order, and their results
return in that order, each exactly once. A waiting request gets one response, also when its
coordinator resigns. The state of a coordinator is in its partition of __consumer_offsets, from
which it is loaded.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Final, TypeAlias, TypeVar

from ottla.broker.cooperative import CooperativeLoop
from ottla.broker.metadata_cache import MetadataCache
from ottla.clock import Clock
from ottla.errors import ErrorCode, ProtocolViolation, RequestError
from ottla.groups.config import GroupConfig
from ottla.groups.coordinator import Coordinator, partition_for
from ottla.groups.effects import (
    Append,
    CancelTimer,
    Effect,
    EmptyGenerationStored,
    OffsetsDeleted,
    Respond,
    SetTimer,
    StaticMemberStored,
    Then,
    TopicRecord,
)
from ottla.groups.events import (
    Appended,
    AppendFailed,
    Event,
    Join,
    PartitionsDeleted,
    Request,
    RequestDropped,
    Sync,
    TimerFired,
)
from ottla.groups.responses import JoinResult, Response, SyncResult
from ottla.groups.types import AssignmentStored, RequestToken, Timer, TimerKind
from ottla.ids import Offset, PartitionIndex, TopicPartition
from ottla.log.shield import shielded
from ottla.records.batch import Batch, batches
from ottla.records.builder import BatchBuilder
from ottla.records.control import read_control, read_end_txn_marker
from ottla.records.errors import UNREADABLE, CorruptRecords
from ottla.records.validation import ValidationConfig, validate
from ottla.replication.partition import Partition

_LOG = logging.getLogger(__name__)

OFFSETS_TOPIC: Final = "__consumer_offsets"
_PRODUCE_VERSION: Final = 12  # validates our own batches

A = TypeVar("A", bound=Response)


@dataclass(slots=True)
class _Outcome:
    """The result of an append, as far as it is known."""

    event: Appended | AppendFailed
    durable_upto: int  # flushed below this offset, or failed
    committed_upto: int  # replicated below this offset, or failed
    late: asyncio.TimerHandle | None = None  # answers the members that wait for it

    def forget_members(self) -> None:
        if self.late is not None:
            self.late.cancel()


PendingResponse: TypeAlias = Callable[[], Awaitable[Response]]
"""Waits for the response to a request that was applied to its group; call it once."""


class PartitionCoordinator:
    """The groups of one partition of __consumer_offsets."""

    def __init__(self, partition: Partition, rules: GroupConfig, clock: Clock) -> None:
        self.partition = partition
        # In which the groups are loaded. The partition may begin another one while this broker
        # leads on, when its ISR shrinks: the groups stay as they are.
        self._epoch = partition.leader_epoch
        self.groups = Coordinator(rules)
        self._rules = rules
        self._clock = clock
        self._tokens = count(1)
        self._asked: dict[RequestToken, asyncio.Future[Response]] = {}
        self._timers: dict[Timer, asyncio.TimerHandle] = {}
        self._effects: deque[Effect] = deque()
        self._at_work = False
        self._outcomes: deque[_Outcome] = deque()  # not reported yet, in log order
        self._telling: asyncio.Task[None] | None = None

    # Leadership.

    async def load(self) -> None:
        """Load the groups from the log, then serve requests."""
        epoch, log = self._epoch, self.partition.log
        self._carry_out(self.groups.lead(epoch, self._clock.now_ms()))
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            try:
                found = await log.read(offset, log.log_end_offset, self._rules.load_bytes)
                for batch in batches(await found.read()):
                    offset = batch.header.next_offset
                    try:
                        if not batch.crc_ok:
                            raise CorruptRecords("wrong CRC")
                        self._replay(batch)
                    except UNREADABLE as error:
                        self._pass_over(batch.header.base_offset, offset, error)
            except RequestError as error:
                if error.code is not ErrorCode.CORRUPT_MESSAGE:
                    raise
                behind = [one.end_offset for one in log.damaged if one.end_offset > offset]
                end = min(behind, default=log.log_end_offset)
                self._pass_over(offset, end, error)
                offset = end
        self._carry_out(self.groups.finish_loading(epoch, self._clock.now_ms()))

    def _pass_over(self, start: int, end: int, reason: Exception) -> None:
        """Skip a damaged range: groups keep what they committed before or after it."""
        folder = self.partition.log.directory
        about = {"log": folder, "from": start, "to": end - 1, "reason": str(reason)}
        _LOG.error("committed offsets lost", about)

    def _replay(self, batch: Batch) -> None:
        epoch, header = self._epoch, batch.header
        if header.is_control:
            record = read_control(batch)
            marker = None if record is None else read_end_txn_marker(record)
            if marker is not None:
                self.groups.replay_marker(epoch, header.producer_id, committed=marker.commit)
            return
        producer = header.producer_id
        for record in batch.records():
            args = (epoch, Offset(record.offset), record.key, record.value)
            try:
                if header.is_transactional:
                    self.groups.replay(*args, producer)
                else:
                    self.groups.replay(*args)
            except ProtocolViolation as error:
                self._pass_over(record.offset, record.offset + 1, error)

    def resign(self) -> None:
        """Stop coordinating; waiting requests get NOT_COORDINATOR."""
        self._carry_out(self.groups.resign(None, self._clock.now_ms()))
        for handle in self._timers.values():
            handle.cancel()
        self._timers.clear()
        if self._telling is not None:
            self._telling.cancel()
        while self._outcomes:  # the clients that wait for an append ask the next coordinator
            outcome = self._outcomes.popleft()
            outcome.forget_members()
            failed = AppendFailed(outcome.event.append, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.tell(failed)

    # Events and effects.

    async def ask(self, event: Callable[[RequestToken], Request]) -> Response:
        """Apply a request to its group and wait for the response."""
        return await self.submit(event)()

    def submit(self, event: Callable[[RequestToken], Request]) -> PendingResponse:
        """Apply a request to its group."""
        loop = asyncio.get_running_loop()
        token = RequestToken(next(self._tokens))
        future: asyncio.Future[Response] = loop.create_future()
        self._asked[token] = future
        request = event(token)
        self.tell(request)
        return partial(self._response, token, request, future, loop.time() + self._commit_timeout_s)

    async def _response(
        self,
        token: RequestToken,
        request: Request,
        response: asyncio.Future[Response],
        deadline_s: float,
    ) -> Response:
        """Return the response to a request.

        A request that does not wait for members fails with COORDINATOR_NOT_AVAILABLE after
        offsets.commit.timeout.ms, as in Kafka. If its append succeeds later, it counts all the
        same.
        """
        try:
            if isinstance(request, Join | Sync) or response.done():
                return await response
            async with asyncio.timeout_at(deadline_s):
                return await response
        except asyncio.CancelledError:
            if isinstance(request, Join | Sync):
                self.tell(RequestDropped(token, request.group_id))
            raise
        except TimeoutError as error:
            raise RequestError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from error
        finally:
            self._asked.pop(token, None)

    def tell(self, event: Event) -> None:
        """Apply an event to the groups and carry out its effects."""
        if isinstance(event, Appended):
            _log_stored(event.append.then)
        self._carry_out(self.groups.step(event, self._clock.now_ms()))

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        self._effects.extend(effects)
        if self._at_work:
            return  # called by an effect: it is carried out after the ones before it
        self._at_work = True
        try:
            while self._effects:
                self._do(self._effects.popleft())
        finally:
            self._at_work = False

    def _do(self, effect: Effect) -> None:
        match effect:
            case Respond():
                future = self._asked.pop(effect.token, None)
                if future is not None and not future.done():
                    future.set_result(effect.answer)
            case SetTimer():
                timer = effect.timer
                if timer.kind is TimerKind.JOIN and timer not in self._timers:
                    _LOG.info("rebalance started", {"group": timer.group_id})
                self._cancel(timer)
                delay_s = max(effect.at_ms - self._clock.now_ms(), 0) / 1000
                self._timers[effect.timer] = asyncio.get_running_loop().call_later(
                    delay_s, self._fire, TimerFired(effect.timer, effect.version)
                )
            case CancelTimer():
                self._cancel(effect.timer)
            case Append():
                self._append(effect)

    def _cancel(self, timer: Timer) -> None:
        handle = self._timers.pop(timer, None)
        if handle is not None:
            handle.cancel()

    def _fire(self, fired: TimerFired) -> None:
        timer = fired.timer
        self._timers.pop(timer, None)
        was_known = self._knows(timer)
        effects = self.groups.step(fired, self._clock.now_ms())
        if timer.kind is TimerKind.SESSION and was_known and not self._knows(timer):
            about = {"group": timer.group_id, "member": timer.member_id}
            _LOG.info("member expired", about)
        self._carry_out(effects)

    def _knows(self, timer: Timer) -> bool:
        """Whether the timer's member exists; a member that waits for a response does not expire."""
        group = self.groups.ledger.groups.get(timer.group_id)
        return group is not None and (
            timer.member_id in group.roster or timer.member_id in group.roster.pending
        )

    # Appends.

    def _append(self, effect: Append) -> None:
        partition, durable_upto, committed_upto = self.partition, 0, 0
        event: Appended | AppendFailed
        try:
            if effect.leader_epoch != self._epoch:
                raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            offsets = [self._append_one(batch) for batch in self._batches(effect)]
            event = Appended(effect, offsets[0])
            if partition.must_flush:
                durable_upto = partition.log.log_end_offset
            if partition.in_sync is not None:
                committed_upto = partition.log.log_end_offset
        except RequestError as error:
            event = AppendFailed(effect, error.code)
        if not durable_upto and not committed_upto and not self._outcomes:
            self.tell(event)
            return
        outcome = _Outcome(event, durable_upto, committed_upto)
        self._outcomes.append(outcome)
        if isinstance(effect.then, AssignmentStored | StaticMemberStored):
            self._limit(outcome)
        if self._telling is None:
            self._telling = asyncio.get_running_loop().create_task(self._tell_in_order())

    async def _tell_in_order(self) -> None:
        """Report append results in log order, also those that need neither flush nor replicas."""
        try:
            while self._outcomes:
                outcome = self._outcomes[0]
                event = outcome.event
                try:
                    await self.partition.durable(outcome.durable_upto)
                    await self.partition.committed(outcome.committed_upto)
                except RequestError as error:
                    event = AppendFailed(event.append, error.code)
                outcome.forget_members()
                self._outcomes.popleft()
                self.tell(event)
        finally:
            self._telling = None

    @property
    def _commit_timeout_s(self) -> float:
        return self._rules.commit_timeout_ms / 1000

    def _limit(self, outcome: _Outcome) -> None:
        loop = asyncio.get_running_loop()
        outcome.late = loop.call_later(self._commit_timeout_s, self._answer_late, outcome)

    def _answer_late(self, outcome: _Outcome) -> None:
        """Answer members that have waited for an append for offsets.commit.timeout.ms.

        The append goes on. If it succeeds, a member gets its assignment when it asks again.
        """
        then = outcome.event.append.then
        assert isinstance(then, AssignmentStored | StaticMemberStored)
        group = self.groups.ledger.groups.get(then.group_id)
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        answers: list[tuple[RequestToken | None, Response]] = []
        if isinstance(then, StaticMemberStored):
            answers.append((then.token, JoinResult(error, then.member_id)))
        elif group is not None and group.in_flight is then:
            answers += [(member.sync_token, SyncResult(error)) for member in group.roster]
        for token, answer in answers:
            if token is not None:
                self._do(Respond(token, answer))
                self.tell(RequestDropped(token, then.group_id))
        self._limit(outcome)

    def _append_one(self, data: bytes) -> Offset:
        now_ms = self._clock.now_ms()
        rules = ValidationConfig(
            max_message_bytes=self.partition.log.config.segment_bytes, compacted=True
        )
        valid = validate(data, rules, now_ms=now_ms, produce_version=_PRODUCE_VERSION)
        appended = self.partition.append_valid(
            valid, memoryview(data), now_ms=now_ms, from_client=False
        )
        return appended.base_offset

    def _batches(self, effect: Append) -> Iterator[bytes]:
        assert effect.transaction is None, "transactions are not supported"
        limit = self.partition.rules.max_message_bytes
        if effect.atomic:
            limit = self.partition.log.config.segment_bytes
        now_ms = self._clock.now_ms()
        builder = BatchBuilder(limit, self._rules.compression)
        for record in effect.records:
            if not _added(builder, record, now_ms):
                yield builder.build()
                builder = BatchBuilder(limit, self._rules.compression)
                if not _added(builder, record, now_ms):
                    raise RequestError(ErrorCode.MESSAGE_TOO_LARGE)
        yield builder.build()


def _log_stored(then: Then) -> None:
    if isinstance(then, AssignmentStored):
        members = len(then.assignments)
        about = {"group": then.group_id, "generation": then.generation, "members": members}
        _LOG.info("group stabilized", about)
    elif isinstance(then, EmptyGenerationStored):
        _LOG.info("group emptied", {"group": then.group_id})
    elif isinstance(then, OffsetsDeleted):
        if then.expired and then.offsets:
            counts = Counter(group_id for group_id, _ in then.offsets)
            for group_id, partitions in counts.items():
                _LOG.info("offsets expired", {"group": group_id, "partitions": partitions})
        for group in then.groups:
            if then.expired:
                _LOG.info("group expired", {"group": group.group_id})
            else:
                _LOG.info("group deleted", {"group": group.group_id})


def _added(builder: BatchBuilder, record: TopicRecord, now_ms: int) -> bool:
    return builder.append(now_ms, record.key, record.value)


async def _refuse(error: RequestError) -> Response:
    raise error


class GroupCoordinators:
    """The coordinators of the partitions of __consumer_offsets that this broker leads."""

    def __init__(
        self, rules: Callable[[], GroupConfig], clock: Clock, metadata_cache: MetadataCache
    ) -> None:
        self._rules = rules
        self._clock = clock
        self._metadata_cache = metadata_cache
        self._led: dict[PartitionIndex, PartitionCoordinator] = {}

    async def lead(self, partition: Partition) -> None:
        """Coordinate the groups of a partition that this broker leads now.

        Raises if the groups cannot be loaded; the partition then has no coordinator.
        """
        index = PartitionIndex(partition.name.partition)
        self.resign(index)
        coordinator = PartitionCoordinator(partition, self._rules(), self._clock)
        self._led[index] = coordinator
        try:
            await coordinator.load()
        except BaseException:
            self.resign(index)
            raise

    def resign(self, index: PartitionIndex) -> None:
        """Stop coordinating a partition that this broker no longer leads."""
        if (before := self._led.pop(index, None)) is not None:
            before.resign()

    def of(self, group_id: str) -> PartitionCoordinator:
        """Return the coordinator of a group; raises NOT_COORDINATOR."""
        count = self._metadata_cache.partition_count(OFFSETS_TOPIC)
        found = count and self._led.get(partition_for(group_id, count))
        if not found:
            raise RequestError(ErrorCode.NOT_COORDINATOR)
        return found

    async def submit_all(
        self,
        requests: Sequence[tuple[str, Callable[[RequestToken], Request]]],
        turns: CooperativeLoop,
    ) -> list[PendingResponse]:
        """Apply requests to these groups: all of them, also if the client leaves meanwhile."""

        async def submit() -> list[PendingResponse]:
            return [self._submit(*one) async for one in turns.over(requests)]

        return await (submit() if len(requests) == 1 else shielded(submit()))

    def _submit(self, group_id: str, event: Callable[[RequestToken], Request]) -> PendingResponse:
        try:
            return self.of(group_id).submit(event)
        except RequestError as error:
            return partial(_refuse, error)

    def __iter__(self) -> Iterator[PartitionCoordinator]:
        return iter(list(self._led.values()))

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Delete the committed offsets of deleted partitions."""
        gone = PartitionsDeleted(frozenset(partitions))
        for coordinator in self:
            coordinator.tell(gone)

    def forget_topics(self, names: Collection[str]) -> None:
        """Delete the committed offsets of topics whose partition count is not known any more."""
        for coordinator in self:
            coordinator.tell(PartitionsDeleted(coordinator.groups.ledger.offsets.of_topics(names)))

    def close(self) -> None:
        """Answer waiting requests and cancel timers."""
        for index in list(self._led):
            self.resign(index)

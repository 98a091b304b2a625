"""Membership of a consumer group (KIP-848): the coordinator assigns through heartbeats.

Invariant: a heartbeat reports what changed since the last response, and everything after a failure.
The target assignment is reconciled in steps: revoke what has to go, assign what is new, report
both. A fenced member has lost all partitions before it joins again.
"""

from collections.abc import Callable
from math import inf
from typing import Final

from ottla.client.group.config import GroupConfig
from ottla.client.group.consumer_coordinator import ConsumerCoordinator, ask
from ottla.client.group.error_actions import LOSSES, ErrorAction, error_action
from ottla.client.group.heartbeat_state import (
    HeartbeatState,
    TargetAssignment,
    by_topic,
    heartbeat_request,
)
from ottla.client.group.heartbeat_timer import HeartbeatTimer
from ottla.client.group.interfaces import NO_GENERATION, GroupMember, GroupOwner
from ottla.client.group.member_tasks import POLLED_LATE, MemberTasks
from ottla.client.group.topic_names import TopicNames
from ottla.client.network.metadata import Metadata
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import PartitionIndex, TopicPartition, Uuid
from ottla.protocol.apis import CONSUMER_GROUP_HEARTBEAT
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.transport.channel import Channel, NotSupported

LEAVING: Final = -1
LEAVING_FOR_A_WHILE: Final = -2  # of a static member

REASSIGNED: Final = "the coordinator changed the assignment"
CLASSIC: Final = "group.protocol=classic"

_FIRST_INTERVAL_S: Final = 5.0  # until the coordinator sends its own
_OWN_IDS_SINCE: Final = 1  # the first version with client-generated member ids and patterns


class Kip848Membership(MemberTasks):
    """The membership of one consumer; `run` is its task."""

    def __init__(
        self,
        owner: GroupOwner,
        metadata: Metadata,
        coordinator: ConsumerCoordinator,
        rules: GroupConfig,
        clock: Clock,
        random: Callable[[], float],
    ) -> None:
        # Only the coordinator knows the session timeout and reports its end.
        heartbeat_timer = HeartbeatTimer(
            _FIRST_INTERVAL_S, inf, rules.poll_interval_s, clock.elapsed_s()
        )
        super().__init__(owner, coordinator, rules, clock, heartbeat_timer)
        self._names = TopicNames(metadata, clock, rules.backoff, rules.request_timeout_s)
        raw = bytes(int(random() * 256) for _ in range(16))
        self._member_id = str(Uuid(raw))
        self._sent: HeartbeatState | None = None  # what the coordinator knows; None if uncertain
        self._wanted: TargetAssignment | None = None  # the target assignment; None while unknown
        self._owned: dict[TopicPartition, Uuid] = {}
        self._is_assigned = False  # the owner knows its assignment, also an empty one
        self._lost: str | None = None  # why everything is lost, until the owner knows
        self._why = REASSIGNED
        self._failures = 0
        self._heartbeat_timer.hurry()

    @property
    def is_member(self) -> bool:
        """Whether it has joined and owns its target assignment."""
        return self._is_assigned and self._lost is None and not self._has_work()

    @property
    def waiting_for(self) -> str | None:
        """What it waits for before it is stable."""
        if self._is_late:
            return f"a poll: {POLLED_LATE}"
        if not self._identity.is_member:
            return "joining the group"
        return "partitions to be revoked and assigned" if self._has_work() else None

    def rejoin(self, why: str) -> None:
        """Report the changed subscription with a heartbeat at once."""
        self._why = why
        self._heartbeat_timer.hurry()
        self._look()

    def metadata_changed(self) -> None:
        """Check again whether topic ids have names; report new topics of a pattern."""
        if self._sent is not None and self._sent != self._statement():
            self._heartbeat_timer.hurry()
        self._look()

    def fenced(self, member: GroupMember, error: ErrorCode) -> None:
        """Handle a commit that failed because the member was fenced."""
        if member != self._identity:
            return
        if error_action(error) in LOSSES:
            self._expelled(error.text)
        elif error_action(error) is ErrorAction.FINAL:
            self._final = RequestError(error)
        self._look()

    # Assignment.

    def _has_work(self) -> bool:
        if self._wanted is None:
            return False
        return not self._is_assigned or self._wanted != by_topic(self._owned)

    async def _live(self) -> None:
        while True:
            await self._until(lambda: self._lost is not None or self._has_work())
            if self._lost is not None:
                await self._owned_partitions.lose(self._lost)
                self._owned, self._wanted, self._lost = {}, None, None
                self._is_assigned = False
                if self._is_late:
                    await self._until(lambda: not self._is_late)
                self._heartbeat_timer.hurry()
                self._look()
            else:
                await self._reconcile()

    async def _reconcile(self) -> None:
        """Reconcile with the target assignment, as far as topic ids have names."""
        wanted, holdings, member_id = self._wanted, self._owned_partitions, self._identity.member_id
        assert wanted is not None
        began_s = self._clock.elapsed_s()
        names = await self._names.of(wanted)
        if self._lost is not None or wanted is not self._wanted:
            return
        target = {
            TopicPartition(names[topic], PartitionIndex(index)): topic
            for topic, indexes in wanted.items()
            if topic in names
            for index in indexes
        }
        why, self._why = self._why, REASSIGNED
        gone = {one for one, topic in self._owned.items() if target.get(one) != topic}
        await holdings.revoke(gone, why)
        if self._lost is not None or self._identity.member_id != member_id:
            return  # the rest is lost as well
        added = target.keys() - holdings.owned
        if added or gone or not self._is_assigned:
            await holdings.assign(added, why)
            self._owned, self._is_assigned = target, True
            self._rebalanced(began_s)
            self._heartbeat_timer.hurry()
            self._look()
        if names.keys() < wanted.keys():
            await self._clock.sleep(self._rules.backoff.longest_s)

    # Heartbeats.

    def _is_beating(self) -> bool:
        return self._lost is None and not self._is_late

    def _statement(self) -> HeartbeatState:
        pattern = self._owner.pattern()
        return HeartbeatState(
            topics=self._owner.topics() if pattern is None else frozenset(),
            pattern=pattern,
            assignor=self._rules.remote_assignor,
            owned=by_topic(self._owned),
        )

    async def _heartbeat(self, now_s: float) -> None:
        rules, member = self._rules, self._identity
        statement = self._statement()
        left_s = min(rules.request_timeout_s, self._heartbeat_timer.end_s() - now_s)
        try:
            channel = await self._coordinator.channel(left_s)
            request = self._request(channel, statement)
            if not member.is_member:  # a member that leaves before the response uses this id
                member = self._identity = member._replace(member_id=request.member_id)
            answer = await ask(
                channel, request, ConsumerGroupHeartbeatResponse, left_s, rules.request_timeout_s
            )
            if answer.error_code:
                raise RequestError(ErrorCode.of(answer.error_code), answer.error_message)
        except RequestError as error:
            self._told(member, error)
            return
        told_s = self._clock.elapsed_s()
        self._failures = 0
        self._heartbeat_timer.interval_s = answer.heartbeat_interval_ms / 1000
        self._heartbeat_timer.heard(told_s, now_s)
        if self._identity is not member or self._lost is not None:
            return  # a commit has reported the loss
        self._sent = statement
        self._identity = rules.nobody._replace(
            generation=answer.member_epoch, member_id=answer.member_id or request.member_id
        )
        if answer.assignment is not None:
            self._wanted = {
                one.topic_id: frozenset(one.partitions)
                for one in answer.assignment.topic_partitions
            }
        if self._statement() != statement:
            self._heartbeat_timer.hurry()
        self._look()

    def _request(
        self, channel: Channel, statement: HeartbeatState
    ) -> ConsumerGroupHeartbeatRequest:
        version = channel.version(CONSUMER_GROUP_HEARTBEAT)
        if version < _OWN_IDS_SINCE and statement.pattern is not None:
            raise NotSupported(
                f"the broker at {channel.address} does not support BrokerPattern: subscribe to "
                "topics by name"
            )
        member = self._identity
        if not member.is_member:
            chosen = self._member_id if version >= _OWN_IDS_SINCE else ""
            member = member._replace(generation=0, member_id=member.member_id or chosen)
        return heartbeat_request(self._rules, member, statement, self._sent)

    def _told(self, member: GroupMember, error: RequestError) -> None:
        """Handle a failed heartbeat."""
        self._sent = None  # uncertain what the coordinator knows
        if self._identity is not member:
            return
        self._failures += 1
        pause_s = self._rules.backoff.pause_s(self._failures)
        self._heartbeat_timer.failed(self._clock.elapsed_s(), pause_s)
        done = error_action(error.code)
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            why = error.message or error.code.text
            if CLASSIC not in why:  # Ottla's brokers say it themselves
                why = f"{why}; every broker supports {CLASSIC}"
            raise RequestError(error.code, why)
        if done is ErrorAction.FINAL:
            raise error
        if done is ErrorAction.ELSEWHERE:
            self._coordinator.forget()
        elif done in LOSSES:
            self._expelled(error.code.text)
        self._look()

    def _expelled(self, why: str) -> None:
        """Lose everything and join again: the coordinator removed the member."""
        self._identity = self._identity._replace(generation=NO_GENERATION)
        self._sent = None
        self._wanted = None
        self._lost = why

    def _session_lost(self) -> None:
        raise AssertionError("only the coordinator ends a session")

    def _given_up(self) -> None:
        self._expelled(POLLED_LATE)

    async def _learn_id(self, timeout_s: float) -> None:
        """Return at once: the member has chosen its id itself."""

    async def _say_goodbye(self, member: GroupMember, why: str, timeout_s: float) -> None:
        if not member.member_id:
            return
        deadline_s = self._clock.elapsed_s() + timeout_s
        epoch = LEAVING if member.instance_id is None else LEAVING_FOR_A_WHILE
        request = ConsumerGroupHeartbeatRequest(
            group_id=member.group_id,
            member_id=member.member_id,
            member_epoch=epoch,
            instance_id=member.instance_id,
        )
        channel = await self._coordinator.channel(timeout_s)
        left_s = deadline_s - self._clock.elapsed_s()
        wait_s = self._rules.request_timeout_s
        await ask(channel, request, ConsumerGroupHeartbeatResponse, left_s, wait_s)

"""Membership of a classic group: JoinGroup, SyncGroup, Heartbeat.

Invariant: with the eager protocol a member revokes everything before it joins. With the cooperative
protocol it revokes, after the assignment, what went to others, and joins again. A member that the
coordinator does not know any more has lost its partitions, and its owner is told before anything
else.
"""

import asyncio
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Final

from ottla.client.group.config import GroupConfig
from ottla.client.group.consumer_coordinator import ConsumerCoordinator, ask
from ottla.client.group.error_actions import LOSSES, ErrorAction, error_action
from ottla.client.group.heartbeat_timer import HeartbeatTimer
from ottla.client.group.interfaces import NO_GENERATION, GroupMember, GroupOwner
from ottla.client.group.leadership import divide, layouts, subscriptions, topics_of
from ottla.client.group.member_tasks import POLLED_LATE, MemberTasks
from ottla.client.group.requests import (
    heartbeat_request,
    join_request,
    leave_request,
    sync_request,
)
from ottla.client.lifecycle.long_wait import LongWait
from ottla.client.network.metadata import Metadata
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError
from ottla.groups.assignors.assignor import (
    ASSIGNORS,
    Assignor,
    RebalanceProtocol,
    rebalance_protocol,
)
from ottla.groups.assignors.messages import read_assignment
from ottla.groups.assignors.subscription import TopicLayout
from ottla.ids import TopicPartition
from ottla.protocol.apis import LEAVE_GROUP
from ottla.protocol.message import Message
from ottla.protocol.messages.heartbeat import HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupRequestAssignment, SyncGroupResponse

FIRST_TIME: Final = "the consumer joins"
REBALANCE_STARTED: Final = (
    "the coordinator started a rebalance: members or their subscriptions changed"
)
SESSION_LOST: Final = "no heartbeat response within session.timeout.ms"
TOPICS_CHANGED: Final = "topics or their partitions changed"
SUBSCRIPTION_CHANGED: Final = "the subscription changed"
PARTITIONS_REVOKED: Final = "partitions were revoked for other members"

_AT_ONCE_MAX: Final = 2  # this many consecutive failures need no backoff


class Phase(Enum):
    """The progress of a member in its generation."""

    RESTING = auto()  # with an assignment, or before the first one
    JOINING = auto()  # a JoinGroup is in flight, which keeps the session alive
    SYNCING = auto()


class ClassicMembership(MemberTasks):
    """The membership of one consumer; `run` is its task."""

    def __init__(
        self,
        owner: GroupOwner,
        metadata: Metadata,
        coordinator: ConsumerCoordinator,
        rules: GroupConfig,
        clock: Clock,
        assignors: Sequence[Assignor] = (),
    ) -> None:
        """`assignors` of the application replace those named in the config."""
        heartbeat_timer = HeartbeatTimer(
            rules.heartbeat_interval_s,
            rules.session_timeout_s,
            rules.poll_interval_s,
            clock.elapsed_s(),
        )
        super().__init__(owner, coordinator, rules, clock, heartbeat_timer)
        self._metadata = metadata
        chosen = assignors or [ASSIGNORS[name]() for name in rules.assignors]
        self._assignors = {each.name: each for each in chosen}
        self._protocol = rebalance_protocol(chosen)
        self._phase = Phase.RESTING
        self._why: str | None = FIRST_TIME  # the reason to join; None when stable
        self._topics: frozenset[str] = frozenset()  # the subscription in the last JoinGroup
        self._naming: asyncio.Future[Message] | None = (
            None  # the JoinGroup whose response has the member id
        )
        self._divided: Mapping[str, TopicLayout] | None = None  # what it assigned as the leader
        self._group_topics: frozenset[str] = frozenset()
        group = rules.group_id
        self._wait = LongWait(clock, f"to join group {group}", f"joined group {group}")

    @property
    def is_member(self) -> bool:
        """Whether it has joined and is not rejoining."""
        return self._identity.is_member and self._phase is Phase.RESTING and self._why is None

    @property
    def waiting_for(self) -> str | None:
        """What it waits for before it is stable."""
        if self._is_late:
            return f"a poll: {POLLED_LATE}"
        if self._phase is Phase.JOINING:
            return "the other members of the group to join"
        if self._phase is Phase.SYNCING:
            return "the leader of the group to assign partitions"
        return None if self._why is None else f"joining the group: {self._why}"

    def rejoin(self, why: str) -> None:
        """Rejoin: the subscription changed."""
        if self._why is None:
            self._why = why
            self._look()

    def metadata_changed(self) -> None:
        """Rejoin if the metadata change affects the assignment."""
        if not self.is_member:
            return
        if self._owner.topics() != self._topics:
            self.rejoin(SUBSCRIPTION_CHANGED)
        elif self._divided is not None and self._divided != self._snapshot():
            self.rejoin(TOPICS_CHANGED)

    def fenced(self, member: GroupMember, error: ErrorCode) -> None:
        """Handle a commit that failed because the member was fenced."""
        if member == self._identity and self._phase is Phase.RESTING:
            try:
                self._react(RequestError(error))
            except RequestError as final:
                self._final = final
            self.rejoin(error.text)
            self._look()

    # Joining.

    async def _live(self) -> None:
        failures = 0
        while True:
            await self._until(lambda: self._why is not None)
            why, self._why = self._why or FIRST_TIME, None
            if self._is_late:
                await self._owned_partitions.lose(POLLED_LATE)
                await self._until(lambda: not self._is_late)
            failed = await self._rebalance(why)
            if failed is None:
                failures = 0
                continue
            failures += 1
            self.rejoin(why)
            if failed in (ErrorAction.AGAIN, ErrorAction.ELSEWHERE) or failures > _AT_ONCE_MAX:
                await self._clock.sleep(self._rules.backoff.pause_s(failures))

    async def _rebalance(self, why: str) -> ErrorAction | None:
        """Take part in a rebalance; returns what to do if it failed."""
        began_s = self._clock.elapsed_s()
        await self._prepare(why)
        if self._is_late or self._final is not None:
            return ErrorAction.REJOIN
        try:
            joined, topics = await self._join(why)
            partitions = await self._sync(joined)
        except RequestError as error:
            done = self._react(error)
            if done in (ErrorAction.AGAIN, ErrorAction.ELSEWHERE):
                self._wait.failed(error)
            return done
        finally:
            self._phase = Phase.RESTING
            self._look()
        if self._identity.generation != joined.generation_id:
            return ErrorAction.REJOIN  # it was lost meanwhile
        self._wait.succeeded()
        await self._complete(joined, partitions, topics, why)
        self._rebalanced(began_s)
        return None

    async def _prepare(self, why: str) -> None:
        """Revoke what has to be revoked before joining."""
        holdings = self._owned_partitions
        if self._identity.is_member and self._heartbeat_timer.is_lost(self._clock.elapsed_s()):
            self._session_lost()
        if not self._identity.is_member:
            await holdings.lose(why)
        elif self._protocol is RebalanceProtocol.EAGER:
            await holdings.revoke(holdings.owned, why)
        else:
            topics = self._owner.topics()
            await holdings.revoke({one for one in holdings.owned if one.topic not in topics}, why)
        if not self._identity.is_member:
            await holdings.lose(why)  # what is left, because revoking took too long

    async def _join(self, why: str) -> tuple[JoinGroupResponse, frozenset[str]]:
        """Wait until all members have joined; the new identity is used at once."""
        rules = self._rules
        channel = await self._coordinator.patient_channel(rules.request_timeout_s)
        self._phase = Phase.JOINING
        self._why = None  # this join serves every reason so far
        topics, owned = self._owner.topics(), self._owned_partitions.owned
        while True:
            assignors = self._assignors.values()
            request = join_request(rules, self._identity, assignors, topics, owned, why)
            answer = await self._answer(channel.send(request, rules.join_timeout_s))
            error = ErrorCode.of(answer.error_code)
            if error is not ErrorCode.MEMBER_ID_REQUIRED:
                break
            self._identity = rules.nobody._replace(member_id=answer.member_id)
        if error:
            raise RequestError(error)
        self._identity = rules.nobody._replace(
            generation=answer.generation_id, member_id=answer.member_id
        )
        self._phase = Phase.SYNCING
        self._heartbeat_timer.begin(self._clock.elapsed_s())
        self._look()
        return answer, topics

    async def _answer(self, joining: "asyncio.Future[Message]") -> JoinGroupResponse:
        """Return the response of a join; a member that leaves earlier finds it in `_learn_id`."""
        if not self._identity.member_id:
            self._naming = joining
            joining.add_done_callback(_heard)
            joining = asyncio.shield(joining)
        answer = await joining
        self._naming = None
        assert isinstance(answer, JoinGroupResponse)
        return answer

    async def _sync(self, joined: JoinGroupResponse) -> tuple[TopicPartition, ...]:
        """Get the assignment; the leader computes all assignments."""
        rules, member = self._rules, self._identity
        self._divided = None
        assignments: list[SyncGroupRequestAssignment] = []
        if joined.leader == joined.member_id:
            assignments = await self._lead(joined)
        request = sync_request(member, joined.protocol_name, assignments)
        channel = await self._coordinator.patient_channel(rules.request_timeout_s)
        answer = await channel.ask(request, SyncGroupResponse, rules.join_timeout_s)
        if answer.error_code:
            error = RequestError(ErrorCode.of(answer.error_code))
            # A heartbeat has already handled this loss.
            lost = error_action(error.code) in LOSSES and self._identity is not member
            raise RequestError(ErrorCode.REBALANCE_IN_PROGRESS) if lost else error
        return read_assignment(answer.assignment)

    async def _lead(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """Compute the assignment; after a static leader returned, the assignment stays."""
        members = subscriptions(joined.members)
        self._group_topics = topics_of(members)
        known = [self._metadata.want(topic) for topic in sorted(self._group_topics)]
        if not all(topic is not None and topic.partitions for topic in known):
            await self._metadata.refreshed(self._rules.request_timeout_s)
        self._divided = self._snapshot()
        if joined.skip_assignment:
            return []
        assignor = self._assignor(joined)
        topics = layouts(self._metadata.view, self._group_topics, with_racks=True)
        return divide(assignor, self._protocol, topics, members)

    def _snapshot(self) -> dict[str, TopicLayout]:
        """Return the topics to assign; racks count if the leader has one, as in Java."""
        return layouts(
            self._metadata.view, self._group_topics, with_racks=self._rules.rack is not None
        )

    def _assignor(self, joined: JoinGroupResponse) -> Assignor:
        assignor = self._assignors.get(joined.protocol_name or "")
        if assignor is None:
            raise RequestError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"the group selected the assignor {joined.protocol_name}, which this member does "
                "not support: add it to partition.assignment.strategy",
            )
        return assignor

    async def _complete(
        self,
        joined: JoinGroupResponse,
        partitions: Sequence[TopicPartition],
        topics: frozenset[str],
        why: str,
    ) -> None:
        """Assign what is new and revoke what went to others."""
        self._topics = topics
        self._assignor(joined).on_assignment(partitions, joined.generation_id)
        subscribed = self._owner.topics()
        assigned = {one for one in partitions if one.topic in subscribed}
        if subscribed != topics:
            self.rejoin(SUBSCRIPTION_CHANGED)
        holdings = self._owned_partitions
        gone = holdings.owned - assigned
        if gone:
            await holdings.revoke(gone, why)
            self.rejoin(PARTITIONS_REVOKED)
        if self._identity.generation == joined.generation_id:
            await holdings.assign(assigned - holdings.owned, why)

    # Heartbeats and leaving.

    def _is_beating(self) -> bool:
        return self._identity.is_member and self._phase is not Phase.JOINING

    async def _heartbeat(self, now_s: float) -> None:
        rules, member = self._rules, self._identity
        request = heartbeat_request(member)
        left_s = min(rules.request_timeout_s, self._heartbeat_timer.end_s() - now_s)
        try:
            channel = await self._coordinator.channel(left_s)
            answer = await ask(channel, request, HeartbeatResponse, left_s, rules.request_timeout_s)
            error = ErrorCode.of(answer.error_code)
        except RequestError as failure:
            error = failure.code
        if self._identity is not member or self._phase is Phase.JOINING:
            return  # it has joined since
        told_s = self._clock.elapsed_s()
        if not error or error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._heartbeat_timer.heard(told_s, now_s)
        else:
            self._heartbeat_timer.failed(told_s, rules.backoff.pause_s(1))
        if error:
            self._told(error)
        if self._divided is not None and len(self._divided) < len(self._group_topics):
            self._metadata.expire()  # a missing topic may exist now
        self.metadata_changed()

    def _told(self, error: ErrorCode) -> None:
        """Handle an error in a heartbeat response."""
        done = self._react(RequestError(error))
        if done in LOSSES:
            self.rejoin(error.text)
        elif done is ErrorAction.REJOIN and self._phase is Phase.RESTING:
            self.rejoin(REBALANCE_STARTED)
        self._look()

    def _react(self, error: RequestError) -> ErrorAction:
        """Handle an error; raises it if it is final."""
        done = error_action(error.code)
        if done is ErrorAction.FINAL:
            raise error
        if done is ErrorAction.ELSEWHERE:
            self._coordinator.forget()
        elif done is ErrorAction.REGENERATE:
            self._identity = self._identity._replace(generation=NO_GENERATION)
        elif done is ErrorAction.RENEW:
            self._identity = self._rules.nobody
        return done

    def _session_lost(self) -> None:
        """Stay the same member if the coordinator still knows it, but own nothing."""
        self._coordinator.forget()
        self._identity = self._identity._replace(generation=NO_GENERATION)
        self.rejoin(SESSION_LOST)

    def _given_up(self) -> None:
        self.rejoin(POLLED_LATE)

    async def _learn_id(self, timeout_s: float) -> None:
        """Wait for the member id, without which it cannot leave.

        Otherwise the group would wait for this member in every rebalance until its session expires.
        """
        naming = self._naming
        if naming is None or self._identity.member_id or self._identity.instance_id is not None:
            return
        await asyncio.wait((naming,), timeout=timeout_s)
        if naming.done() and not naming.cancelled() and naming.exception() is None:
            answer = naming.result()
            assert isinstance(answer, JoinGroupResponse)
            self._identity = self._identity._replace(member_id=answer.member_id)

    async def _say_goodbye(self, member: GroupMember, why: str, timeout_s: float) -> None:
        if member.instance_id is not None:
            return
        deadline_s = self._clock.elapsed_s() + timeout_s
        channel = await self._coordinator.channel(timeout_s)
        request = leave_request(member, why, channel.version(LEAVE_GROUP))
        left_s = deadline_s - self._clock.elapsed_s()
        await ask(channel, request, LeaveGroupResponse, left_s, self._rules.request_timeout_s)


def _heard(joining: "asyncio.Future[Message]") -> None:
    """Retrieve the result: the caller may be gone."""
    if not joining.cancelled():
        joining.exception()

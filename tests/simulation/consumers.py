"""Consumers: members of classic groups, with fetch sessions and long polls."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from ottla.errors import ErrorCode
from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_embedded,
    encode_embedded,
)
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from ottla.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from ottla.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ottla.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from ottla.records.batch import batches
from ottla.testing.simulation import Simulation
from simulation.connection import Gone, Speaker
from simulation.history import History, Place

SESSION_MS = 4000
REBALANCE_MS = 3000
BY_NAME = 9  # of OffsetCommit and OffsetFetch
FETCH_BY_NAME, FETCH_BY_ID = 12, 17
EARLIEST = -2


class Rejoin(Exception):
    """The member is no longer in the generation."""


class Fenced(Exception):
    """Another client has replaced this static member."""


@dataclass
class FetchSession:
    """The client side of a fetch session."""

    id: int = 0
    epoch: int = 0
    known: dict[Place, int] = field(default_factory=dict[Place, int])  # offsets known to the broker


class Fetcher:
    """Reads partitions through a fetch session and records them in the history."""

    def __init__(
        self, world: Simulation, history: History, speaker: Speaker, topic_ids: dict[str, Uuid]
    ) -> None:
        self.history = history
        self.speaker = speaker
        self.positions: dict[Place, int] = {}
        self._world = world
        self._topic_ids = topic_ids
        self._session = FetchSession()
        self._watermarks: dict[Place, int] = {}
        self._deleted: dict[Place, int] = {}  # deleted offsets when the request was sent
        self._cuts = -1

    def forget_session(self) -> None:
        self._session = FetchSession()

    async def fetch(self, wait_ms: int, version: int = FETCH_BY_ID) -> None:
        """Fetch once and advance the positions; raise Gone if no response arrives."""
        session = self._session
        changed = {
            place: offset
            for place, offset in self.positions.items()
            if session.known.get(place) != offset
        }
        forgotten = [place for place in session.known if place not in self.positions]
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=session.id,
            session_epoch=session.epoch,
            topics=[
                FetchTopic(
                    topic=topic,
                    topic_id=self._topic_ids[topic],
                    partitions=[
                        FetchPartition(
                            partition=index, fetch_offset=offset, partition_max_bytes=1 << 16
                        )
                    ],
                )
                for (topic, index), offset in changed.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(topic=topic, topic_id=self._topic_ids[topic], partitions=[index])
                for topic, index in forgotten
            ],
        )
        self._deleted = {p: self.history.partitions[p].deleted_until for p in self.positions}
        try:
            answer = await self.speaker.ask(request, FetchResponse, version)
        except Gone:
            self.forget_session()
            raise
        if answer.error_code:
            self.forget_session()
            return
        session.id = answer.session_id
        session.epoch = session.epoch + 1 if answer.session_id else 0
        session.known = dict(self.positions) if answer.session_id else {}
        names = {topic_id: name for name, topic_id in self._topic_ids.items()}
        for topic in answer.responses:
            name = names[topic.topic_id] if topic.topic_id != ZERO_UUID else topic.topic
            for one in topic.partitions:
                await self._take((name, one.partition_index), one)

    async def _take(self, place: Place, one: PartitionData) -> None:
        if place not in self.positions:
            return
        if one.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            found = await earliest(self.speaker, place)
            if found is not None:
                self.positions[place] = found
            return
        if one.error_code:
            return
        self._check_watermarks(place, one)
        for batch in batches(one.records or b""):
            if not batch.crc_ok:
                self.history.wrong(f"{place}: a batch with a wrong CRC was served")
                continue
            for record in batch.records():
                if record.offset >= self.positions[place]:
                    self.history.read(place, record.offset, bytes(record.value or b""))
                    self.positions[place] = record.offset + 1

    def _check_watermarks(self, place: Place, one: PartitionData) -> None:
        self.history.log_start(place, one.log_start_offset, self._deleted[place])
        if self._cuts != self.history.power_cuts:
            self._cuts = self.history.power_cuts
            self._watermarks.clear()
        if one.high_watermark < self._watermarks.get(place, 0):
            self.history.wrong(f"{place}: the high watermark went back to {one.high_watermark}")
        self._watermarks[place] = one.high_watermark


async def earliest(speaker: Speaker, place: Place) -> int | None:
    """Return the first offset of a partition."""
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(
                name=place[0],
                partitions=[ListOffsetsPartition(partition_index=place[1], timestamp=EARLIEST)],
            )
        ],
    )
    answer = await speaker.ask(request, ListOffsetsResponse)
    (one,) = answer.topics[0].partitions
    return None if one.error_code else one.offset


async def committed(speaker: Speaker, group: str, places: list[Place]) -> dict[Place, int]:
    """Return the committed offsets; raise Rejoin while the broker cannot return them."""
    topics = [
        OffsetFetchRequestTopics(name=topic, partition_indexes=[index]) for topic, index in places
    ]
    answer = await speaker.ask(
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)]),
        OffsetFetchResponse,
        BY_NAME,
    )
    (found,) = answer.groups
    if found.error_code:
        await speaker.pause(0.3)
        raise Rejoin(ErrorCode(found.error_code).name)
    return {
        (topic.name, one.partition_index): one.committed_offset
        for topic in found.topics
        for one in topic.partitions
    }


class Watcher:
    """Reads all partitions without a group, with long polls."""

    def __init__(
        self,
        world: Simulation,
        history: History,
        places: Sequence[Place],
        topic_ids: dict[str, Uuid],
    ) -> None:
        self._world = world
        self._places = places
        self._speaker = Speaker(world, "watcher")
        self._fetcher = Fetcher(world, history, self._speaker, topic_ids)

    async def run(self, until_s: float) -> None:
        self._fetcher.positions = dict.fromkeys(self._places, 0)
        while self._world.clock.elapsed_s() < until_s:
            try:
                await self._fetcher.fetch(3000)
            except Gone:
                await self._speaker.pause(0.3)


class Member:
    """A group member: joins, reads and commits, and sometimes disappears.

    With an instance it is a static member: it does not leave, and a later member with the same
    instance replaces it.
    """

    def __init__(
        self,
        world: Simulation,
        history: History,
        group: str,
        name: str,
        topics: Sequence[str],
        topic_ids: dict[str, Uuid],
        instance: str | None = None,
    ) -> None:
        self.random = Random(f"{world.seed} {group} {name}")
        self.world = world
        self.history = history
        self.group = group
        self.name = name
        self.speaker = Speaker(world, name)
        self.fetcher = Fetcher(world, history, self.speaker, topic_ids)
        self.instance = instance
        self.may_sleep = True
        self.stopping = False
        self.is_outdated = False  # another member has joined with the same instance
        self.settled: tuple[int, frozenset[Place]] | None = None  # generation and assignment
        self._topics = list(topics)
        self._member_id = ""
        self._generation = -1
        self._shared_out: list[Place] | None = None  # the partitions that the leader assigned
        self._beaten_s = 0.0
        self._committed: dict[Place, int] = {}
        self._version = self.random.choice((FETCH_BY_NAME, FETCH_BY_ID))

    async def run(self) -> None:
        while not self.stopping:
            try:
                await self._join()
                while not self.stopping:
                    await self._work()
            except Rejoin:
                continue
            except Fenced:
                return
            except Gone:
                await self.speaker.pause(0.1 + 0.4 * self.random.random())
        await self._leave()

    async def vanish(self) -> None:
        """Stop at once; the broker has to detect it."""
        self.speaker.vanish()

    # Join.

    async def _join(self) -> None:
        self.settled = None
        sent_s = self.world.clock.elapsed_s()
        subscription = ConsumerProtocolSubscription(topics=self._topics)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name="range", metadata=encode_embedded(subscription, 1))
            ],
        )
        joined = await self.speaker.ask(request, JoinGroupResponse, seconds_max=15.0)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            raise Rejoin
        await self._check(joined.error_code)
        self._member_id, self._generation = joined.member_id, joined.generation_id
        if self.instance is not None:
            now_s = self.world.clock.elapsed_s()
            self.history.incarnated(self.group, self.instance, self._member_id, sent_s, now_s)
        assignments: list[SyncGroupRequestAssignment] = []
        self._shared_out = None
        if joined.skip_assignment:
            # It was the leader before, and all members have their assignments (KIP-814).
            known = self.history.shared_out(self.group, self._generation)
            self._shared_out = [place for place in self._places() if place in known]
        elif joined.leader == joined.member_id:
            self._shared_out = self._places()
            assignments = self._assigned([one.member_id for one in joined.members])
        synced = await self.speaker.ask(
            SyncGroupRequest(
                group_id=self.group,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=self.instance,
                protocol_type="consumer",
                protocol_name="range",
                assignments=assignments,
            ),
            SyncGroupResponse,
            seconds_max=15.0,
        )
        await self._check(synced.error_code)
        self._beaten_s = self.world.clock.elapsed_s()
        assigned = decode_embedded(ConsumerProtocolAssignment, synced.assignment)
        mine = [
            (one.topic, index) for one in assigned.assigned_partitions for index in one.partitions
        ]
        who = self._member_id if self.instance is None else self.instance
        self.history.synced(self.group, self._generation, who, mine)
        await self._begin(mine)
        self.settled = self._generation, frozenset(mine)

    def _places(self) -> list[Place]:
        return [(t, n) for t in self._topics for n in range(self.history.counts[t])]

    def _assigned(self, members: list[str]) -> list[SyncGroupRequestAssignment]:
        places = self._places()
        return [
            SyncGroupRequestAssignment(
                member_id=member,
                assignment=encode_embedded(
                    ConsumerProtocolAssignment(
                        assigned_partitions=[
                            TopicPartition(topic=topic, partitions=[index])
                            for topic, index in places[number :: len(members)]
                        ]
                    ),
                    1,
                ),
            )
            for number, member in enumerate(sorted(members))
        ]

    async def _check(self, code: int) -> None:
        error = ErrorCode(code)
        if error is ErrorCode.NONE:
            return
        if error is ErrorCode.FENCED_INSTANCE_ID and self.is_outdated:
            raise Fenced
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._member_id = ""  # or fenced by its own delayed request
        elif error not in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
            # The coordinator is loading or not created yet, or the disk has failed: retry later.
            await self.speaker.ask(
                FindCoordinatorRequest(coordinator_keys=[self.group]), FindCoordinatorResponse
            )
            await self.speaker.pause(0.3)
        raise Rejoin

    async def _begin(self, mine: list[Place]) -> None:
        self.fetcher.forget_session()
        self.fetcher.positions.clear()
        self._committed.clear()
        for place, offset in (await committed(self.speaker, self.group, mine)).items():
            self.history.found_committed(self.group, place, offset)
            if offset < 0:
                found = await earliest(self.speaker, place)
                if found is None:
                    raise Rejoin
                offset = found
            self.fetcher.positions[place] = self._committed[place] = offset

    # Work.

    async def _work(self) -> None:
        if self._shared_out is not None and self._shared_out != self._places():
            raise Rejoin  # a topic has grown: the leader assigns again
        if self.world.clock.elapsed_s() - self._beaten_s > SESSION_MS / 4000:
            await self._beat()
        if self.fetcher.positions:
            await self.fetcher.fetch(self.random.choice((0, 100, 500)), self._version)
        await self.speaker.pause(0.02 + 0.2 * self.random.random())
        if self.may_sleep and self.random.random() < 0.01:
            # It may be removed meanwhile without knowing it.
            await self.speaker.pause(2.5 * SESSION_MS / 1000 * self.random.random())
            await self._commit()
        elif self.random.random() < 0.4:
            await self._commit()

    async def _beat(self) -> None:
        answer = await self.speaker.ask(
            HeartbeatRequest(
                group_id=self.group,
                generation_id=self._generation,
                member_id=self._member_id,
                group_instance_id=self.instance,
            ),
            HeartbeatResponse,
        )
        if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS and self.random.random() < 0.8:
            await self._commit()
        await self._check(answer.error_code)
        self._beaten_s = self.world.clock.elapsed_s()

    async def _commit(self) -> None:
        """Commit the positions, sometimes twice."""
        due = {p: o for p, o in self.fetcher.positions.items() if self._committed.get(p) != o}
        if not due:
            return
        numbers = {p: self.history.committing(self.group, p, o) for p, o in due.items()}
        newest = self.history.generations[self.group]
        generation, replaced = self._generation, self._is_replaced()
        answer = await self.speaker.ask(
            OffsetCommitRequest(
                group_id=self.group,
                generation_id_or_member_epoch=generation,
                member_id=self._member_id,
                group_instance_id=self.instance,
                topics=[
                    OffsetCommitRequestTopic(
                        name=topic,
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=index,
                                committed_offset=offset,
                                committed_metadata="",
                            )
                        ],
                    )
                    for (topic, index), offset in due.items()
                ],
            ),
            OffsetCommitResponse,
            BY_NAME,
        )
        worst = 0
        for topic in answer.topics:
            for one in topic.partitions:
                place = (topic.name, one.partition_index)
                if one.error_code == ErrorCode.NONE:
                    if replaced:
                        self.history.wrong(f"{self.group}: {self.name} was replaced, and commits")
                    self.history.committed(self.group, place, numbers[place], generation, newest)
                    self._committed[place] = due[place]
                else:
                    worst = one.error_code
                    if worst in (
                        ErrorCode.ILLEGAL_GENERATION,
                        ErrorCode.UNKNOWN_MEMBER_ID,
                        ErrorCode.REBALANCE_IN_PROGRESS,
                        ErrorCode.FENCED_INSTANCE_ID,
                    ):
                        self.history.refused(self.group, place, numbers[place])
        await self._check(worst)

    def _is_replaced(self) -> bool:
        return self.instance is not None and self.history.is_replaced(
            self.group, self.instance, self._member_id
        )

    async def _leave(self) -> None:
        if not self._member_id or self.instance is not None:
            return
        try:
            await self.speaker.ask(
                LeaveGroupRequest(
                    group_id=self.group, members=[MemberIdentity(member_id=self._member_id)]
                ),
                LeaveGroupResponse,
            )
        except Gone:
            self.speaker.hang_up()

"""Leaders that serve Fetch and ListOffsets from real logs, and a follower that fetches from them.

A leader answers as the Fetch handler does: with real fetch sessions, epoch checks and encoders. Its
high watermark is set by the test.
"""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from random import Random
from typing import Any

from log.log_managers import TOPIC_ID, append, opened, partition
from log.logs import raw
from ottla.broker.fetch_sessions import FetchPartition, FetchSessions
from ottla.cluster.image import Address, Broker, PartitionState
from ottla.errors import ErrorCode, RequestError
from ottla.ids import BrokerEpoch, BrokerId, LeaderEpoch, TopicPartition
from ottla.log.loading import HostedLog
from ottla.log.log_config import LogConfig
from ottla.log.log_manager import LogManager
from ottla.protocol.apis import API_VERSIONS, FETCH, LIST_OFFSETS
from ottla.protocol.conversation import Request, ServerConversation
from ottla.protocol.message import Message
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.replication.fetcher import FetcherConfig, ReplicaFetchers
from ottla.replication.follower import FollowerPartition
from ottla.testing.clock import SimulatedClock, simulated
from ottla.testing.device import SimulatedDevice
from ottla.testing.disk import Loss, SimulatedDisk
from ottla.testing.network import CALM, SimulatedNetwork, SimulatedTransport, Weather
from ottla.testing.trace import Trace
from ottla.transport.backoff import Backoff
from ottla.transport.broker_channels import BrokerChannels, ChannelsConfig

PORT = 9092
SERVED = (FETCH, LIST_OFFSETS)
RULES = LogConfig(segment_bytes=1000, index_interval_bytes=150)
FOLLOWER = BrokerId(1)


def address(broker_id: int) -> str:
    return f"10.0.0.{broker_id}"


def state(leader: int, epoch: int, version: int = 0) -> PartitionState:
    replicas = (BrokerId(1), BrokerId(2), BrokerId(3))
    return PartitionState(replicas, BrokerId(leader), LeaderEpoch(epoch), replicas, version)


class _Connection(asyncio.Protocol):
    """Serves one request at a time, in order."""

    def __init__(self, leader: "Leader") -> None:
        self._leader = leader
        self._conversation = ServerConversation()
        self._transport: SimulatedTransport | None = None
        self._requests: asyncio.Queue[Request] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimulatedTransport)
        self._transport = transport
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def connection_lost(self, exc: Exception | None) -> None:
        assert self._task is not None
        self._task.cancel()

    def data_received(self, data: bytes) -> None:
        for request in self._conversation.receive(data):
            self._requests.put_nowait(request)

    async def _serve(self) -> None:
        assert self._transport is not None
        while True:
            request = await self._requests.get()
            response = await self._leader.handle(request)
            self._transport.writelines(self._conversation.send(request, response))


class Leader:
    """A broker that leads every partition that it has a log of."""

    def __init__(self, broker_id: int, world: "World", logs: LogManager) -> None:
        self.id = BrokerId(broker_id)
        self.logs = logs
        self.fetches: list[FetchRequest] = []  # copies of what was requested
        self.epoch = 0
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.slots = 10  # of fetch sessions
        self.hold: asyncio.Event | None = None  # responses wait for it
        self.mend: Callable[[FetchResponse], None] = lambda response: None
        self.host = world.network.host(address=address(broker_id))
        self._clock = world.clock
        self._numbers = count(100)
        self._appended = asyncio.Event()
        self.evict_sessions()

    def evict_sessions(self) -> None:
        self._sessions = FetchSessions(lambda: self.slots, lambda: next(self._numbers))

    async def listen(self) -> None:
        server = await self.host.hold(lambda: _Connection(self), None, PORT, 10)
        await server.start()

    async def create(self, number: int, epoch: int = 0) -> HostedLog:
        hosted = await self.logs.create(partition(number), TOPIC_ID, RULES)
        self.epoch = epoch
        hosted.log.begin_epoch(LeaderEpoch(epoch))
        return hosted

    def lead(self, epoch: int) -> None:
        """Begin a leader epoch of every partition."""
        self.epoch = epoch
        for hosted in self.logs:
            hosted.log.begin_epoch(LeaderEpoch(epoch))

    def append(self, number: int, *values: bytes) -> None:
        append(self.logs[partition(number)], *values)
        self.wake()

    def commit(self, number: int, high_watermark: int) -> None:
        self.high_watermarks[partition(number)] = high_watermark
        self.wake()

    def wake(self) -> None:
        self._appended.set()
        self._appended = asyncio.Event()

    # Requests.

    async def handle(self, request: Request) -> Message:
        message = request.message
        if request.api is API_VERSIONS:
            keys = [
                ApiVersion(api_key=api.key, min_version=api.versions.low,
                           max_version=api.versions.high)
                for api in SERVED
            ]  # fmt: skip
            return ApiVersionsResponse(error_code=0, api_keys=keys)
        if isinstance(message, ListOffsetsRequest):
            return self._list_offsets(message)
        assert isinstance(message, FetchRequest)
        self.fetches.append(message)
        response = await self._fetch(message)
        if self.hold is not None:
            await self.hold.wait()
        self.mend(response)
        return response

    async def _fetch(self, message: FetchRequest) -> FetchResponse:
        assert message.replica_state is not None
        changed = [
            FetchPartition(
                (topic.topic_id, one.partition),
                one.fetch_offset,
                one.partition_max_bytes,
                one.current_leader_epoch,
                one.last_fetched_epoch,
                one.log_start_offset,
            )
            for topic in message.topics
            for one in topic.partitions
        ]
        forgotten = [
            (topic.topic_id, number)
            for topic in message.forgotten_topics_data
            for number in topic.partitions
        ]
        try:
            session = self._sessions.begin(
                message.session_id,
                message.session_epoch,
                changed,
                forgotten,
                by_id=True,
                now_s=self._clock.elapsed_s(),
            )
        except RequestError as error:
            return FetchResponse(throttle_time_ms=0, error_code=int(error.code), responses=[])
        wanted = changed if session is None else [*session.wanted.values()]
        deadline_s = self._clock.elapsed_s() + message.max_wait_ms / 1000
        while True:
            found = [self._read(one) for one in wanted]
            news = [one for one in found if one.records or one.error_code or one.diverging_epoch]
            left_s = deadline_s - self._clock.elapsed_s()
            if news or left_s <= 0:
                break
            waiting = asyncio.ensure_future(self._appended.wait())
            await asyncio.wait((waiting,), timeout=left_s)
            waiting.cancel()
        return FetchResponse(
            throttle_time_ms=0,
            session_id=0 if session is None else session.id,
            responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=found)],
        )

    def _read(self, wanted: FetchPartition) -> PartitionData:
        number = wanted.key[1]
        data = PartitionData(
            partition_index=number,
            error_code=0,
            high_watermark=-1,
            aborted_transactions=None,
            records=b"",
        )
        hosted = self.logs.get(partition(number))
        if hosted is None:
            data.error_code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return data
        log = hosted.log
        data.error_code = int(self._fence(wanted.current_leader_epoch))
        if data.error_code:
            return data
        data.high_watermark = self.high_watermarks.get(partition(number), 0)
        data.log_start_offset = log.log_start_offset
        if wanted.last_fetched_epoch >= 0:
            end = log.end_offset(wanted.last_fetched_epoch)
            if end is None:
                data.error_code = int(ErrorCode.OFFSET_OUT_OF_RANGE)
                return data
            if wanted.offset < log.log_start_offset:
                data.error_code = int(ErrorCode.OFFSET_OUT_OF_RANGE)
                return data
            if end.epoch < wanted.last_fetched_epoch or end.end_offset < wanted.offset:
                data.diverging_epoch = EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset)
                return data
        try:
            found = log.read_cached(wanted.offset, log.log_end_offset, wanted.bytes_max)
        except RequestError as error:
            data.error_code = int(error.code)
            return data
        data.records = found.cached()
        return data

    def _fence(self, epoch: int) -> ErrorCode:
        if epoch == self.epoch:
            return ErrorCode.NONE
        is_older = epoch < self.epoch
        return ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH

    def _list_offsets(self, message: ListOffsetsRequest) -> Message:
        return ListOffsetsResponse(
            throttle_time_ms=0,
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[self._offset(topic.name, one) for one in topic.partitions],
                )
                for topic in message.topics
            ],
        )

    def _offset(self, topic: str, one: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        log = self.logs[TopicPartition(topic, one.partition_index)].log
        error = self._fence(one.current_leader_epoch)
        offset = log.log_end_offset if one.timestamp == -1 else log.log_start_offset
        return ListOffsetsPartitionResponse(
            partition_index=one.partition_index, error_code=int(error), offset=offset
        )


class World:
    """A follower, broker 1, and the leaders 2 and 3."""

    def __init__(self, clock: SimulatedClock, weather: Weather, seed: int) -> None:
        self.clock = clock
        self.network = SimulatedNetwork(Random(seed), Trace(), weather)
        self.host = self.network.host(address=address(FOLLOWER))
        self.brokers = {
            BrokerId(number): Broker(
                BrokerId(number), BrokerEpoch(7), {"INTERNAL": Address(address(number), PORT)}
            )
            for number in (1, 2, 3)
        }
        self.disk: SimulatedDisk = SimulatedDisk()
        self.leaders: dict[int, Leader] = {}
        self.followers: dict[int, FollowerPartition] = {}
        self._logs: LogManager | None = None
        self._fetchers: ReplicaFetchers | None = None

    @property
    def logs(self) -> LogManager:
        assert self._logs is not None
        return self._logs

    @property
    def fetchers(self) -> ReplicaFetchers:
        assert self._fetchers is not None
        return self._fetchers

    async def begin(self) -> None:
        for number in (2, 3):
            logs = await opened(SimulatedDisk(), self.clock, rules=RULES)
            self.leaders[number] = Leader(number, self, logs)
            await self.leaders[number].listen()
        await self.start()

    async def start(self) -> None:
        """Start the follower, on the disk that it has."""
        self._logs = await opened(self.disk, self.clock, rules=RULES)
        channels = BrokerChannels(
            FOLLOWER,
            ChannelsConfig(
                client_id="broker-1-fetcher",
                listener="INTERNAL",
                backoff=Backoff(0.05, 1.0, lambda: 0.5),
            ),
            network=self.host,
            clock=self.clock,
            broker=self.brokers.get,
            serve=_serve_nobody,
        )
        self._fetchers = ReplicaFetchers(
            FOLLOWER,
            channels=channels,
            logs=self._logs,
            config=FetcherConfig(),
            broker_epoch=lambda: BrokerEpoch(7),
            clock=self.clock,
            random=lambda: 0.5,
        )

    async def follow(
        self, number: int, leader: int, epoch: int, rules: LogConfig = RULES
    ) -> FollowerPartition:
        """Follow a leader in a leader epoch, as after LeaderAndIsr."""
        hosted = self.logs.get(partition(number))
        if hosted is None:
            hosted = await self.logs.create(partition(number), TOPIC_ID, rules)
        follower = self.followers.get(number)
        if follower is None or follower.hosted is not hosted:
            follower = FollowerPartition(hosted, TOPIC_ID, state(leader, epoch))
            self.followers[number] = follower
        else:
            follower.update(state(leader, epoch))
        self.fetchers.set(follower)
        return follower

    async def crash(self, loss: Loss, random: Random) -> None:
        """Let the follower lose power, and start it again; nothing is followed then."""
        self.host.die()
        self.disk.crash_at = 0
        await self.fetchers.close()
        self.disk = self.disk.after_crash(loss, random)
        self.host = self.network.host(address=address(FOLLOWER))
        self.followers.clear()
        await self.start()

    async def until(self, condition: Callable[[], object], seconds: float = 60.0) -> float:
        """Wait for a condition; return how long it took."""
        began_s = self.clock.elapsed_s()
        while not condition():
            assert self.clock.elapsed_s() - began_s < seconds, "the condition did not come true"
            await self.clock.sleep(0.001)
        return self.clock.elapsed_s() - began_s

    def is_equal(self, number: int, leader: int) -> bool:
        """Whether the follower has the bytes of the leader, from its log start offset on."""
        follower, led = self.followers[number].log, self.leaders[leader].logs[partition(number)].log
        if follower.log_end_offset != led.log_end_offset:
            return False
        start = max(follower.log_start_offset, led.log_start_offset)
        return raw(follower, start) == raw(led, start)


async def _serve_nobody(message: Message) -> Message:
    raise AssertionError("a broker does not fetch from itself")


def at(
    scenario: Callable[[World], Coroutine[Any, Any, None]],
    weather: Weather = CALM,
    seed: int = 1,
    *,
    slow_disk: bool = False,
) -> None:
    """Run a scenario in simulated time; a slow disk of the follower takes time, too."""

    async def program(clock: SimulatedClock) -> None:
        world = World(clock, weather, seed)
        if slow_disk:
            world.disk = SimulatedDevice(clock, Random(seed))
        await world.begin()
        await scenario(world)
        await world.fetchers.close()
        await world.fetchers.channels.close()
        for leader in world.leaders.values():
            leader.host.die()

    simulated(program)

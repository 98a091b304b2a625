"""The consumer at a scripted broker: situations that are rare on real ones."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from cases import each_case
from client.consumer.test_fetched_batches import batch
from client.consumer_scenarios import take
from client.scenario_runner import FAST, run, until
from client.scripted_broker import ScriptedBroker
from ottla.client.calls.targets import UNKNOWN_TRIES
from ottla.client.consumer.consumer import Consumer
from ottla.client.consumer.missing_partitions import PATIENCE_S
from ottla.client.consumer.position_resolver import Truncated
from ottla.clock import Clock, SystemClock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import Uuid
from ottla.protocol.apis import OFFSET_FOR_LEADER_EPOCH
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from ottla.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.records import BatchBuilder
from ottla.transport.channel import Disconnected, TimedOut

ID = Uuid(b"t" * 16)


class Stage:
    """A topic with one partition: its records, its leader and its leader epoch."""

    def __init__(self) -> None:
        self.leader = 1
        self.epoch = 7
        self.end = 10
        self.epoch_end = 10
        self.session = 0
        self.brokers: list[ScriptedBroker] = []
        self.before: Callable[[FetchRequest], FetchResponse | None] = lambda request: None
        self.records: Callable[[int, int], bytes] = batch

    def metadata(self, _: MetadataRequest) -> MetadataResponse:
        partition = MetadataResponsePartition(
            error_code=0 if self.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE,
            partition_index=0,
            leader_id=self.leader,
            leader_epoch=self.epoch,
            replica_nodes=[1],
            isr_nodes=[1],
            offline_replicas=[],
        )
        topic = MetadataResponseTopic(
            error_code=0, name="t", topic_id=ID, is_internal=False, partitions=[partition]
        )
        nodes = [
            MetadataResponseBroker(node_id=one.number, host="127.0.0.1", port=one.place.port)
            for one in self.brokers
        ]
        return MetadataResponse(brokers=nodes, cluster_id="c", controller_id=1, topics=[topic])

    def offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        at = request.topics[0].partitions[0].timestamp
        found = ListOffsetsPartitionResponse(
            partition_index=0,
            error_code=0,
            timestamp=-1,
            offset=0 if at == -2 else self.end,
            leader_epoch=self.epoch,
        )
        topic = ListOffsetsTopicResponse(name="t", partitions=[found])
        return ListOffsetsResponse(topics=[topic])

    def ends(self, _: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        end = EpochEndOffset(
            error_code=0, partition=0, leader_epoch=self.epoch - 1, end_offset=self.epoch_end
        )
        topic = OffsetForLeaderTopicResult(topic="t", partitions=[end])
        return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=[topic])

    def fetch(self, request: FetchRequest) -> FetchResponse:
        answer = self.before(request)
        if answer is not None:
            return answer
        wanted = [one for topic in request.topics for one in topic.partitions]
        if wanted and wanted[0].current_leader_epoch < self.epoch:
            return self.answer(ErrorCode.FENCED_LEADER_EPOCH)
        if not wanted or wanted[0].fetch_offset >= self.end:
            return self.answer()
        start = wanted[0].fetch_offset
        return self.answer(records=self.records(start, min(5, self.end - start)))

    def answer(self, error: int = 0, top: int = 0, **more: Any) -> FetchResponse:
        result = PartitionData(
            partition_index=0,
            error_code=error,
            high_watermark=self.end,
            aborted_transactions=None,
            records=more.pop("records", b""),
            **more,
        )
        topic = FetchableTopicResponse(topic="t", topic_id=ID, partitions=[result])
        return FetchResponse(
            throttle_time_ms=0, error_code=top, session_id=self.session, responses=[topic]
        )

    def broker(self, number: int = 1, **more: Any) -> ScriptedBroker:
        made = ScriptedBroker(
            {
                MetadataRequest: self.metadata,
                ListOffsetsRequest: self.offsets,
                OffsetForLeaderEpochRequest: self.ends,
                FetchRequest: self.fetch,
            },
            number=number,
            **more,
        )
        self.brokers.append(made)
        return made


def reading(
    broker: ScriptedBroker,
    reset: str = "earliest",
    group: str | None = None,
    clock: Clock | None = None,
    partition_bytes_max: int = 1,
) -> Consumer[bytes, bytes]:
    settings: dict[str, object] = {
        **FAST,
        "bootstrap.servers": broker.bootstrap_servers,
        "auto.offset.reset": reset,
        "max.partition.fetch.bytes": partition_bytes_max,
        "metadata.max.age.ms": 50,
        "fetch.max.wait.ms": 50,
        "group.id": group,
        "enable.auto.commit": False,
    }
    return Consumer(settings, clock=clock)


async def start_at(ours: Consumer[bytes, bytes], offset: int) -> None:
    ours.assign(("t", 0))
    ours.seek(("t", 0), offset)


@pytest.mark.parametrize("reset", ["earliest", "none"])
def test_truncation_at_a_new_leader_raises_or_resets(reset: str) -> None:
    async def scenario() -> None:
        stage = Stage()
        async with stage.broker() as broker, reading(broker, reset) as ours:
            await start_at(ours, 0)
            assert [one.offset for one in await take(ours, 10)] == [*range(10)]
            stage.epoch, stage.epoch_end, stage.end = 8, 6, 8  # four records were lost, two are new
            if reset == "none":
                with pytest.raises(Truncated) as caught:
                    await ours.poll(10)
                assert (caught.value.position, caught.value.end_offset) == (10, 6)
                ours.seek(("t", 0), 6)
            assert [one.offset for one in await take(ours, 2)] == [6, 7]

    run(scenario())


@each_case("reset, end", [("earliest", 3), ("earliest", 4), ("none", 3), ("none", 4)])
def test_lost_records_that_were_only_fetched_are_replaced(reset: str, end: int) -> None:
    """The application has seen none of the records that a new leader lacks."""

    def rewritten(start: int, count: int) -> bytes:
        builder = BatchBuilder()
        for n in range(start, start + count):
            builder.append(0, None, b"%d" % n if n < end else b"new %d" % n)
        return builder.build(base_offset=start, leader_epoch=8)

    async def scenario() -> None:
        stage = Stage()
        async with (
            stage.broker() as broker,
            reading(broker, reset, partition_bytes_max=1000) as ours,
        ):

            def is_fetched(offset: int, epoch: int) -> bool:
                return any(
                    (place.fetch_offset, place.current_leader_epoch) == (offset, epoch)
                    for one in broker.asked
                    if isinstance(one, FetchRequest)
                    for topic in one.topics
                    for place in topic.partitions
                )

            await start_at(ours, 0)
            assert [one.offset for one in await ours.poll(10, max_records=3)] == [0, 1, 2]
            await until(lambda: is_fetched(10, 7))  # all records are fetched
            stage.epoch, stage.epoch_end, stage.end, stage.records = 8, end, 8, rewritten
            await until(lambda: is_fetched(3, 8), lambda: "the fetched records were not dropped")
            values = [one.value for one in await take(ours, 5)]
            assert values == [b"%d" % n if n < end else b"new %d" % n for n in range(3, 8)]

    run(scenario())


def test_unchanged_records_under_a_new_leader_are_read_on() -> None:
    async def scenario() -> None:
        stage = Stage()
        async with stage.broker() as broker, reading(broker, "none") as ours:
            await start_at(ours, 0)
            await take(ours, 10)
            stage.epoch, stage.end, stage.epoch_end = 8, 12, 10
            assert [one.offset for one in await take(ours, 2)] == [10, 11]
            assert broker.count(OffsetForLeaderEpochRequest)

    run(scenario())


def test_position_is_not_validated_at_an_old_broker() -> None:
    async def scenario() -> None:
        stage = Stage()
        old = {OFFSET_FOR_LEADER_EPOCH: -1}
        async with stage.broker(newest=old) as broker, reading(broker, "none") as ours:
            await start_at(ours, 0)
            await take(ours, 10)
            stage.epoch, stage.end = 8, 12
            assert [one.offset for one in await take(ours, 2)] == [10, 11]

    run(scenario())


def test_leader_named_in_a_response_is_asked_at_once() -> None:
    async def scenario() -> None:
        stage = Stage()
        async with stage.broker() as first, stage.broker(2) as second, reading(first) as ours:

            def elsewhere(request: FetchRequest) -> FetchResponse | None:
                if second.count(FetchRequest):
                    return None
                stage.epoch = 8
                hint = LeaderIdAndEpoch(leader_id=2, leader_epoch=8)
                code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                return stage.answer(code, current_leader=hint)

            stage.before = elsewhere
            stage.epoch_end = 10
            await start_at(ours, 0)
            assert (await take(ours, 1))[0].offset == 0
            assert second.count(FetchRequest)

    run(scenario())


@pytest.mark.parametrize(
    "code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH]
)
def test_lost_fetch_session_is_restarted(code: ErrorCode) -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.session = 99
        lost: list[int] = []

        def once(request: FetchRequest) -> FetchResponse | None:
            if request.session_id and not lost:
                lost.append(request.session_epoch)
                return stage.answer(top=code)
            return None

        stage.before = once
        async with stage.broker() as broker, reading(broker) as ours:
            await start_at(ours, 0)
            assert [one.offset for one in await take(ours, 10)] == [*range(10)]
        assert lost

    run(scenario())


def test_preferred_replica_is_used_until_it_lags() -> None:
    async def scenario() -> None:
        stage = Stage()
        async with stage.broker() as leader, stage.broker(2) as near, reading(leader) as ours:
            lags: list[int] = []

            def nearby(request: FetchRequest) -> FetchResponse | None:
                if not near.count(FetchRequest):
                    return stage.answer(preferred_read_replica=2)
                if near.count(FetchRequest) == 2 and not lags:
                    lags.append(1)
                    return stage.answer(ErrorCode.OFFSET_OUT_OF_RANGE)
                return None

            stage.before = nearby
            await start_at(ours, 0)
            assert [one.offset for one in await take(ours, 10)] == [*range(10)]
            assert lags
            assert not leader.count(ListOffsetsRequest), "the position was not looked up again"

    run(scenario())


def test_fatal_fetch_error_is_raised_and_reading_can_continue() -> None:
    async def scenario() -> None:
        stage = Stage()
        told: list[int] = []

        def refused(request: FetchRequest) -> FetchResponse | None:
            if not told:
                told.append(1)
                return stage.answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return None

        stage.before = refused
        async with stage.broker() as broker, reading(broker) as ours:
            await start_at(ours, 0)
            with pytest.raises(RequestError) as caught:
                await ours.poll(10)
            assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert (await take(ours, 1))[0].offset == 0

    run(scenario())


def test_leaderless_partition_is_polled_with_backoff() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.leader = -1
        settings = {"retry.backoff.ms": 100, "retry.backoff.max.ms": 100}
        async with stage.broker() as broker:
            given = {"bootstrap.servers": broker.bootstrap_servers, **settings}
            async with Consumer(given) as ours:
                await start_at(ours, 0)
                assert await ours.poll(1.0) == []
                asked = broker.count(MetadataRequest)
                assert 2 <= asked <= 15, "once a pause, and not one question after the other"
                stage.leader = 1
                assert (await take(ours, 1))[0].offset == 0

    run(scenario())


def test_prefetching_is_bounded() -> None:
    async def scenario() -> None:
        stage = Stage()
        stage.end = 1_000_000
        async with stage.broker() as broker:
            settings = {
                **FAST,
                "bootstrap.servers": broker.bootstrap_servers,
                "max.partition.fetch.bytes": 300,
            }
            async with Consumer(settings) as ours:
                await start_at(ours, 0)
                await take(ours, 1)
                await asyncio.sleep(0.3)
                before = broker.count(FetchRequest)
                await asyncio.sleep(0.3)
                assert broker.count(FetchRequest) == before <= 6
                await take(ours, 100)
                assert broker.count(FetchRequest) > before

    run(scenario())


def test_end_offsets_wait_for_a_missing_topic() -> None:
    """An admin client gets the error soon; a consumer may be faster than the topic's creation."""

    async def scenario() -> None:
        stage = Stage()
        async with stage.broker() as broker, reading(broker) as ours:

            def late(request: MetadataRequest) -> MetadataResponse:
                result = stage.metadata(request)
                if broker.count(MetadataRequest) <= UNKNOWN_TRIES + 3:
                    result.topics = ()
                return result

            broker.answers[MetadataRequest] = late
            assert await ours.end_offsets(("t", 0)) == {("t", 0): 10}

    run(scenario())


class FastClock(SystemClock):
    """A clock that a test can advance."""

    ahead_s = 0.0

    def elapsed_s(self) -> float:
        return super().elapsed_s() + self.ahead_s


@pytest.mark.parametrize("seeks", [True, False])
def test_missing_partition_is_reported_and_found_later(seeks: bool) -> None:
    async def scenario() -> None:
        stage, clock = Stage(), FastClock()
        async with stage.broker() as broker, reading(broker, clock=clock) as ours:

            def without(request: MetadataRequest) -> MetadataResponse:
                told = stage.metadata(request)
                told.topics[0].partitions[0].partition_index = 7
                return told

            broker.answers[MetadataRequest] = without
            ours.assign(("t", 0))
            if seeks:
                ours.seek(("t", 0), 3)
            else:
                with pytest.raises(TimedOut, match=r"t-0 is not known.*topic has 1 partitions"):
                    await ours.position(("t", 0), 0.5)
            for _ in range(2):
                assert await ours.poll(0.2) == [], "the partition may still be created"
                clock.ahead_s += PATIENCE_S
                with pytest.raises(RequestError, match="t-0: the topic has 1 partitions") as told:
                    await ours.poll(20)
                assert told.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            broker.answers[MetadataRequest] = stage.metadata
            assert (await take(ours, 1))[0].offset == (3 if seeks else 0)

    run(scenario())


def test_close_ends_list_offsets_calls() -> None:
    async def scenario() -> None:
        stage = Stage()
        async with stage.broker() as broker:
            asked = asyncio.Event()
            broker.answers[ListOffsetsRequest] = lambda _: asked.set()
            async with reading(broker) as ours:
                asking = asyncio.create_task(ours.end_offsets(("t", 0), timeout_s=600))
                await asked.wait()
            with pytest.raises(Disconnected, match="closed"):
                await asking

    run(scenario())


@pytest.mark.parametrize(("epoch", "questions"), [(7, 0), (6, 1), (-1, 0)])
def test_position_of_the_same_leader_is_not_validated(epoch: int, questions: int) -> None:
    """The consumer validates its position only at another leader than that of the last record."""

    async def scenario() -> None:
        stage = Stage()
        async with stage.broker() as broker, reading(broker, group="g") as ours:
            kept = OffsetFetchResponsePartitions(
                partition_index=0,
                committed_offset=4,
                committed_leader_epoch=epoch,
                metadata="",
                error_code=0,
            )
            topics = [OffsetFetchResponseTopics(name="t", topic_id=ID, partitions=[kept])]
            here = Coordinator(
                key="g",
                node_id=1,
                host="127.0.0.1",
                port=broker.place.port,
                error_code=0,
                error_message=None,
            )
            broker.answers |= {
                FindCoordinatorRequest: lambda _: FindCoordinatorResponse(coordinators=[here]),
                OffsetFetchRequest: lambda _: OffsetFetchResponse(
                    groups=[OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=0)]
                ),
            }
            await ours.partitions("t")
            ours.assign(("t", 0))
            assert [one.offset for one in await take(ours, 6)] == [*range(4, 10)]
            assert broker.count(OffsetForLeaderEpochRequest) == questions
            stage.epoch, stage.end, stage.epoch_end = 8, 12, 10  # the new leader is asked
            assert [one.offset for one in await take(ours, 2)] == [10, 11]
            assert broker.count(OffsetForLeaderEpochRequest) > questions

    run(scenario())

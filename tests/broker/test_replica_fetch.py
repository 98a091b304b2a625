"""Fetches of followers: up to the log end, in sessions that visit only what has changed."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from broker.nodes import Client, RunningBroker, broker, run
from broker.replicas import Replicas
from broker.test_node import batch, create, fetch_request, produce
from ottla.broker import fetch_read, fetch_sessions, replica_fetch_path
from ottla.errors import ErrorCode
from ottla.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, Uuid
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.records.batch import batches
from ottla.replication.fetch_purgatory import ReplicaWatch
from ottla.replication.partition import LATEST, Partition
from ottla.transport.connection import Connection
from transport.test_departures import until

VERSION = 17
NO_EPOCH = -1


@pytest.fixture(autouse=True, params=["handler", "fast path"])
def clients_are_brokers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every connection count as one of a broker, with and without the fast path."""
    if request.param == "fast path":
        made = Connection.connection_made

        def logged_in(self: Connection, transport: asyncio.BaseTransport) -> None:
            made(self, transport)
            self.is_broker = True

        monkeypatch.setattr(Connection, "connection_made", logged_in)

    def is_replica_allowed(connection: object) -> bool:
        return True

    for handler in ("fetch", "list_offsets", "offset_for_leader_epoch"):
        name = f"ottla.broker.handlers.{handler}.is_replica_allowed"
        monkeypatch.setattr(name, is_replica_allowed)


@asynccontextmanager
async def leading(
    tmp_path: Path, *settings: str, partitions: int = 1
) -> AsyncGenerator[tuple[Replicas, Client, Uuid]]:
    async with broker(tmp_path, *settings) as running:
        client = await running.client()
        topic_id = await create(client, "t", partitions)
        yield Replicas(running), client, topic_id


def asked(
    offset: int, *, index: int = 0, epoch: int = NO_EPOCH, last_epoch: int = -1, start: int = 0
) -> FetchPartition:
    return FetchPartition(
        partition=index,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=start,
        partition_max_bytes=1 << 20,
    )


def request(
    topic_id: Uuid,
    partitions: Iterable[FetchPartition],
    *,
    replica: int = 2,
    replica_epoch: int = 1,
    session: tuple[int, int] = (0, -1),
    wait_ms: int = 0,
    forgotten: Iterable[int] = (),
    bytes_max: int = 1 << 20,
) -> FetchRequest:
    topics = [FetchTopic(topic_id=topic_id, partitions=[*partitions])]
    gone = [ForgottenTopic(topic_id=topic_id, partitions=[*forgotten])]
    return FetchRequest(
        replica_state=ReplicaState(replica_id=replica, replica_epoch=replica_epoch),
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=bytes_max,
        session_id=session[0],
        session_epoch=session[1],
        topics=[topic for topic in topics if topic.partitions],
        forgotten_topics_data=[one for one in gone if one.partitions],
    )


class Follower:
    """A follower with a fetch session."""

    def __init__(self, client: Client, topic_id: Uuid, broker_id: int) -> None:
        self.client, self.topic_id, self.broker_id = client, topic_id, broker_id
        self.session, self.epoch = 0, 0

    async def fetch(
        self, *partitions: FetchPartition, wait_ms: int = 0, forgotten: Iterable[int] = ()
    ) -> dict[int, PartitionData]:
        message = request(
            self.topic_id,
            partitions,
            replica=self.broker_id,
            session=(self.session, self.epoch),
            wait_ms=wait_ms,
            forgotten=forgotten,
        )
        answer = await self.client.ask(message, FetchResponse, VERSION)
        assert answer.error_code == 0
        self.session, self.epoch = answer.session_id, self.epoch + 1
        found = [one for topic in answer.responses for one in topic.partitions]
        return {one.partition_index: one for one in found}


async def ask(client: Client, message: FetchRequest, version: int = VERSION) -> PartitionData:
    answer = await client.ask(message, FetchResponse, version)
    assert answer.error_code == 0
    (one,) = answer.responses[0].partitions
    return one


def values(data: PartitionData) -> list[bytes | None]:
    return [record.value for one in batches(data.records or b"") for record in one.records()]


async def follower(running: RunningBroker, topic_id: Uuid, broker_id: int = 2) -> Follower:
    return Follower(await running.client(), topic_id, broker_id)


def test_a6_followers_read_to_the_log_end_and_consumers_do_not(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as (replicas, client, topic_id):
            await produce(client, "t", batch(b"a", b"b"), acks=1)
            one = await ask(client, request(topic_id, [asked(0)]))
            assert (values(one), one.high_watermark) == ([b"a", b"b"], 0)
            one = await ask(client, fetch_request(topic_id, 0))
            assert (values(one), one.error_code, one.high_watermark) == ([], 0, 0)
            one = await ask(client, fetch_request(topic_id, 2))
            assert (values(one), one.error_code) == ([], 0), "the log end is not out of range"
            for broker_id in (2, 3):
                one = await ask(client, request(topic_id, [asked(2)], replica=broker_id))
            assert (values(one), one.high_watermark) == ([], 2)
            one = await ask(client, fetch_request(topic_id, 0))
            assert (values(one), one.high_watermark) == ([b"a", b"b"], 2)
            assert replicas.led.traffic.records_out == 2, "followers do not count"

    run(scenario)


def test_replica_id_before_version_15(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as (_, client, topic_id):
            await produce(client, "t", batch(b"a"), acks=1)
            for version in (13, 14):
                for replica_id, found in ((2, [b"a"]), (-1, []), (-2, [])):
                    message = request(topic_id, [asked(0)])
                    message.replica_state, message.replica_id = None, replica_id
                    assert values(await ask(client, message, version)) == found

    run(scenario)


def test_client_cannot_fetch_as_a_replica(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.undo()
        async with leading(tmp_path) as (replicas, client, topic_id):
            await produce(client, "t", batch(b"a"), acks=1)
            one = await ask(client, request(topic_id, [asked(1)], session=(0, 0)))
            assert one.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert replicas.led.in_sync is not None
            assert replicas.led.in_sync.followers[BrokerId(2)].log_end_offset is None
            assert len(replicas.running.parts.fetch_sessions) == 0

    run(scenario)


def test_leader_holds_back_throttled_followers(tmp_path: Path) -> None:
    rate = "leader.replication.throttled.rate"

    async def scenario() -> None:
        async with broker(tmp_path, f"{rate}=1") as running:
            client = await running.client()
            topic_id = await create(client, "t", 1, leader_replication_throttled_replicas="0:1")
            replicas = Replicas(running)
            replicas.change(1, 3)
            joining, in_sync = Follower(client, topic_id, 2), Follower(client, topic_id, 3)
            await produce(client, "t", batch(b"a"), acks=1)
            assert values((await joining.fetch(asked(0)))[0]) == [b"a"], "nothing was sent before"
            await produce(client, "t", batch(b"b"), acks=1)
            assert not await joining.fetch(asked(1))
            assert not await joining.fetch(wait_ms=1)
            # A replica in the ISR would delay acks=all, so it counts, but does not wait.
            assert values((await in_sync.fetch(asked(0)))[0]) == [b"a", b"b"]
            counts = running.parts.replica_manager.replication
            assert counts.throttled_bytes_out == counts.bytes_out > 0
            running.parts.settings.set_broker({rate: "1000000000"}, own=True)
            assert values((await joining.fetch())[0]) == [b"b"], "the next fetch visits it again"

    run(scenario)


def test_a3_fetches_of_followers_are_fenced(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as (replicas, client, topic_id):
            replicas.state = replace(replicas.state, leader_epoch=LeaderEpoch(4))
            replicas.change(1, 2, 3)
            epoch = replicas.led.leader_epoch
            assert epoch == 4
            for known, broker_id, code in (
                (epoch, 2, ErrorCode.NONE),
                (epoch - 1, 2, ErrorCode.FENCED_LEADER_EPOCH),
                (epoch + 1, 2, ErrorCode.UNKNOWN_LEADER_EPOCH),
                (epoch, 9, ErrorCode.UNKNOWN_LEADER_EPOCH),
                (NO_EPOCH, 9, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            ):
                message = request(topic_id, [asked(0, epoch=known)], replica=broker_id)
                assert (await ask(client, message)).error_code == code, (known, broker_id)

    run(scenario)


def test_a2_diverging_fetch_does_not_move_the_follower(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as (replicas, client, topic_id):
            led, epoch = replicas.led, replicas.led.leader_epoch
            await produce(client, "t", batch(b"a", b"b"), acks=1)
            replicas.state = replace(replicas.state, leader_epoch=LeaderEpoch(epoch + 2))
            replicas.change(1, 2, 3)
            await produce(client, "t", batch(b"c"), acks=1)
            # The follower has records of epoch + 1, which this leader never had.
            message = request(topic_id, [asked(3, epoch=epoch + 2, last_epoch=epoch + 1)])
            one = await ask(client, message)
            assert one.diverging_epoch is not None
            assert (one.diverging_epoch.epoch, one.diverging_epoch.end_offset) == (epoch, 2)
            assert led.in_sync is not None
            assert led.in_sync.followers[BrokerId(2)].log_end_offset is None
            message = request(topic_id, [asked(2, epoch=epoch + 2, last_epoch=epoch)])
            assert values(await ask(client, message)) == [b"c"]
            assert led.in_sync.followers[BrokerId(2)].log_end_offset == 2

    run(scenario)


def test_a17_fetch_outside_the_log_is_out_of_range(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as (replicas, client, topic_id):
            led = replicas.led
            await produce(client, "t", batch(b"a", b"b", b"c"), acks=1)
            replicas.fetch(2, 3)
            await led.delete_records(1)
            for offset in (0, 4):
                one = await ask(client, request(topic_id, [asked(offset)]))
                assert one.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert led.in_sync is not None
            assert led.in_sync.followers[BrokerId(2)].log_end_offset == 3
            one = await ask(client, request(topic_id, [asked(1, start=1)]))
            assert (one.error_code, one.log_start_offset) == (0, 1)
            assert values(one) == [b"a", b"b", b"c"], "the batch that holds the log start"
            assert led.in_sync.followers[BrokerId(2)].log_start_offset == 1

    run(scenario)


def test_follower_waits_for_an_append_and_consumer_for_the_high_watermark(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as (replicas, client, topic_id):
            running = replicas.running
            two, three = await follower(running, topic_id), await follower(running, topic_id, 3)
            await two.fetch(asked(0))
            await three.fetch(asked(0))
            consumer = await running.client()
            consuming = asyncio.create_task(
                consumer.ask(fetch_request(topic_id, 0, wait_ms=20_000), FetchResponse)
            )
            fetching = asyncio.create_task(two.fetch(wait_ms=20_000))
            await until(lambda: len(replicas.led.waiting) == 1)
            await until(lambda: any(one.waiter for one in replicas.led.watches))
            await produce(client, "t", batch(b"a"), acks=1)
            assert values((await fetching)[0]) == [b"a"]
            await asyncio.sleep(0.01)
            assert not consuming.done()
            await two.fetch(asked(1))
            assert not consuming.done()
            found = await three.fetch(asked(1))
            assert found[0].high_watermark == 1, "the fetch itself has moved it"
            answer = await consuming
            assert values(answer.responses[0].partitions[0]) == [b"a"]
            found = await two.fetch()
            assert (found[0].high_watermark, found[0].records) == (1, b"")
            assert await two.fetch() == {}

    run(scenario)


def visited(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Return a set that gets the index of every partition that a fetch visits."""
    found: set[int] = set()
    take = fetch_read.FetchRead.take

    def noting(
        self: fetch_read.FetchRead, wanted: fetch_sessions.FetchPartition, topic: str | None
    ) -> None:
        found.add(wanted.key[1])
        take(self, wanted, topic)

    visit = replica_fetch_path.PartitionReads.visit

    def noting_path(
        self: replica_fetch_path.PartitionReads,
        wanted: fetch_sessions.FetchPartition,
        watch: ReplicaWatch,
        replica_epoch: BrokerEpoch,
    ) -> replica_fetch_path.Visit | None:
        found.add(wanted.key[1])
        return visit(self, wanted, watch, replica_epoch)

    monkeypatch.setattr(fetch_read.FetchRead, "take", noting)
    monkeypatch.setattr(replica_fetch_path.PartitionReads, "visit", noting_path)
    return found


def test_session_of_a_follower_visits_only_what_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with leading(tmp_path, partitions=20) as (replicas, client, topic_id):
            running = replicas.running
            every = [Replicas(running, index=index) for index in range(20)]
            two = await follower(running, topic_id)
            visits = visited(monkeypatch)

            def taken() -> list[int]:
                found = sorted(visits)
                visits.clear()
                return found

            assert len(await two.fetch(*(asked(0, index=n) for n in range(20)))) == 20
            assert taken() == [*range(20)]
            assert await two.fetch() == {}
            assert taken() == [], "nothing has changed"
            await produce(client, "t", batch(b"a"), acks=1, index=7)
            assert values((await two.fetch())[7]) == [b"a"]
            assert taken() == [7]
            # Until the follower names the next offset, it gets the records again.
            assert values((await two.fetch())[7]) == [b"a"]
            assert taken() == [7]
            assert await two.fetch(asked(1, index=7)) == {}
            assert taken() == [7]
            every[7].fetch(3)  # the high watermark moves
            assert (await two.fetch())[7].high_watermark == 1
            assert taken() == [7]
            await every[7].led.delete_records(1)
            assert (await two.fetch())[7].log_start_offset == 1
            assert taken() == [7]
            assert await two.fetch(forgotten=[3]) == {}
            await produce(client, "t", batch(b"a"), acks=1, index=3)
            assert await two.fetch() == {}
            assert taken() == []
            every[5].led.resign(every[5].state)
            partitions = running.parts.replica_manager.partitions
            del partitions[every[5].led.name]
            for _ in range(2):  # an error is repeated
                assert (await two.fetch())[5].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            taken()
            partitions[every[5].led.name] = every[5].led
            assert (await two.fetch())[5].error_code == 0
            assert taken() == [5]
            assert await two.fetch() == {}
            assert taken() == []

    run(scenario)


def test_partitions_that_did_not_fit_are_visited_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path, partitions=3) as (replicas, client, topic_id):
            for index in range(3):
                Replicas(replicas.running, index=index)
                await produce(client, "t", batch(b"x" * 500), acks=1, index=index)
            message = request(
                topic_id, [asked(0, index=n) for n in range(3)], session=(0, 0), bytes_max=600
            )
            answer = await client.ask(message, FetchResponse, VERSION)
            session = answer.session_id
            full = [one.partition_index for one in answer.responses[0].partitions if one.records]
            assert full == [0]
            # It names no partition, so the first one has its records again, after the others.
            for epoch, index in ((1, 1), (2, 2), (3, 0)):
                message = request(topic_id, [], session=(session, epoch), bytes_max=600)
                answer = await client.ask(message, FetchResponse, VERSION)
                found = [one for one in answer.responses[0].partitions if one.records]
                assert [one.partition_index for one in found] == [index]

    run(scenario)


def test_follower_without_a_session_leaves_no_watch(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as (replicas, client, topic_id):
            led = replicas.led
            await ask(client, request(topic_id, [asked(0)]))
            assert not led.watches
            waiting = asyncio.create_task(
                ask(client, request(topic_id, [asked(0)], wait_ms=20_000))
            )
            await until(lambda: bool(led.watches))
            other = await replicas.running.client()
            await produce(other, "t", batch(b"a"), acks=1)
            assert values(await waiting) == [b"a"]
            assert not led.watches

    run(scenario)


def test_session_of_a_follower_is_not_a_consumers(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as (replicas, client, topic_id):
            two = await follower(replicas.running, topic_id)
            await two.fetch(asked(0))
            message = fetch_request(topic_id, 0)
            message.session_id, message.session_epoch = two.session, 1
            answer = await client.ask(message, FetchResponse, VERSION)
            assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            message.session_epoch = -1
            await client.ask(message, FetchResponse, VERSION)
            assert await two.fetch() == {}

    run(scenario)


def test_a9_idle_session_keeps_its_follower_in_the_isr(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as (replicas, client, topic_id):
            led: Partition = replicas.led
            two, three = [await follower(replicas.running, topic_id, n) for n in (2, 3)]
            for one in (two, three):
                await one.fetch(asked(0))
            assert led.in_sync is not None
            for state in led.in_sync.followers.values():
                state.caught_up_s = state.fetched_s = -100.0  # long ago
            await two.fetch()  # without the partition
            for watch in led.watches:
                if watch.broker_id == 3:
                    watch.fetched_s = -100.0
            await produce(client, "t", batch(b"a"), acks=1)
            led.check_isr(replicas.running.parts.clock.elapsed_s())
            (proposal,) = replicas.proposals
            assert proposal.in_sync == (1, 2)
            assert led.log.log_end_offset == Offset(1)

    run(scenario)


# Other requests of followers, and those that wait for them.


async def list_latest(client: Client, replica_id: int, version: int = 7) -> tuple[int, int]:
    partition = ListOffsetsPartition(partition_index=0, timestamp=LATEST)
    message = ListOffsetsRequest(
        replica_id=replica_id, topics=[ListOffsetsTopic(name="t", partitions=[partition])]
    )
    answer = await client.ask(message, ListOffsetsResponse, version)
    (one,) = answer.topics[0].partitions
    return one.error_code, one.offset


def test_a7_latest_offset_after_an_election(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as (replicas, client, _):
            await produce(client, "t", batch(b"a", b"b"), acks=1)
            replicas.state = replace(replicas.state, leader_epoch=LeaderEpoch(4))
            replicas.change(1, 2, 3)
            for version, code in (
                (7, ErrorCode.OFFSET_NOT_AVAILABLE),
                (5, ErrorCode.OFFSET_NOT_AVAILABLE),
                (4, ErrorCode.LEADER_NOT_AVAILABLE),
            ):
                assert await list_latest(client, -1, version) == (code, -1)
            assert await list_latest(client, 2) == (0, 2), "followers see the whole log"
            replicas.fetch(2, 3)
            assert await list_latest(client, -1) == (0, 2)
            await produce(client, "t", batch(b"c"), acks=1)
            assert await list_latest(client, -1) == (0, 2)
            assert await list_latest(client, 3) == (0, 3)

    run(scenario)


def test_client_gets_no_offsets_as_a_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as (replicas, client, _):
            await produce(client, "t", batch(b"a"), acks=1)
            assert await epoch_end(client, 2) == (0, 1)
            monkeypatch.undo()
            client = await replicas.running.client()
            assert await list_latest(client, 2) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)
            assert await list_latest(client, -1) == (0, 0)
            assert await epoch_end(client, 2) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)
            assert await epoch_end(client, -1) == (0, 1)

    run(scenario)


async def epoch_end(client: Client, replica_id: int) -> tuple[int, int]:
    partition = OffsetForLeaderPartition(partition=0, current_leader_epoch=0, leader_epoch=0)
    message = OffsetForLeaderEpochRequest(
        replica_id=replica_id,
        topics=[OffsetForLeaderTopic(topic="t", partitions=[partition])],
    )
    answer = await client.ask(message, OffsetForLeaderEpochResponse)
    (one,) = answer.topics[0].partitions
    return one.error_code, one.end_offset


def test_a17_delete_records_waits_for_the_log_start_of_the_replicas(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as (replicas, client, topic_id):
            await produce(client, "t", batch(b"a", b"b", b"c"), acks=1)
            replicas.fetch(2, 3)
            other = await replicas.running.client()

            async def delete(offset: int, timeout_ms: int) -> tuple[int, int]:
                partition = DeleteRecordsPartition(partition_index=0, offset=offset)
                message = DeleteRecordsRequest(
                    topics=[DeleteRecordsTopic(name="t", partitions=[partition])],
                    timeout_ms=timeout_ms,
                )
                answer = await other.ask(message, DeleteRecordsResponse)
                (one,) = answer.topics[0].partitions
                return one.error_code, one.low_watermark

            assert await delete(1, 20) == (ErrorCode.REQUEST_TIMED_OUT, 0)
            assert replicas.led.log.log_start_offset == 1, "the leader has deleted them"
            deleting = asyncio.create_task(delete(2, 20_000))
            await until(lambda: replicas.led.log.log_start_offset == 2)
            for broker_id in (2, 3):
                assert not deleting.done()
                message = request(topic_id, [asked(3, start=2)], replica=broker_id)
                assert (await ask(client, message)).log_start_offset == 2
            assert await deleting == (0, 2)
            moving = asyncio.create_task(delete(3, 20_000))
            await until(lambda: replicas.led.log.log_start_offset == 3)
            replicas.led.resign(replicas.state)
            assert await moving == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)

    run(scenario)


def test_offset_of_a_follower_that_waits_is_noted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fetch that waited says nothing about its follower when it ends."""

    async def scenario() -> None:
        async with leading(tmp_path) as (replicas, client, topic_id):
            noted: list[int] = []
            note = Partition.follower_fetched

            def noting(
                led: Partition, replica: BrokerId, epoch: BrokerEpoch, offset: Offset,
                start: Offset, now_s: float,
            ) -> None:  # fmt: skip
                noted.append(offset)
                note(led, replica, epoch, offset, start, now_s)

            monkeypatch.setattr(Partition, "follower_fetched", noting)
            two = await follower(replicas.running, topic_id)
            fetching = asyncio.create_task(two.fetch(asked(0), wait_ms=20_000))
            await until(lambda: any(one.waiter for one in replicas.led.watches))
            await produce(client, "t", batch(b"a"), acks=1)
            assert values((await fetching)[0]) == [b"a"]
            assert noted == [0]

    run(scenario)


def test_a12_consumer_learns_where_its_log_was_truncated(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with leading(tmp_path) as (replicas, client, topic_id):
            await produce(client, "t", batch(b"a", b"b"), acks=1)
            # Another broker led epoch 1 and had more records; this one is elected without them.
            replicas.state = replace(replicas.state, leader_epoch=LeaderEpoch(2))
            replicas.change(1)
            await produce(client, "t", batch(b"c", b"d"), acks=1)
            message = fetch_request(topic_id, 3)
            partition = message.topics[0].partitions[0]
            partition.current_leader_epoch, partition.last_fetched_epoch = 2, 1
            one = await ask(client, message)
            assert one.diverging_epoch is not None, "offset 2 had another record in epoch 1"
            assert (one.diverging_epoch.epoch, one.diverging_epoch.end_offset) == (0, 2)
            assert not values(one)
            partition.fetch_offset, partition.last_fetched_epoch = 2, 0
            assert values(await ask(client, message)) == [b"c", b"d"]

    run(scenario)

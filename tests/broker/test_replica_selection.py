"""Consumers that read from a replica in their rack (KIP-392)."""

from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType

import pytest
from msgspec.structs import replace

from broker.nodes import Client, RunningBroker, broker, run
from broker.replicas import Replicas
from broker.test_node import batch, create, fetch_request, produce
from broker.test_replica_fetch import values
from ottla.broker.replica_selection import ReplicaView, replica_in_rack
from ottla.cluster.image import Broker, PartitionState
from ottla.errors import ErrorCode
from ottla.ids import BrokerEpoch, BrokerId, LeaderEpoch, Uuid
from ottla.protocol.messages.fetch import FetchResponse, PartitionData
from ottla.replication.follower import FollowerPartition

RACK_AWARE = "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector"


def view(broker_id: int, rack: str | None, end: int = 10, caught_up_s: float = 1) -> ReplicaView:
    return ReplicaView(BrokerId(broker_id), rack, end, caught_up_s)


@pytest.mark.parametrize(
    ("leader_rack", "followers", "chosen"),
    [
        ("a", [view(2, "a")], None),
        ("b", [view(2, "a")], 2),
        (None, [view(2, "a")], 2),
        ("b", [view(2, "c"), view(3, None)], None),
        ("b", [view(2, "a", 9), view(3, "a", 10), view(4, "a", 8)], 3),
        ("b", [view(2, "a", 9, 5.0), view(3, "a", 9, 4.0)], 2),
        ("b", [], None),
    ],
)
def test_replica_in_the_rack(
    leader_rack: str | None, followers: Sequence[ReplicaView], chosen: int | None
) -> None:
    assert replica_in_rack("a", leader_rack, followers) == chosen


def set_racks(replicas: Replicas, **racks: str) -> None:
    """Register brokers b1, b2 and b3 with racks."""
    cache = replicas.running.parts.metadata_cache
    brokers = {
        BrokerId(int(name[1:])): Broker(
            BrokerId(int(name[1:])), BrokerEpoch(1), MappingProxyType({}), rack
        )
        for name, rack in racks.items()
    }
    cache.image = replace(cache.image, brokers=MappingProxyType(brokers))


async def consume(
    client: Client, topic_id: Uuid, offset: int, rack: str, version: int = 17
) -> PartitionData:
    message = fetch_request(topic_id, offset, wait_ms=10_000)
    message.rack_id = rack
    answer = await client.ask(message, FetchResponse, version)
    (one,) = answer.responses[0].partitions
    return one


def test_leader_names_the_replica_in_the_consumers_rack(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, RACK_AWARE) as running:
            client = await running.client()
            topic_id = await create(client, "t")
            replicas = Replicas(running)
            set_racks(replicas, b1="x", b2="y", b3="z")
            await produce(client, "t", batch(b"a"), acks=1)
            replicas.fetch(2, 3)
            for rack, preferred in (("x", -1), ("y", 2), ("z", 3), ("unknown", -1), ("", -1)):
                one = await consume(client, topic_id, 0, rack)
                assert (one.error_code, one.preferred_read_replica) == (0, preferred), rack
                assert values(one) == ([b"a"] if preferred < 0 else [])
                assert one.high_watermark == 1
            replicas.change(1, 2)
            one = await consume(client, topic_id, 0, "z")
            assert one.preferred_read_replica == -1, "broker 3 has left the ISR"
            set_racks(replicas, b1="x")
            one = await consume(client, topic_id, 0, "y")
            assert one.preferred_read_replica == -1, "broker 2 is dead"

    run(scenario)


def test_replica_without_the_offset_is_not_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, RACK_AWARE) as running:
            client = await running.client()
            topic_id = await create(client, "t")
            replicas = Replicas(running)
            set_racks(replicas, b1="x", b2="y", b3="z")
            await produce(client, "t", batch(b"a"), acks=1)
            replicas.fetch(3)
            replicas.fetch(2, offset=1, start=1)
            assert (await consume(client, topic_id, 0, "y")).preferred_read_replica == -1
            assert (await consume(client, topic_id, 0, "z")).preferred_read_replica == 3

    run(scenario)


def test_racks_do_not_count_by_default(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            topic_id = await create(client, "t")
            replicas = Replicas(running)
            set_racks(replicas, b1="x", b2="y")
            await produce(client, "t", batch(b"a"), acks=1)
            replicas.fetch(2, 3)
            one = await consume(client, topic_id, 0, "y")
            assert (values(one), one.preferred_read_replica) == ([b"a"], -1)

    run(scenario)


def follow(running: RunningBroker, topic_id: Uuid, high_watermark: int) -> None:
    """Let the broker follow broker 2 in the partition that it leads."""
    manager = running.parts.replica_manager
    led = manager.leader_partition("t", 0)
    state = PartitionState((BrokerId(1), BrokerId(2)), BrokerId(2), LeaderEpoch(4))
    followed = FollowerPartition(manager.logs[led.name], topic_id, state)
    followed.follow(high_watermark=high_watermark, log_start_offset=led.log.log_start_offset)
    del manager.partitions[led.name]
    manager.followers[led.name] = followed


def test_a6_consumer_reads_below_the_followers_high_watermark(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            topic_id = await create(client, "t")
            await produce(client, "t", batch(b"a"), acks=1)
            await produce(client, "t", batch(b"b"), acks=1)
            manager = running.parts.replica_manager
            follow(running, topic_id, high_watermark=1)
            for version in (17, 13):
                one = await consume(client, topic_id, 0, "", version)
                assert (values(one), one.error_code, one.high_watermark) == ([b"a"], 0, 1)
            message = fetch_request(topic_id, 1)
            answer = await client.ask(message, FetchResponse)
            assert answer.responses[0].partitions[0].error_code == 0
            assert not values(answer.responses[0].partitions[0])
            for epoch, code in (
                (3, ErrorCode.FENCED_LEADER_EPOCH),
                (5, ErrorCode.UNKNOWN_LEADER_EPOCH),
            ):
                message.topics[0].partitions[0].current_leader_epoch = epoch
                answer = await client.ask(message, FetchResponse)
                assert answer.responses[0].partitions[0].error_code == code
            manager.followers.clear()
            one = await consume(client, topic_id, 0, "")
            assert one.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(scenario)


def test_a18_follower_sends_consumers_to_the_leader(tmp_path: Path) -> None:
    """It may have fewer records than the leader, and may have deleted more."""

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            topic_id = await create(client, "t")
            await produce(client, "t", batch(b"a"), acks=1)
            await produce(client, "t", batch(b"b"), acks=1)
            await running.parts.replica_manager.leader_partition("t", 0).delete_records(1)
            follow(running, topic_id, high_watermark=2)
            assert (await consume(client, topic_id, 2, "")).error_code == 0
            for offset in (0, 3):
                one = await consume(client, topic_id, offset, "")
                assert one.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert one.current_leader is not None
                assert (one.current_leader.leader_id, one.current_leader.leader_epoch) == (2, 4)

    run(scenario)


def test_a18_leader_names_no_other_leader_before_it_is_certain(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            topic_id = await create(client, "t")
            replicas = Replicas(running)
            for _ in range(2):
                replicas.fetch(2, 3)
                one = await consume(client, topic_id, 1, "")
                assert one.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert one.current_leader is None, "the consumer waits before it tries again"
            replicas.fetch(2, 3)
            one = await consume(client, topic_id, 1, "")
            assert one.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    run(scenario)

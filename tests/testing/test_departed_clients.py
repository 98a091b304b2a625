"""Clients that leave while their request waits for another broker, which is cut off meanwhile."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

import pytest

from ottla import Admin, NewTopic
from ottla.broker import configs, forwarding, topics
from ottla.broker.group_coordinator import OFFSETS_TOPIC
from ottla.broker.handlers import describe_configs, offset_commit
from ottla.client.admin.configs import ConfigKind, ConfigResource
from ottla.controller import controller
from ottla.controller.controller import Controller
from ottla.ids import ZERO_UUID, PartitionIndex, TopicPartition
from ottla.protocol.apis import CREATE_TOPICS
from ottla.protocol.conversation import ClientConversation
from ottla.protocol.message import Api, Message
from ottla.protocol.messages import incremental_alter_configs as incremental
from ottla.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.replication.partition import Partition
from ottla.testing import Cluster, ClusterBroker
from ottla.transport.broker_channels import ControllerChannel
from ottla.transport.connection import ConnectionConfig
from testing.test_replicated_cluster import run
from testing.test_waits_for_followers import leave, node_of, peers_of, until

FOREVER_MS: Final = 2**31 - 1
FOREVER_S: Final = 3600.0
SETTINGS = {
    "replica.lag.time.max.ms": 600_000,  # the ISR does not shrink
    "offsets.commit.timeout.ms": 600_000,
    "auto.leader.rebalance.enable": False,
}
TOPIC: Final = "t"


@pytest.fixture(autouse=True)
def endless_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let only the departure of a client end its wait."""
    monkeypatch.setattr(configs, "TIMEOUT_MS", FOREVER_MS)
    monkeypatch.setattr(controller, "STEP_SECONDS", FOREVER_S)
    monkeypatch.setattr(describe_configs, "TIMEOUT_S", FOREVER_S)
    monkeypatch.setattr(forwarding, "TIMEOUT_S", FOREVER_S)
    monkeypatch.setattr(forwarding, "TIMEOUT_SECONDS_MAX", FOREVER_S)
    monkeypatch.setattr(topics, "CREATION_TIMEOUT_MS", FOREVER_MS)
    monkeypatch.setattr(topics, "TIMEOUT_SECONDS_MAX", FOREVER_S)
    monkeypatch.setitem(ControllerChannel.ask.__kwdefaults__ or {}, "timeout_s", FOREVER_S)


def creation(*names: str) -> CreateTopicsRequest:
    asked = [
        CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
        )
        for name in names
    ]
    return CreateTopicsRequest(topics=asked, timeout_ms=FOREVER_MS)


def deletion(name: str) -> DeleteTopicsRequest:
    asked = [DeleteTopicState(name=name, topic_id=ZERO_UUID)]
    return DeleteTopicsRequest(topics=asked, timeout_ms=FOREVER_MS)


def growth() -> CreatePartitionsRequest:
    asked = [CreatePartitionsTopic(name=TOPIC, count=2, assignments=None)]
    return CreatePartitionsRequest(topics=asked, timeout_ms=FOREVER_MS, validate_only=False)


def replacement() -> AlterConfigsRequest:
    return _configs(ConfigKind.TOPIC, TOPIC, "retention.ms", "1234567")


def defaults() -> AlterConfigsRequest:
    """Change the defaults of all brokers."""
    return _configs(ConfigKind.BROKER, "", "log.retention.ms", "7654321")


def _configs(kind: ConfigKind, name: str, config: str, value: str) -> AlterConfigsRequest:
    configs = [AlterableConfig(name=config, value=value)]
    resource = AlterConfigsResource(resource_type=kind.value, resource_name=name, configs=configs)
    return AlterConfigsRequest(resources=[resource], validate_only=False)


def increment() -> incremental.IncrementalAlterConfigsRequest:
    config = incremental.AlterableConfig(
        name="retention.bytes", config_operation=0, value="1234567890"
    )
    resource = incremental.AlterConfigsResource(
        resource_type=2, resource_name=TOPIC, configs=[config]
    )
    return incremental.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


def election() -> ElectLeadersRequest:
    asked = [TopicPartitions(topic=TOPIC, partitions=[0])]
    return ElectLeadersRequest(election_type=0, topic_partitions=asked, timeout_ms=FOREVER_MS)


def reassignment() -> AlterPartitionReassignmentsRequest:
    partition = ReassignablePartition(partition_index=0, replicas=None)
    asked = [ReassignableTopic(name=TOPIC, partitions=[partition])]
    return AlterPartitionReassignmentsRequest(timeout_ms=FOREVER_MS, topics=asked)


def reassignments() -> ListPartitionReassignmentsRequest:
    return ListPartitionReassignmentsRequest(timeout_ms=FOREVER_MS, topics=None)


def coordinator() -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])


def automatic() -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name="automatic")])


def description(broker: ClusterBroker) -> DescribeConfigsRequest:
    resource = DescribeConfigsResource(
        resource_type=4, resource_name=str(broker.id), configuration_keys=None
    )
    return DescribeConfigsRequest(resources=[resource])


def commit(partitions: Iterable[int] = (0,), group: str = "g") -> OffsetCommitRequest:
    asked = [
        OffsetCommitRequestPartition(partition_index=one, committed_offset=7, committed_metadata="")
        for one in partitions
    ]
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=asked)
    return OffsetCommitRequest(group_id=group, member_id="", topics=[topic])


def offset_deletion() -> OffsetDeleteRequest:
    partition = OffsetDeleteRequestPartition(partition_index=0)
    topic = OffsetDeleteRequestTopic(name=TOPIC, partitions=[partition])
    return OffsetDeleteRequest(group_id="g", topics=[topic])


VERSIONS: dict[type[Message], int] = {OffsetCommitRequest: 8, MetadataRequest: 9}
"""The versions of requests whose latest version has topic ids; the others have their latest."""


class Departing:
    """A client that sends a request, and leaves while that waits."""

    def __init__(self, broker: ClusterBroker, api: Api, writer: asyncio.StreamWriter) -> None:
        self._node = node_of(broker)
        self._api = api
        self._writer = writer
        self._name = writer.get_extra_info("sockname")

    @property
    def waits(self) -> bool:
        return any(
            one._served_request is not None  # pyright: ignore[reportPrivateUsage]
            and one._served_request.api is self._api  # pyright: ignore[reportPrivateUsage]
            for listener in self._node._listeners  # pyright: ignore[reportPrivateUsage]
            for one in listener.connections
            if one._transport is not None  # pyright: ignore[reportPrivateUsage]
            and one._transport.get_extra_info("peername") == self._name  # pyright: ignore[reportPrivateUsage]
        )

    async def leave(self, how: str = "close") -> None:
        """Leave, and wait until the broker has closed the connection."""
        assert self.waits
        leave(self._writer, how)
        await until(lambda: self._name not in peers_of(self._node))
        self._writer.close()


async def departing(broker: ClusterBroker, message: Message) -> Departing:
    """Send a request, and wait until it waits for something."""
    api = message.API
    assert api is not None
    _, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    version = VERSIONS.get(type(message), api.advertised.high)
    writer.writelines(ClientConversation("test").send(message, version)[1])
    client = Departing(broker, api, writer)
    await until(lambda: client.waits)
    return client


class Stage:
    """Three brokers with a topic that the controller leads, and two followers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        found = cluster.controller
        assert found is not None
        self.controller = found
        self.other, self.cut_off = (one for one in cluster.brokers if one is not found)

    @property
    def deciding(self) -> Controller:
        made = node_of(self.controller)._topics  # pyright: ignore[reportPrivateUsage]
        assert made is not None
        return made.controller

    def has(self, *names: str) -> bool:
        """Whether the controller has created these topics."""
        return all(name in self.deciding.image.topics for name in names)


def serves(broker: ClusterBroker, api: Api) -> bool:
    """Whether a request of an API waits on a broker."""
    return any(
        one._served_request is not None  # pyright: ignore[reportPrivateUsage]
        and one._served_request.api is api  # pyright: ignore[reportPrivateUsage]
        for listener in node_of(broker)._listeners  # pyright: ignore[reportPrivateUsage]
        for one in listener.connections
    )


def led(broker: ClusterBroker, topic: str) -> Partition:
    """Return partition 0 of a topic on its leader."""
    replica_manager = node_of(broker).replica_manager
    assert replica_manager is not None
    return replica_manager.partitions[TopicPartition(topic, PartitionIndex(0))]


def staged(scenario: Callable[[Stage], Coroutine[Any, Any, None]], partitions: int = 1) -> None:
    async def whole() -> None:
        async with Cluster(brokers=3, settings=SETTINGS) as cluster:
            await cluster.settled()
            stage = Stage(cluster)
            order = [stage.controller.id, stage.other.id, stage.cut_off.id]
            async with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
                replicas = dict.fromkeys(range(partitions), order)
                await admin.create_topics([NewTopic(TOPIC, replicas=replicas)])
            await cluster.settled()
            await scenario(stage)

    run(whole)


def test_changes_on_the_controller_end_with_the_client() -> None:
    changes: dict[str, Callable[[], Message]] = {
        "create": lambda: creation("a"),
        "large create": lambda: creation(*(f"large-{number}" for number in range(30))),
        "automatic": automatic,
        "grow": growth,
        "replace configs": replacement,
        "replace defaults": defaults,
        "change configs": increment,
        "elect": election,
        "delete": lambda: deletion("a"),
    }

    async def scenario(stage: Stage) -> None:
        for change in changes.values():
            with stage.cluster.partition(stage.controller, stage.cut_off):
                await (await departing(stage.controller, change())).leave()
            await stage.cluster.settled()
        assert stage.has("automatic")
        await until(lambda: stage.has(*(f"large-{number}" for number in range(30))))
        assert not stage.has("a")
        async with Admin({"bootstrap.servers": stage.cluster.bootstrap_servers}) as admin:
            resource = ConfigResource.topic(TOPIC)
            entries = (await admin.describe_configs([resource]))[resource]
            assert entries["retention.ms"].value == "1234567"
            assert entries["retention.bytes"].value == "1234567890"
            resource = ConfigResource.broker(stage.cut_off.id)
            entries = (await admin.describe_configs([resource]))[resource]
            assert entries["log.retention.ms"].value == "7654321"

    staged(scenario)


@pytest.mark.parametrize("how", ["close", "half", "reset"])
def test_change_that_has_begun_is_carried_out_without_waits(
    how: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "CHANGED_AT_ONCE", 1)
    names = [f"topic-{number}" for number in range(20)]

    async def scenario(stage: Stage) -> None:
        with stage.cluster.partition(stage.controller, stage.cut_off):
            client = await departing(stage.controller, creation(*names))
            await until(lambda: stage.has(names[0]))
            assert not stage.has(names[1])
            await client.leave(how)
            await until(lambda: stage.has(*names))
        await stage.cluster.settled()

    staged(scenario)
    assert "change not applied yet" not in caplog.text


def test_change_that_is_being_stored_is_finished() -> None:
    async def scenario(stage: Stage) -> None:
        begun, release, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def change(deciding: Controller) -> None:
            begun.set()
            await release.wait()
            done.set()

        made = node_of(stage.controller)._topics  # pyright: ignore[reportPrivateUsage]
        assert made is not None
        task = asyncio.create_task(made.in_turn(change))
        await begun.wait()
        task.cancel()
        await asyncio.sleep(0.01)
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done.is_set()

    staged(scenario)


def test_change_that_has_not_begun_is_dropped() -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.deciding.turn:
            await (await departing(stage.controller, creation("a"))).leave()
        async with Admin({"bootstrap.servers": stage.cluster.bootstrap_servers}) as admin:
            await admin.create_topics([NewTopic("b", 1, 3)])
        await stage.cluster.settled()
        assert stage.has("b")
        assert not stage.has("a")

    staged(scenario)


def test_forwarded_change_is_carried_out_after_its_client_has_left() -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.deciding.turn:
            client = await departing(stage.other, creation("a"))
            await until(lambda: serves(stage.controller, CREATE_TOPICS))
            await client.leave()
            await asyncio.sleep(2 * ConnectionConfig().departed_ms / 1000)  # a dropped one ends now
            assert serves(stage.controller, CREATE_TOPICS)
        await until(lambda: stage.has("a"))
        await stage.cluster.settled()

    staged(scenario)


def test_requests_for_an_unreachable_broker_end_with_the_client() -> None:
    asked: dict[str, Callable[[Stage], Message]] = {
        "create": lambda _: creation("a"),
        "delete": lambda _: deletion(TOPIC),
        "grow": lambda _: growth(),
        "replace configs": lambda _: replacement(),
        "change configs": lambda _: increment(),
        "elect": lambda _: election(),
        "reassign": lambda _: reassignment(),
        "list reassignments": lambda _: reassignments(),
        "automatic": lambda _: automatic(),
        "find coordinator": lambda _: coordinator(),
        "describe broker": lambda stage: description(stage.controller),
    }

    async def scenario(stage: Stage) -> None:
        with stage.cluster.partition(stage.controller, stage.other):
            for message in asked.values():
                await (await departing(stage.other, message(stage))).leave()
        await stage.cluster.settled()

    staged(scenario)


def test_group_requests_end_with_the_client() -> None:
    async def scenario(stage: Stage) -> None:
        async with Admin({"bootstrap.servers": stage.cluster.bootstrap_servers}) as admin:
            await admin.alter_group_offsets("g", {TopicPartition(TOPIC, PartitionIndex(0)): 1})
        await stage.cluster.settled()
        coordinating = stage.cluster.leader(OFFSETS_TOPIC, 0)
        assert coordinating is not None
        others = [one for one in stage.cluster.brokers if one is not coordinating]
        partition = led(coordinating, OFFSETS_TOPIC)
        end = partition.log.log_end_offset
        requests = [commit(), offset_deletion(), DeleteGroupsRequest(groups_names=["g"])]
        with stage.cluster.partition(coordinating, others[0]):
            for request in requests:
                await (await departing(coordinating, request)).leave()
            assert partition.log.log_end_offset > end
            assert partition.high_watermark == end
        await stage.cluster.settled()
        await until(lambda: partition.high_watermark == partition.log.log_end_offset)

    staged(scenario)


def test_all_offsets_of_a_departed_client_are_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_commit, "PIECE", 2)

    async def scenario(stage: Stage) -> None:
        async with Admin({"bootstrap.servers": stage.cluster.bootstrap_servers}) as admin:
            await admin.alter_group_offsets("other", {TopicPartition(TOPIC, PartitionIndex(0)): 1})
        await stage.cluster.settled()
        coordinating = stage.cluster.leader(OFFSETS_TOPIC, 0)
        assert coordinating is not None
        others = [one for one in stage.cluster.brokers if one is not coordinating]
        with stage.cluster.partition(coordinating, others[0]):
            await (await departing(coordinating, commit(range(5)))).leave()
        async with Admin({"bootstrap.servers": stage.cluster.bootstrap_servers}) as admin:
            while len((await admin.list_group_offsets("g"))["g"]) < 5:
                await asyncio.sleep(0.01)

    staged(scenario, partitions=5)

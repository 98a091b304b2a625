"""The state of a broker, for its handlers.

Invariant: accessed only on the event loop. A partition is in `partitions` exactly while this broker
leads it; the image describes the cluster.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ottla.broker.effective_config import EffectiveConfig
from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.group_coordinator import OFFSETS_TOPIC, GroupCoordinators, PartitionCoordinator
from ottla.clock import Clock
from ottla.cluster.image import ClusterImage, PartitionState, Topic
from ottla.cluster.topic_creation import AskedTopic
from ottla.controller.producer_ids import ProducerIds
from ottla.errors import ErrorCode, RequestError
from ottla.ids import BrokerId, PartitionIndex, TopicPartition, Uuid
from ottla.log.log_manager import LogManager
from ottla.metrics import ApiCounts, TopicCounts
from ottla.protocol.primitives import Buffer
from ottla.protocol.schema import Versions
from ottla.replication.partition import Partition
from ottla.transport.memory import MemoryPools

ConfigChange = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Maps the present configs to the new ones; raises RequestError."""


class TopicChanges(Protocol):
    """Creates and changes topics; every method raises RequestError if the change is refused."""

    async def create(
        self, asked: AskedTopic, values: Mapping[str, str], *, validate_only: bool = False
    ) -> Topic:
        """Create a topic, or with validate_only return what would be created."""
        ...

    async def create_missing(self, name: str) -> None:
        """Create a topic with default configs (auto.create.topics.enable)."""
        ...

    async def create_offsets_topic(self) -> None:
        """Create __consumer_offsets if it is missing."""
        ...

    async def delete(self, name: str, topic_id: Uuid | None = None) -> None:
        """Delete a topic with all its records."""
        ...

    async def grow(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Add partitions to a topic."""
        ...

    async def set_config(self, name: str, change: ConfigChange, *, validate_only: bool) -> None:
        """Change a topic's own configs."""
        ...

    async def set_broker_config(
        self, change: ConfigChange, *, own: bool, validate_only: bool
    ) -> None:
        """Change the dynamic configs of this broker, or the cluster-wide defaults."""
        ...


WrittenMetadata = dict[tuple[int, str, bool, bool], Sequence[Buffer]]
"""Encoded responses with all topics, by version, listener and requested operations."""


@dataclass(slots=True)
class BrokerState:
    """The broker as its handlers see it."""

    id: BrokerId
    clock: Clock
    settings: EffectiveConfig
    image: ClusterImage
    logs: LogManager
    sessions: FetchSessions
    producer_ids: ProducerIds
    groups: GroupCoordinators
    new_id: Callable[[], Uuid]
    served: Mapping[int, Versions]
    requests: dict[int, ApiCounts] = field(init=False)  # by API key
    traffic: dict[str, TopicCounts] = field(default_factory=dict[str, TopicCounts])
    written_metadata: tuple[int, WrittenMetadata] = field(
        default_factory=lambda: (-1, WrittenMetadata())
    )
    partitions: dict[TopicPartition, Partition] = field(
        default_factory=dict[TopicPartition, Partition]
    )
    memory: MemoryPools = field(default_factory=MemoryPools)  # for requests and responses
    # One large batch is decompressed at a time, so that any number of bombs needs the memory of
    # one.
    beside: asyncio.Lock = field(default_factory=asyncio.Lock)
    stopping: bool = False  # nothing waits any more
    topics: TopicChanges = field(init=False)  # set after construction, because it needs this state

    def __post_init__(self) -> None:
        self.requests = {key: ApiCounts() for key in self.served}

    def topic(self, name: str, topic_id: Uuid | None = None) -> Topic:
        """Return a topic by name, or by id if one is given."""
        if topic_id is not None:
            found = self.image.topic_of_id(topic_id)
            if found is None:
                raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID)
            return found
        found = self.image.topics.get(name)
        if found is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return found

    def leader_partition(self, topic: str, index: int) -> Partition:
        """Return a partition that this broker leads; raises RequestError."""
        partition = self.partitions.get(TopicPartition(topic, PartitionIndex(index)))
        if partition is not None:
            return partition
        if self.image.state(topic, index) is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def leader_hint(self, topic: str, index: int) -> PartitionState | None:
        """Return the leader of a partition that this broker does not lead (KIP-951)."""
        return self.image.state(topic, index)

    def coordinator(self, group_id: str) -> PartitionCoordinator:
        """Return the coordinator of a group; raises NOT_COORDINATOR."""
        topic = self.image.topics.get(OFFSETS_TOPIC)
        return self.groups.of(group_id, 0 if topic is None else len(topic.partitions))

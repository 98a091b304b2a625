"""An admin client that creates, grows, changes and deletes topics while they are in use."""

from random import Random

from ottla.errors import ErrorCode
from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ottla.testing.simulation import Simulation
from simulation.connection import Gone, Speaker
from simulation.history import History, Kind
from simulation.producers import Producer

TOPIC = 2
BROKER = 4
SET = 0
PASSING = (
    Kind("passing", 2, {"segment.ms": "3000"}),
    Kind("passing-keys", 2, {"segment.ms": "500", "cleanup.policy": "compact"}, compacted=True),
)


class Administrator:
    def __init__(self, world: Simulation, history: History, topic_ids: dict[str, Uuid]) -> None:
        self.random = Random(f"{world.seed} administrator")
        self.history = history
        self.speaker = Speaker(world, "administrator")
        self._world = world
        self._topic_ids = topic_ids
        self._writer = Producer(world, history, "writer", {})
        self._writer.topic_ids = topic_ids

    async def run(self, until_s: float, growing: Kind, deleting: Kind) -> None:
        while self._world.clock.elapsed_s() < until_s:
            await self.speaker.pause(2.5 * self.random.random())
            chosen = self.random.randrange(6)
            try:
                if chosen <= 1:
                    await self._come_and_go(self.random.choice(PASSING))
                elif chosen == 2:
                    await self._grow(growing)
                elif chosen == 3:
                    await self._set(TOPIC, growing.name, "segment.ms", ("2000", "4000", "7000"))
                elif chosen == 4:
                    broker = self.random.choice(("", "1"))
                    await self._set(BROKER, broker, "log.cleaner.threads", ("1", "2"))
                else:
                    await self._delete_records(deleting)
            except Gone:
                continue  # it is unknown whether the change was made

    # Topics.

    async def create(self, kind: Kind) -> None:
        """Create a topic; retry until it exists."""
        topic = CreatableTopic(
            name=kind.name,
            num_partitions=kind.partitions,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name=k, value=v) for k, v in kind.config.items()],
        )
        while True:
            self.history.topics.setdefault(kind.name, {None}).add(ZERO_UUID)
            try:
                answer = await self.speaker.ask(
                    CreateTopicsRequest(topics=[topic]), CreateTopicsResponse
                )
                (one,) = answer.topics
                if one.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
                    topic_id = await self._id_of(kind.name)  # it was created without a response
                else:
                    topic_id = one.topic_id if one.error_code == ErrorCode.NONE else None
            except Gone:
                topic_id = None
            if topic_id is not None:
                break
            await self.speaker.pause(0.3)
        self.history.topics[kind.name] = {topic_id}
        self._count(kind, kind.partitions)
        self._topic_ids[kind.name] = topic_id

    async def _id_of(self, name: str) -> Uuid | None:
        answer = await self.speaker.ask(
            MetadataRequest(
                topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
            ),
            MetadataResponse,
        )
        (one,) = answer.topics
        if one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self.history.wrong(f"{name} was there, and is not")
        return None if one.error_code else one.topic_id

    async def _come_and_go(self, kind: Kind) -> None:
        if None in self.history.topics.get(kind.name, {None}):
            await self.create(kind)
            for index in range(kind.partitions):
                await self._writer.produce(kind, index)
            return
        for index in range(kind.partitions):
            self.history.partitions.pop((kind.name, index), None)
        self.history.topics[kind.name].add(None)
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=kind.name, topic_id=ZERO_UUID)], timeout_ms=5000
        )
        # An interrupted deletion may finish at any later start: retry until it has.
        while self.history.topics[kind.name] != {None}:
            try:
                (one,) = (await self.speaker.ask(request, DeleteTopicsResponse)).responses
            except Gone:
                await self.speaker.pause(0.3)
                continue
            if one.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                self.history.topics[kind.name] = {None}
            await self.speaker.pause(0.3)
        self._writer.forget(kind)

    async def _grow(self, kind: Kind) -> None:
        count = self.history.counts[kind.name] + 1
        if count > 5:
            return
        answer = await self.speaker.ask(
            CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=kind.name, count=count, assignments=None)],
                timeout_ms=5000,
                validate_only=False,
            ),
            CreatePartitionsResponse,
        )
        (one,) = answer.results
        if one.error_code in (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS):
            self._count(kind, count)

    def _count(self, kind: Kind, count: int) -> None:
        self.history.counts[kind.name] = count
        for index in range(count):
            self.history.partition(kind, index)

    # Settings.

    async def _set(self, kind: int, name: str, setting: str, values: tuple[str, ...]) -> None:
        value = self.random.choice(values)
        possible = self.history.settings.setdefault((kind, name, setting), {None})
        possible.add(value)
        answer = await self.speaker.ask(
            IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=kind,
                        resource_name=name,
                        configs=[AlterableConfig(name=setting, config_operation=SET, value=value)],
                    )
                ],
                validate_only=False,
            ),
            IncrementalAlterConfigsResponse,
        )
        if answer.responses[0].error_code == ErrorCode.NONE:
            self.history.settings[kind, name, setting] = {value}

    async def check_settings(self) -> None:
        for (kind, name, setting), possible in self.history.settings.items():
            answer = await self.speaker.ask(
                DescribeConfigsRequest(
                    resources=[
                        DescribeConfigsResource(
                            resource_type=kind, resource_name=name, configuration_keys=[setting]
                        )
                    ]
                ),
                DescribeConfigsResponse,
            )
            (resource,) = answer.results
            found = {one.name: one.value for one in resource.configs}.get(setting)
            if None not in possible and found not in possible:
                self.history.wrong(f"{name}: {setting} is {found}, it can be {possible}")

    async def check_topics(self) -> None:
        answer = await self.speaker.ask(MetadataRequest(topics=None), MetadataResponse)
        there = {one.name: one for one in answer.topics}
        for name, possible in self.history.topics.items():
            found = there.get(name)
            if found is None:
                if None not in possible:
                    self.history.wrong(f"{name} is gone")
            elif ZERO_UUID not in possible and found.topic_id not in possible:
                self.history.wrong(f"{name} is {found.topic_id}, it can be {possible}")
            elif None not in possible and len(found.partitions) < self.history.counts[name]:
                self.history.wrong(f"{name} has {len(found.partitions)} partitions")

    # Records.

    async def _delete_records(self, kind: Kind) -> None:
        index = self.random.randrange(kind.partitions)
        history = self.history.partition(kind, index)
        if not history.acked:
            return
        offset = self.random.choice([*history.acked, max(history.acked) + 1])
        history.asked_to_delete = max(history.asked_to_delete, offset)
        answer = await self.speaker.ask(
            DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=kind.name,
                        partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)],
                    )
                ],
                timeout_ms=5000,
            ),
            DeleteRecordsResponse,
        )
        (one,) = answer.topics[0].partitions
        if one.error_code == ErrorCode.NONE:
            history.deleted_until = max(history.deleted_until, one.low_watermark)

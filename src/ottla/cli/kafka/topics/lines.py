"""Output of `kafka-topics --describe`.

Invariant: lines, their order and their separators are those of Kafka's tool.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.cli.kafka.flags import Given
from ottla.cli.kafka.hash_order import in_hash_order
from ottla.cli.kafka.topics.selection import REPORTS, matching
from ottla.cli.kafka.words import words
from ottla.cli.kafka.wrong_use import whole_number
from ottla.cli.topic.settings_admin import TopicSettingsAdmin
from ottla.client.admin.cluster import ClusterCalls
from ottla.client.admin.configs import ConfigEntry, ConfigResource
from ottla.client.admin.reassignments import Reassignment, ReassignmentCalls
from ottla.client.admin.topic_descriptions import PartitionDescription, TopicDescription
from ottla.client.partitions import Partition
from ottla.errors import ErrorCode, OttlaError, RequestError
from ottla.ids import ZERO_UUID, Uuid

MIN_IN_SYNC: Final = "min.insync.replicas"


class TopicReader(TopicSettingsAdmin, ClusterCalls, ReassignmentCalls):
    """Admin client for `--describe`."""


@dataclass(frozen=True, slots=True)
class Reports:
    """Filters that select partitions to print."""

    wanted: Collection[str]
    live: Collection[int] = ()

    def includes(self, one: PartitionDescription, factor: int, in_sync_min: int) -> bool:
        """Whether one of the filters selects this partition."""
        count = len(one.in_sync)
        tests: Mapping[str, Callable[[], bool]] = {
            "under-replicated-partitions": lambda: factor > count,
            "under-min-isr-partitions": lambda: one.leader is None or count < in_sync_min,
            "at-min-isr-partitions": lambda: count == in_sync_min,
            "unavailable-partitions": lambda: one.leader is None or one.leader not in self.live,
        }
        return any(tests[report]() for report in self.wanted)


async def describe(reader: TopicReader, given: Given) -> None:
    """Print topics."""
    topics = await _topics(reader, given)
    resources = [ConfigResource.topic(one.name) for one in topics]
    configs = await reader.describe_configs(resources)
    live = [one.id for one in (await reader.describe_cluster()).brokers]
    moves = await _moves(reader, topics)
    reports = Reports([one for one in REPORTS if one in given], live)
    for topic, resource in zip(topics, resources, strict=True):
        error = configs.failed.get(resource)
        if error is not None:
            raise OttlaError(words(error, resource))
        for line in lines(
            topic, configs[resource], moves, reports, overrides="topics-with-overrides" in given
        ):
            print(line)


async def _topics(reader: TopicReader, given: Given) -> list[TopicDescription]:
    needed = "if-exists" not in given
    if (wanted := _id(given.one("topic-id"))) is not None:
        listed = await reader.list_topics(include_internal="exclude-internal" not in given)
        if wanted in {one.id for one in listed.values()}:
            return [*(await reader.describe_topics([wanted])).or_raise().values()]
        if needed:
            raise OttlaError(f"TopicId '{wanted}' does not exist as expected")
        return []
    names = await matching(reader, given, needed)
    if names:  # only checked: the broker chooses the page size for Ottla's client
        whole_number(given, "partition-size-limit-per-response")
    told = await reader.describe_topics(names)
    for name, error in told.failed.items():
        raise OttlaError(words(error, name))
    return [told[name] for name in in_hash_order(names, len(names))]


def _id(text: str | None) -> Uuid | None:
    if text is None:
        return None
    try:
        found = Uuid.parse(text)
    except ValueError as error:
        raise OttlaError(str(error)) from None
    return None if found == ZERO_UUID else found


async def _moves(
    reader: TopicReader, topics: Sequence[TopicDescription]
) -> Mapping[Partition, Reassignment]:
    places = [(topic.name, one.index) for topic in topics for one in topic.partitions]
    try:
        return await reader.list_reassignments(places)
    except RequestError as error:
        if error.code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            return {}
        raise


def lines(
    topic: TopicDescription,
    configs: Mapping[str, ConfigEntry],
    moves: Mapping[Partition, Reassignment],
    reports: Reports,
    *,
    overrides: bool,
) -> Iterator[str]:
    """Return the lines of one topic."""
    own = [name for name in in_hash_order(configs) if not configs[name].is_default]
    if not reports.wanted and (own or not overrides):
        first = topic.partitions[0]
        parts = [
            f"Topic: {topic.name}",
            *(() if topic.id is None else (f"TopicId: {topic.id}",)),
            f"PartitionCount: {len(topic.partitions)}",
            f"ReplicationFactor: {_factor(first, moves.get((topic.name, first.index)))}",
            "Configs: " + ",".join(f"{name}={_value(configs[name].value)}" for name in own),
        ]
        yield "\t".join(parts)
    if overrides:
        return
    in_sync_min = int(configs[MIN_IN_SYNC].value or 1) if MIN_IN_SYNC in configs else 1
    for one in topic.partitions:
        move = moves.get((topic.name, one.index))
        if not reports.wanted or reports.includes(one, _factor(one, move), in_sync_min):
            yield _partition_line(topic.name, one, move)


def _factor(one: PartitionDescription, move: Reassignment | None) -> int:
    """Return the replication factor; during a reassignment, without the replicas being added."""
    if move is None or not {*move.adding, *move.removing} & {*one.replicas}:
        return len(one.replicas)
    return len(move.replicas) - len(move.adding)


def _partition_line(topic: str, one: PartitionDescription, move: Reassignment | None) -> str:
    parts = [
        f"\tTopic: {topic}",
        f"Partition: {one.index}",
        f"Leader: {'none' if one.leader is None else one.leader}",
        f"Replicas: {_ids(one.replicas)}",
        f"Isr: {_ids(one.in_sync)}",
        *(
            ()
            if move is None
            else (
                f"Adding Replicas: {_ids(move.adding)}",
                f"Removing Replicas: {_ids(move.removing)}",
            )
        ),
        f"Elr: {_ids(one.eligible_leaders)}",
        f"LastKnownElr: {_ids(one.last_known_leaders)}",
    ]
    return "\t".join(parts)


def _ids(brokers: Sequence[int] | None) -> str:
    return "N/A" if brokers is None else ",".join(map(str, brokers))


def _value(value: str | None) -> str:
    return "null" if value is None else value

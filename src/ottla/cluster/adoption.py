"""Decides whether a Kafka broker's data can be adopted, and with which topics.

Invariant: adoption loses no data. A topic whose configuration is unknown keeps its records for ever
until the user sets a retention. Settings that cannot be adopted are listed. Data that is only part
of a cluster's is refused, with all reasons at once.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.cluster.internal_topics import check_internal_config, required_config
from ottla.errors import OttlaError, RequestError
from ottla.ids import BrokerId, TopicPartition, Uuid
from ottla.protocol.message import Message
from ottla.protocol.metadata_topic import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.settings.broker import BROKER
from ottla.settings.config import Config
from ottla.settings.config_parser import topic_overrides
from ottla.settings.invalid_settings import InvalidSettings

_TOPIC: Final = 2
_RESOURCES: Final = {2: "topic", 4: "broker", 16: "client metrics", 32: "group"}
_UNKNOWN: Final[Mapping[str, str]] = {"retention.ms": "-1"}
_BROKER_DEFAULTS: Final = Config(BROKER, {})


class AdoptionRefused(OttlaError):
    """The data cannot be adopted; one reason per line."""

    def __init__(self, reasons: Iterable[str]) -> None:
        self.reasons = tuple(reasons)
        super().__init__(*self.reasons)

    def __str__(self) -> str:
        return "\n".join(self.reasons)


class FoundPartition(NamedTuple):
    """A partition as found in its directory."""

    partition: TopicPartition
    topic_id: Uuid | None  # None: no partition.metadata file
    leader_epoch: int  # the last one; -1 if there is none
    size: int
    producer_id_max: int  # the highest in the producer state; -1 if there is none
    open_since: int | None  # first offset of the oldest open transaction


@dataclass(slots=True)
class KraftMetadata:
    """The state that the records of __cluster_metadata add up to."""

    topics: dict[Uuid, str] = field(default_factory=dict[Uuid, str])
    replicas: dict[tuple[Uuid, int], Sequence[int]] = field(
        default_factory=dict[tuple[Uuid, int], Sequence[int]]
    )
    settings: dict[tuple[int, str], dict[str, str]] = field(
        default_factory=lambda: defaultdict(dict[str, str])
    )
    next_producer_id: int = 0

    def note(self, record: Message) -> None:
        """Apply one record."""
        match record:
            case TopicRecord():
                self.topics[record.topic_id] = record.name
            case RemoveTopicRecord():
                name = self.topics.pop(record.topic_id, None)
                self.replicas = {k: v for k, v in self.replicas.items() if k[0] != record.topic_id}
                if name is not None:
                    self.settings.pop((_TOPIC, name), None)
            case PartitionRecord():
                self.replicas[record.topic_id, record.partition_id] = record.replicas
            case PartitionChangeRecord() if record.replicas is not None:
                self.replicas[record.topic_id, record.partition_id] = record.replicas
            case ConfigRecord():
                own = self.settings[record.resource_type, record.resource_name]
                if record.value is None:
                    own.pop(record.name, None)
                else:
                    own[record.name] = record.value
            case ProducerIdsRecord():
                self.next_producer_id = max(self.next_producer_id, record.next_producer_id)
            case _:
                pass


class AdoptedTopic(NamedTuple):
    """A topic to adopt."""

    name: str
    id: Uuid
    leader_epochs: tuple[int, ...]  # the last leader epoch of each partition
    settings: Mapping[str, str]
    size: int


class Adoption(NamedTuple):
    """The result of adoption, with notes for the operator."""

    cluster_id: str
    node_id: BrokerId
    topics: tuple[AdoptedTopic, ...]
    next_producer_id: int
    not_taken: tuple[str, ...]
    notes: tuple[str, ...]


def plan(
    cluster_id: str,
    node_id: BrokerId,
    found: Iterable[FoundPartition],
    metadata: KraftMetadata | None,
) -> Adoption:
    """Plan an adoption; raise AdoptionRefused with the reasons if it is not possible."""
    by_topic: dict[str, dict[int, FoundPartition]] = defaultdict(dict)
    reasons: list[str] = []
    for one in found:
        own = by_topic[one.partition.topic]
        if one.partition.partition in own:
            reasons.append(f"{one.partition} is in two directories")
        own[one.partition.partition] = one
    for name, partitions in sorted(by_topic.items()):
        reasons += _problems(name, partitions, metadata)
    if metadata is not None:
        reasons += _missing(by_topic, metadata)
    if reasons:
        raise AdoptionRefused(reasons)
    not_taken = [] if metadata is None else _others(metadata)
    notes: list[str] = []
    if metadata is None and by_topic:
        notes.append(
            "there is no __cluster_metadata, so the settings of the topics are unknown: their "
            "records are kept for ever (retention.ms=-1) until you set cleanup.policy and "
            "retention"
        )
    topics: list[AdoptedTopic] = []
    next_producer_id = 0 if metadata is None else metadata.next_producer_id
    for name, partitions in sorted(by_topic.items()):
        rows = [partitions[index] for index in range(len(partitions))]
        given = None if metadata is None else metadata.settings.get((_TOPIC, name), {})
        settings, refused = _settings(name, given)
        not_taken += refused
        next_producer_id = max(next_producer_id, *(one.producer_id_max + 1 for one in rows))
        notes += [
            f"{one.partition}: the transaction from offset {one.open_since} is open: "
            "read_committed consumers stop there, because transactions are not supported yet"
            for one in rows
            if one.open_since is not None
        ]
        topic_id = rows[0].topic_id
        assert topic_id is not None
        epochs = tuple(one.leader_epoch for one in rows)
        topics.append(AdoptedTopic(name, topic_id, epochs, settings, sum(one.size for one in rows)))
    return Adoption(
        cluster_id, node_id, tuple(topics), next_producer_id, tuple(not_taken), tuple(notes)
    )


def _problems(
    name: str, partitions: Mapping[int, FoundPartition], metadata: KraftMetadata | None
) -> list[str]:
    reasons = [
        f"{one.partition} has no partition.metadata: start Kafka 2.8 or later on it once"
        for one in partitions.values()
        if one.topic_id is None
    ]
    ids = {one.topic_id for one in partitions.values() if one.topic_id is not None}
    if len(ids) > 1:
        reasons.append(
            f"{name} has partitions with different topic ids: {', '.join(map(str, ids))}"
        )
    absent = sorted(set(range(max(partitions) + 1)) - set(partitions))
    if absent:
        reasons.append(
            f"{name} lacks partition {', '.join(map(str, absent))}: it is on another broker or in "
            "a data directory that was not given"
        )
    if metadata is not None:
        shared = [
            one.partition
            for one in partitions.values()
            if one.topic_id is not None
            and len(metadata.replicas.get((one.topic_id, one.partition.partition), ())) > 1
        ]
        if shared:
            reasons.append(
                f"{name} has replicas on other brokers ({', '.join(map(str, shared))}): only the "
                "data of a single broker can be adopted"
            )
    return reasons


def _missing(found: Mapping[str, Mapping[int, object]], metadata: KraftMetadata) -> list[str]:
    """Report the partitions of the cluster that no directory holds."""
    return [
        f"{metadata.topics[topic_id]}-{index} is missing: it is on broker "
        f"{', '.join(map(str, replicas))} or in a data directory that was not given"
        for (topic_id, index), replicas in sorted(metadata.replicas.items())
        if topic_id in metadata.topics and index not in found.get(metadata.topics[topic_id], {})
    ]


def _settings(name: str, given: Mapping[str, str] | None) -> tuple[dict[str, str], list[str]]:
    """Return a topic's configuration overrides, and the settings that cannot be adopted."""
    required = required_config(name, _BROKER_DEFAULTS)
    if given is None:
        return required or dict(_UNKNOWN), []
    taken = dict(required)
    refused: list[str] = []
    for key, value in sorted(given.items()):
        try:
            after = {**taken, key: value}
            known = topic_overrides(after).given
            check_internal_config(name, taken, after, required=required, replication_factor=1)
        except (InvalidSettings, RequestError) as error:
            refused.append(f"topic {name}: {key}={value}: {error}")
            continue
        if key in known:
            taken[key] = value
        else:
            refused.append(f"topic {name}: {key}={value}: not supported by Ottla")
    return taken, refused


def _others(metadata: KraftMetadata) -> list[str]:
    """List the settings of other resources, which belong into the properties file."""
    return [
        f"{_RESOURCES.get(kind, f'resource {kind}')} {name or '(all)'}: {key}={value}"
        for (kind, name), values in sorted(metadata.settings.items())
        if kind != _TOPIC
        for key, value in sorted(values.items())
    ]

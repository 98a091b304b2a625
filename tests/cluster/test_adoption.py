"""Which topics and settings are adopted, and what is refused."""

import pytest

from ottla.cluster.adoption import (
    Adoption,
    AdoptionRefused,
    FoundPartition,
    KraftMetadata,
    plan,
)
from ottla.ids import BrokerId, PartitionIndex, TopicPartition, Uuid
from ottla.protocol.message import Message
from ottla.protocol.metadata_topic import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)

ONE, TWO = Uuid(b"1" * 16), Uuid(b"2" * 16)
TOPIC, BROKER = 2, 4


def found(
    topic: str = "t",
    index: int = 0,
    topic_id: Uuid | None = ONE,
    *,
    epoch: int = 3,
    producer_id: int = -1,
    open_since: int | None = None,
) -> FoundPartition:
    partition = TopicPartition(topic, PartitionIndex(index))
    return FoundPartition(partition, topic_id, epoch, 100, producer_id, open_since)


def metadata(*records: Message) -> KraftMetadata:
    known = KraftMetadata()
    for record in records:
        known.note(record)
    return known


def of_t(*records: Message, partitions: int = 1) -> KraftMetadata:
    rows = (PartitionRecord(partition_id=n, topic_id=ONE, replicas=[1]) for n in range(partitions))
    return metadata(TopicRecord(name="t", topic_id=ONE), *rows, *records)


def setting(name: str, value: str | None, kind: int = TOPIC, of: str = "t") -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=of, name=name, value=value)


def planned(*rows: FoundPartition, known: KraftMetadata | None = None) -> Adoption:
    return plan("cluster", BrokerId(1), rows, known)


def refused(*rows: FoundPartition, known: KraftMetadata | None = None) -> str:
    with pytest.raises(AdoptionRefused) as caught:
        planned(*rows, known=known)
    return str(caught.value)


def test_adopted_topics_keep_ids_epochs_and_settings() -> None:
    known = of_t(
        setting("retention.ms", "7"),
        setting("cleanup.policy", "delete"),
        setting("cleanup.policy", "compact"),
        setting("segment.ms", "9"),
        setting("segment.ms", None),
        partitions=2,
    )
    adoption = planned(found(index=1, epoch=5), found(index=0), known=known)
    (topic,) = adoption.topics
    assert (topic.name, topic.id, topic.leader_epochs, topic.size) == ("t", ONE, (3, 5), 200)
    assert topic.settings == {"retention.ms": "7", "cleanup.policy": "compact"}
    assert adoption.not_taken == ()


def test_unsupported_settings_are_listed() -> None:
    known = of_t(
        setting("remote.storage.enable", "true"),
        setting("message.format.version", "3.0"),
        setting("retention.ms", "5"),
        setting("log.cleaner.threads", "2", BROKER, "1"),
        setting("max.connections", "9", BROKER, ""),
    )
    adoption = planned(found(), known=known)
    assert adoption.topics[0].settings == {"retention.ms": "5"}
    told = "\n".join(adoption.not_taken)
    assert "topic t: remote.storage.enable=true: " in told
    assert "topic t: message.format.version=3.0: not supported by Ottla" in told
    assert "broker 1: log.cleaner.threads=2" in told
    assert "broker (all): max.connections=9" in told


def test_without_metadata_records_are_kept_for_ever() -> None:
    adoption = planned(found(), found("__consumer_offsets", 0, TWO))
    internal, topic = adoption.topics
    assert topic.settings == {"retention.ms": "-1"}
    assert internal.settings["cleanup.policy"] == "compact"
    assert "kept for ever" in adoption.notes[0]


def test_settings_that_lose_committed_offsets_are_not_adopted() -> None:
    name = "__consumer_offsets"
    known = metadata(
        TopicRecord(name=name, topic_id=ONE),
        setting("cleanup.policy", "delete", of=name),
        setting("min.insync.replicas", "2", of=name),
        setting("retention.ms", "1000", of=name),
    )
    adoption = planned(found(name), known=known)
    (topic,) = adoption.topics
    assert topic.settings["cleanup.policy"] == "compact"
    assert "min.insync.replicas" not in topic.settings
    policy, in_sync = adoption.not_taken
    assert "cleanup.policy must be compact, but would be delete" in policy
    assert "min.insync.replicas must be at most the replication factor" in in_sync


def test_internal_topic_is_always_compacted() -> None:
    known = metadata(TopicRecord(name="__consumer_offsets", topic_id=ONE))
    (topic,) = planned(found("__consumer_offsets"), known=known).topics
    assert topic.settings["cleanup.policy"] == "compact"


def test_new_producer_ids_are_above_the_adopted_ones() -> None:
    assert planned(found(producer_id=41)).next_producer_id == 42
    known = of_t(ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=2000))
    assert planned(found(producer_id=41), known=known).next_producer_id == 2000
    assert planned(found()).next_producer_id == 0


def test_open_transaction_is_reported() -> None:
    (_, note) = planned(found(open_since=17)).notes
    assert note.startswith("t-0: the transaction from offset 17 is open")


def test_deleted_topic_is_dropped_with_its_settings() -> None:
    known = of_t(setting("retention.ms", "1"), RemoveTopicRecord(topic_id=ONE))
    again = TopicRecord(name="t", topic_id=TWO)
    known.note(again)
    (topic,) = planned(found(topic_id=TWO), known=known).topics
    assert topic.settings == {}


def test_all_reasons_are_reported_at_once() -> None:
    told = refused(found(index=0), found("u", 0, None), found("v", 0), found("v", 2, TWO))
    assert "u-0 has no partition.metadata" in told
    assert "v has partitions with different topic ids" in told
    assert "v lacks partition 1" in told
    assert "t" not in {line.split()[0] for line in told.splitlines()}


def test_part_of_a_cluster_is_refused() -> None:
    moved = PartitionChangeRecord(partition_id=0, topic_id=ONE, replicas=[1, 2])
    assert "t has replicas on other brokers (t-0)" in refused(found(), known=of_t(moved))
    assert "t-1 is missing: it is on broker 1" in refused(found(), known=of_t(partitions=2))
    assert "t-0 is in two directories" in refused(found(), found())


def test_removed_replicas_are_ignored() -> None:
    there = PartitionChangeRecord(partition_id=0, topic_id=ONE, replicas=[1, 2])
    back = PartitionChangeRecord(partition_id=0, topic_id=ONE, replicas=[1])
    same = PartitionChangeRecord(partition_id=0, topic_id=ONE)
    assert planned(found(), known=of_t(there, back, same)).topics

"""confluent-kafka, and with it librdkafka, on our broker."""

import time
from collections.abc import Callable, Generator
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

from judges.ottla_broker import OttlaBroker, ottla_broker

# Any here and below: the client's types are not complete.
admin: Any = confluent_kafka.admin

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIME_MS = int(time.time() * 1000) - 3_600_000
PATIENCE_S = 60


@pytest.fixture(scope="module")
def broker() -> Generator[OttlaBroker]:
    with ottla_broker() as running:
        yield running


@pytest.fixture
def client(broker: OttlaBroker) -> Any:
    return admin.AdminClient({"bootstrap.servers": broker.bootstrap})


def make(client: Any, name: str, partitions: int = 1, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    new = admin.NewTopic(name, partitions, 1, config=settings)
    client.create_topics([new])[name].result(PATIENCE_S)


def consumer(broker: OttlaBroker, group: str, **settings: object) -> Any:
    made: Any = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    return made


def produce(broker: OttlaBroker, topic: str, count: int, **settings: object) -> list[int]:
    """Produce records to one partition; their offsets."""
    offsets: list[int] = []

    def told(error: Any, message: Any) -> None:
        assert error is None, error
        offsets.append(message.offset())

    own = {key.replace("_", "."): value for key, value in settings.items()}
    producer: Any = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, **own})
    for number in range(count):
        producer.produce(
            topic,
            key=b"k%d" % number,
            value=b"v%d" % number,
            partition=0,
            timestamp=TIME_MS + number,
            headers=[("h", b"1"), ("h", None), ("ä", b"")],
            on_delivery=told,
        )
    assert producer.flush(PATIENCE_S) == 0
    return offsets


def until(true: Callable[[], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end_s, "it never came true"


def read(reader: Any, count: int) -> list[Any]:
    seen: list[Any] = []

    def enough() -> bool:
        message = reader.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            seen.append(message)
        return len(seen) >= count

    until(enough)
    return seen


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [False, True])
def test_records_are_read_as_sent(
    broker: OttlaBroker, client: Any, codec: str, idempotent: bool
) -> None:
    name = f"records-{codec}-{idempotent}"
    make(client, name)
    sent = produce(
        broker, name, 50, compression_codec=codec, enable_idempotence=idempotent, acks="all"
    )
    assert sent == list(range(50))
    reader = consumer(broker, name)
    reader.assign([confluent_kafka.TopicPartition(name, 0, 0)])
    seen = read(reader, 50)
    reader.close()
    assert [one.offset() for one in seen] == sent
    assert [one.key() for one in seen] == [b"k%d" % number for number in range(50)]
    assert [one.value() for one in seen] == [b"v%d" % number for number in range(50)]
    assert seen[7].timestamp() == (confluent_kafka.TIMESTAMP_CREATE_TIME, TIME_MS + 7)
    assert seen[7].headers() == [("h", b"1"), ("h", None), ("ä", b"")]


@pytest.mark.parametrize("acks", [0, 1])
def test_acks_0_and_1(broker: OttlaBroker, client: Any, acks: int) -> None:
    name = f"acks-{acks}"
    make(client, name)
    produce(broker, name, 10, acks=acks)
    reader = consumer(broker, name)
    reader.assign([confluent_kafka.TopicPartition(name, 0, 0)])
    assert len(read(reader, 10)) == 10
    reader.close()


def test_seek_by_timestamp_and_watermarks(broker: OttlaBroker, client: Any) -> None:
    make(client, "times")
    produce(broker, "times", 20)
    reader = consumer(broker, "times")
    wanted = [
        confluent_kafka.TopicPartition("times", 0, TIME_MS + 5),
        confluent_kafka.TopicPartition("times", 0, TIME_MS + 10**9),
    ]
    found = [reader.offsets_for_times([one], timeout=PATIENCE_S)[0].offset for one in wanted]
    assert found == [5, confluent_kafka.OFFSET_END]
    partition = confluent_kafka.TopicPartition("times", 0)
    assert reader.get_watermark_offsets(partition, timeout=PATIENCE_S) == (0, 20)
    reader.assign([confluent_kafka.TopicPartition("times", 0, 5)])
    assert read(reader, 1)[0].offset() == 5
    reader.seek(confluent_kafka.TopicPartition("times", 0, 12))
    until(lambda: read(reader, 1)[0].offset() == 12)
    reader.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_group_rebalances_and_resumes(broker: OttlaBroker, client: Any, strategy: str) -> None:
    name = f"shared-{strategy}"
    make(client, name, 4)
    settings = {
        "partition_assignment_strategy": strategy,
        "heartbeat_interval_ms": 100,
        "session_timeout_ms": 6000,
    }
    members = [consumer(broker, name, **settings) for _ in range(3)]
    for member in members:
        member.subscribe([name])

    def share(*sizes: int) -> None:
        def shared() -> bool:
            for member in members:
                member.poll(0.05)
            return sorted(len(member.assignment()) for member in members) == sorted(sizes)

        until(shared)

    share(1, 1, 2)
    members.pop().close()
    share(2, 2)
    members.pop().close()
    share(4)
    here = confluent_kafka.TopicPartition(name, 0, 3, metadata="a note")
    members[0].commit(offsets=[here], asynchronous=False)
    members.pop().close()
    produce(broker, name, 10)
    reader = consumer(broker, name)
    committed = reader.committed([confluent_kafka.TopicPartition(name, 0)], timeout=PATIENCE_S)[0]
    assert (committed.offset, committed.metadata) == (3, "a note")
    reader.subscribe([name])
    assert read(reader, 1)[0].offset() == 3
    reader.close()


def test_static_member_rejoins(broker: OttlaBroker, client: Any) -> None:
    make(client, "static", 2)
    for _ in range(2):
        member = consumer(broker, "static", group_instance_id="one", session_timeout_ms=10_000)
        member.subscribe(["static"])

        def assigned(member: Any = member) -> bool:
            member.poll(0.05)
            return len(member.assignment()) == 2

        until(assigned)
        member.close()
    found = client.describe_consumer_groups(["static"])["static"].result(PATIENCE_S)
    assert [one.group_instance_id for one in found.members] == ["one"]


def test_topics_are_administered(client: Any) -> None:
    make(client, "managed", 2, retention_ms="86400000")
    with pytest.raises(confluent_kafka.KafkaException, match="TOPIC_ALREADY_EXISTS"):
        make(client, "managed")
    listed = client.list_topics(timeout=PATIENCE_S).topics
    assert sorted(listed["managed"].partitions) == [0, 1]
    grown = client.create_partitions([admin.NewPartitions("managed", 3)])
    grown["managed"].result(PATIENCE_S)
    described = client.describe_topics(confluent_kafka.TopicCollection(["managed"]))
    assert len(described["managed"].result(PATIENCE_S).partitions) == 3
    with pytest.raises(confluent_kafka.KafkaException, match="INVALID_PARTITIONS"):
        client.create_partitions([admin.NewPartitions("managed", 2)])["managed"].result(PATIENCE_S)
    cluster = client.describe_cluster().result(PATIENCE_S)
    assert [node.id for node in cluster.nodes] == [1]
    client.delete_topics(["managed"])["managed"].result(PATIENCE_S)
    assert "managed" not in client.list_topics(timeout=PATIENCE_S).topics


def test_settings_are_described_and_changed(client: Any) -> None:
    make(client, "set", 1)

    def retention() -> tuple[str, str]:
        resource = admin.ConfigResource(admin.ResourceType.TOPIC, "set")
        (answer,) = client.describe_configs([resource]).values()
        entry = answer.result(PATIENCE_S)["retention.ms"]
        return entry.value, admin.ConfigSource(entry.source).name

    def alter(value: str) -> None:
        entry = admin.ConfigEntry(
            "retention.ms", value, incremental_operation=admin.AlterConfigOpType.SET
        )
        resource = admin.ConfigResource(
            admin.ResourceType.TOPIC, "set", incremental_configs=[entry]
        )
        (answer,) = client.incremental_alter_configs([resource]).values()
        answer.result(PATIENCE_S)

    assert retention() == ("604800000", "DEFAULT_CONFIG")
    alter("86400000")
    assert retention() == ("86400000", "DYNAMIC_TOPIC_CONFIG")
    with pytest.raises(confluent_kafka.KafkaException, match="INVALID_CONFIG"):
        alter("soon")


def test_offsets_and_groups_are_administered(broker: OttlaBroker, client: Any) -> None:
    make(client, "led")
    produce(broker, "led", 10)
    partition = confluent_kafka.TopicPartition("led", 0)
    newest = client.list_offsets({partition: admin.OffsetSpec.latest()})[partition]
    assert newest.result(PATIENCE_S).offset == 10
    group = confluent_kafka.ConsumerGroupTopicPartitions(
        "led", [confluent_kafka.TopicPartition("led", 0, 4)]
    )
    client.alter_consumer_group_offsets([group])["led"].result(PATIENCE_S)
    asked = confluent_kafka.ConsumerGroupTopicPartitions("led")
    listed = client.list_consumer_group_offsets([asked])["led"].result(PATIENCE_S)
    assert [one.offset for one in listed.topic_partitions] == [4]
    groups = client.list_consumer_groups().result(PATIENCE_S)
    assert "led" in [one.group_id for one in groups.valid]
    cut = client.delete_records([confluent_kafka.TopicPartition("led", 0, 6)])
    assert cut[partition].result(PATIENCE_S).low_watermark == 6
    client.delete_consumer_groups(["led"])["led"].result(PATIENCE_S)
    with pytest.raises(confluent_kafka.KafkaException, match="GROUP_ID_NOT_FOUND"):
        client.delete_consumer_groups(["led"])["led"].result(PATIENCE_S)


def test_too_large_record_is_rejected(broker: OttlaBroker, client: Any) -> None:
    make(client, "small", max_message_bytes="1000")
    failed: list[str] = []
    producer: Any = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})

    def told(error: Any, message: Any) -> None:
        failed.append(error.name())

    producer.produce("small", b"x" * 5000, on_delivery=told)
    assert producer.flush(PATIENCE_S) == 0
    assert failed == ["MSG_SIZE_TOO_LARGE"]


def test_new_group_protocol_fails_with_an_error(broker: OttlaBroker, client: Any) -> None:
    """The client must not look for a coordinator for ever."""
    make(client, "new-protocol")
    reader = consumer(broker, "new-protocol", group_protocol="consumer")
    reader.subscribe(["new-protocol"])
    errors: list[Any] = []

    def told() -> bool:
        try:
            message = reader.poll(0.1)
        except confluent_kafka.KafkaException as raised:
            errors.append(raised.args[0])
        else:
            errors.extend([message.error()] if message is not None else [])
        return bool(errors)

    until(told)
    reader.close()
    assert errors[0].code() == confluent_kafka.KafkaError._FATAL
    assert "ConsumerGroupHeartbeat" in str(errors[0])

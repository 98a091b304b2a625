"""kafka-python on our broker."""

import gc
import time
from collections.abc import Callable, Generator
from threading import Event, Thread
from typing import Any

import kafka
import kafka.admin
import kafka.errors
import pytest

from judges.ottla_broker import OttlaBroker, ottla_broker

# Any here and below: the client has no types.
library: Any = kafka
administration: Any = kafka.admin
errors: Any = kafka.errors

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
TIME_MS = int(time.time() * 1000) - 3_600_000
PATIENCE_S = 60
# If a poll ends between the client's SyncGroup and the response, the client loses the response. It
# then believes that it is a member, sends no heartbeats and reads no records. So polls last longer
# than that.
POLL_MS = 3_000


# The client does not close all of its sockets.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(autouse=True)
def _leftovers_go_here() -> Generator[None]:
    """Collect the client's garbage here, so that its warnings are not raised in another test."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def broker() -> Generator[OttlaBroker]:
    with ottla_broker() as running:
        yield running


@pytest.fixture(scope="module")
def client(broker: OttlaBroker) -> Generator[Any]:
    made = administration.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    yield made
    made.close()


def make(client: Any, name: str, partitions: int = 1, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    new = administration.NewTopic(name, partitions, 1, topic_configs=settings)
    client.create_topics([new])


def consumer(broker: OttlaBroker, **settings: object) -> Any:
    return library.KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **settings,
    )


def produce(broker: OttlaBroker, topic: str, count: int, **settings: object) -> list[int]:
    producer = library.KafkaProducer(bootstrap_servers=broker.bootstrap, **settings)
    sent = [
        producer.send(
            topic,
            key=b"k%d" % number,
            value=b"v%d" % number,
            partition=0,
            timestamp_ms=TIME_MS + number,
            headers=[("h", b"1"), ("h", b"")],
        )
        for number in range(count)
    ]
    offsets = [one.get(PATIENCE_S).offset for one in sent]
    producer.close()
    return offsets


def until(true: Callable[[], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end_s, "it never came true"
        time.sleep(0.01)


def read(reader: Any, count: int) -> list[Any]:
    seen: list[Any] = []

    def enough() -> bool:
        for records in reader.poll(timeout_ms=POLL_MS).values():
            seen.extend(records)
        return len(seen) >= count

    until(enough)
    return seen


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_read_as_sent(broker: OttlaBroker, client: Any, codec: str | None) -> None:
    name = f"records-{codec}"
    make(client, name)
    assert produce(broker, name, 50, compression_type=codec, acks="all") == list(range(50))
    reader = consumer(broker)
    reader.assign([library.TopicPartition(name, 0)])
    seen = read(reader, 50)
    reader.close()
    assert [(one.offset, one.key, one.value) for one in seen] == [
        (number, b"k%d" % number, b"v%d" % number) for number in range(50)
    ]
    assert seen[7].timestamp == TIME_MS + 7
    assert [tuple(each) for each in seen[7].headers] == [("h", b"1"), ("h", b"")]


def test_seek_by_timestamp_and_to_the_ends(broker: OttlaBroker, client: Any) -> None:
    make(client, "times")
    produce(broker, "times", 20)
    here = library.TopicPartition("times", 0)
    reader = consumer(broker)
    reader.assign([here])
    assert reader.offsets_for_times({here: TIME_MS + 5})[here].offset == 5
    assert reader.offsets_for_times({here: TIME_MS + 10**9})[here] is None
    assert reader.beginning_offsets([here]) == {here: 0}
    assert reader.end_offsets([here]) == {here: 20}
    reader.seek(here, 12)
    assert read(reader, 1)[0].offset == 12
    reader.close()


class Member:
    """A consumer that polls in its own thread, like an application."""

    def __init__(self, reader: Any, topic: str) -> None:
        self._reader = reader
        self._stopping = Event()
        reader.subscribe([topic])
        self._thread = Thread(target=self._poll)
        self._thread.start()

    @property
    def share(self) -> frozenset[Any]:
        """Its partitions, also during a poll."""
        return frozenset(self._reader.assignment())

    def _poll(self) -> None:
        while not self._stopping.is_set():
            self._reader.poll(timeout_ms=POLL_MS)
        self._reader.close()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(PATIENCE_S)


def test_group_rebalances_and_resumes(broker: OttlaBroker, client: Any) -> None:
    make(client, "shared", 4)
    settings = {"group_id": "shared", "heartbeat_interval_ms": 100, "session_timeout_ms": 6000}

    def share(members: list[Member], *sizes: int) -> None:
        until(lambda: sorted(len(member.share) for member in members) == [*sizes])
        assert len({one for member in members for one in member.share}) == 4

    members: list[Member] = []
    try:
        for sizes in ((4,), (2, 2)):
            members.append(Member(consumer(broker, **settings), "shared"))
            share(members, *sizes)
        members.pop().close()
        share(members, 4)
    finally:
        for member in members:
            member.close()
    here = library.TopicPartition("shared", 0)
    reader = consumer(broker, **settings)
    reader.assign([here])
    reader.commit({here: library.OffsetAndMetadata(3, "a note", -1)})
    assert reader.committed(here) == 3
    reader.close()
    produce(broker, "shared", 10)
    reader = consumer(broker, **settings)
    reader.subscribe(["shared"])
    assert read(reader, 1)[0].offset == 3
    reader.close()


def test_topics_are_administered(broker: OttlaBroker, client: Any) -> None:
    make(client, "managed", 2, retention_ms="86400000")
    with pytest.raises(errors.TopicAlreadyExistsError):
        make(client, "managed")
    assert "managed" in client.list_topics()
    client.create_partitions({"managed": administration.NewPartitions(3)})
    (described,) = client.describe_topics(["managed"])
    assert len(described["partitions"]) == 3
    assert client.describe_cluster()["brokers"][0]["broker_id"] == 1
    produce(broker, "managed", 10)
    here = library.TopicPartition("managed", 0)
    cut = client.delete_records({here: 4})
    assert cut[here]["low_watermark"] == 4
    client.delete_topics(["managed"])
    assert "managed" not in client.list_topics()


def test_settings_are_described_and_changed(client: Any) -> None:
    make(client, "set")

    def alter(value: str) -> Any:
        change = {"retention.ms": value}
        kind = administration.ConfigResourceType.TOPIC
        return client.alter_configs([administration.ConfigResource(kind, "set", change)])

    def retention() -> Any:
        kind = administration.ConfigResourceType.TOPIC
        asked = [administration.ConfigResource(kind, "set", ["retention.ms"])]
        return str(client.describe_configs(asked, config_filter="all"))

    assert "604800000" in retention()
    alter("86400000")
    assert "86400000" in retention()
    assert "InvalidConfigurationError" in str(alter("soon"))
    assert "86400000" in retention()


def test_groups_are_administered(broker: OttlaBroker, client: Any) -> None:
    make(client, "led")
    produce(broker, "led", 5)
    here = library.TopicPartition("led", 0)
    client.alter_group_offsets("led", {here: library.OffsetAndMetadata(4, "", -1)})
    assert client.list_group_offsets({"led": [here]})["led"][here].offset == 4
    assert "led" in str(client.list_groups())
    assert "Empty" in str(client.describe_groups(["led"]))
    client.delete_groups(["led"])
    assert "'led'" not in str(client.list_groups())


def test_too_large_record_is_rejected(broker: OttlaBroker, client: Any) -> None:
    make(client, "small", max_message_bytes="1000")
    producer = library.KafkaProducer(bootstrap_servers=broker.bootstrap)
    with pytest.raises(errors.MessageSizeTooLargeError):
        producer.send("small", b"x" * 5000).get(PATIENCE_S)
    producer.close()

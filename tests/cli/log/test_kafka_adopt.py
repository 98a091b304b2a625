"""Ottla adopts the topics, records and commits of a stopped Kafka."""

import json
import os
import re
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import kafka as kafka_python
import pytest

from cli.forked import run_script
from cli.golden import check_settled
from judges.kafka_broker import KafkaBroker
from judges.ottla_broker import OttlaBroker
from kafka_java import kafka_broker

client: Any = kafka_python  # it has no types

TOPICS = {
    "orders": (3, {"retention.ms": "86400000", "max.message.bytes": "2000000"}),
    "state.compacted": (1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}),
}


class Seen(NamedTuple):
    """What a client reads from a server."""

    records: dict[tuple[str, int], list[tuple[int, int, bytes | None, bytes | None]]]
    committed: dict[tuple[str, int], tuple[int, str] | None]
    settings: dict[str, dict[str, str]]


def write(bootstrap: str) -> None:
    admin = client.admin.KafkaAdminClient(bootstrap_servers=bootstrap)
    topics = [
        client.admin.NewTopic(name, partitions, 1, topic_configs=configs)
        for name, (partitions, configs) in TOPICS.items()
    ]
    admin.create_topics(topics)
    gone = client.admin.NewTopic("gone", 1, 1, topic_configs={"retention.ms": "5"})
    admin.create_topics([gone])
    admin.delete_topics(["gone"])
    admin.close()
    for codec in (None, "gzip", "lz4"):
        producer = client.KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec)
        for number in range(60):
            producer.send(
                "orders",
                key=b"%d" % number,
                value=b"%r %d" % (codec, number),
                headers=[("n", b"%d" % number)],
                partition=number % 3,
            )
            producer.send("state.compacted", key=b"k%d" % (number % 5), value=b"%d" % number)
        producer.close()
    commit(bootstrap, {("orders", 0): 7, ("orders", 2): 12, ("state.compacted", 0): 100})


def commit(bootstrap: str, offsets: dict[tuple[str, int], int]) -> None:
    consumer = client.KafkaConsumer(
        bootstrap_servers=bootstrap, group_id="billing", enable_auto_commit=False
    )
    partitions = {client.TopicPartition(*key): offset for key, offset in offsets.items()}
    consumer.assign(list(partitions))
    consumer.commit(
        {key: client.OffsetAndMetadata(offset, "so far", -1) for key, offset in partitions.items()}
    )
    consumer.close()


def see(bootstrap: str) -> Seen:
    consumer = client.KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id="billing",
        enable_auto_commit=False,
        consumer_timeout_ms=2000,
    )
    keys = [(name, index) for name, (count, _) in TOPICS.items() for index in range(count)]
    partitions = [client.TopicPartition(*key) for key in keys]
    consumer.assign(partitions)
    consumer.seek_to_beginning(*partitions)
    records: dict[tuple[str, int], list[Any]] = {key: [] for key in keys}
    for one in consumer:
        row = (one.offset, one.timestamp, one.key, one.value, tuple(one.headers))
        records[one.topic, one.partition].append(row)
    committed = {
        (one.topic, one.partition): consumer.committed(one, metadata=True) for one in partitions
    }
    consumer.close()
    admin = client.admin.KafkaAdminClient(bootstrap_servers=bootstrap)
    settings = {name: own_settings(admin, name) for name in TOPICS}
    admin.close()
    return Seen(
        records,
        {
            key: None if found is None else (found.offset, found.metadata)
            for key, found in committed.items()
        },
        settings,
    )


def own_settings(admin: Any, topic: str) -> dict[str, str]:
    resource = client.admin.ConfigResource(client.admin.ConfigResourceType.TOPIC, topic)
    (answer,) = admin.describe_configs([resource]).values()  # by resource type
    return {name: found["value"] for name, found in answer[topic].items()}


def adopt(*words: str) -> tuple[int, str, str]:
    done = run_script("ottla", ["log", "adopt", *words], env=os.environ, stdin=b"", timeout_s=60)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@contextmanager
def served(data: Path) -> Generator[str]:
    """Run an Ottla broker on a directory; yields its address."""
    with OttlaBroker(data.parent, data=data) as broker:
        broker.start()
        yield broker.bootstrap
        assert broker.stop() == 0


class Left(NamedTuple):
    """The data of the stopped Kafka, and what clients read from it before."""

    data: Path
    seen: Seen


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    copies = tmp_path_factory.mktemp("kafka")
    with kafka_broker() as kafka:
        write(kafka.bootstrap)
        seen = see(kafka.bootstrap)
        refuse_while_it_runs(kafka)
        shutil.copytree(kafka.data, copies / "running")
        kafka.stop()
        data = Path(shutil.copytree(kafka.data, copies / "data"))
    assert sum(map(len, seen.records.values())) == 360
    return Left(data, seen)


def refuse_while_it_runs(kafka: KafkaBroker) -> None:
    code, _, told = adopt("--check", str(kafka.data))
    assert code == 1
    assert "is in use by another process: stop that broker first" in told


def test_data_of_an_unclean_shutdown_is_refused(left: Left) -> None:
    code, _, told = adopt("--check", str(left.data.parent / "running"))
    assert code == 1
    assert "was not shut down cleanly" in told


def test_check_reports_and_changes_nothing(left: Left) -> None:
    before = {path.name for path in left.data.iterdir()} - {".lock"}
    code, told, _ = adopt("--check", "-o", "json", str(left.data))
    assert code == 0
    facts = json.loads(told)
    assert facts["taken"] is False
    topics = {topic["name"]: topic for topic in facts["topics"]}
    assert set(topics) == {*TOPICS, "__consumer_offsets"}
    for name, (partitions, settings) in TOPICS.items():
        assert topics[name]["partitions"] == partitions
        assert topics[name]["settings"] == settings
    after = {path.name for path in left.data.iterdir()}
    assert after - {".lock"} == before


def test_adopted_records_settings_and_offsets_are_served(left: Left, tmp_path: Path) -> None:
    data = Path(shutil.copytree(left.data, tmp_path / "data"))
    code, told, _ = adopt(str(data))
    assert code == 0, told
    assert "orders" in told
    code, _, refused = adopt(str(data))
    assert (code, "already" in refused) == (1, True)
    with served(data) as bootstrap:
        after = see(bootstrap)
        assert after.records == left.seen.records
        assert after.committed == left.seen.committed
        assert after.committed["orders", 0] == (7, "so far")
        for name, (_, settings) in TOPICS.items():
            assert settings.items() <= after.settings[name].items()
        producer = client.KafkaProducer(bootstrap_servers=bootstrap)
        sent = producer.send("orders", b"more", partition=0).get(10)
        assert sent.offset == len(left.seen.records["orders", 0])
        producer.close()
        commit(bootstrap, {("orders", 0): 20})
    with served(data) as bootstrap:
        again = see(bootstrap)
        assert again.records["orders", 0][-1][3] == b"more"
        assert again.committed["orders", 0] == (20, "so far")
        assert again.committed["orders", 2] == left.seen.committed["orders", 2]


def test_output_is_golden(left: Left, tmp_path: Path) -> None:
    data = Path(shutil.copytree(left.data, tmp_path / "data"))
    for deleted in data.glob("*-delete"):  # Kafka may have deleted it already, or not
        shutil.rmtree(deleted)
    for form, name in (("table", "log-adopt.txt"), ("json", "log-adopt.json")):
        code, told, _ = adopt("--check", "-o", form, str(data))
        assert code == 0
        # The size of compressed records varies.
        check_settled(name, re.sub(r'(bytes"?:?) \d+', r"\1 1000", told))


def test_data_of_another_broker_is_refused(left: Left) -> None:
    code, _, told = adopt("--check", "--node-id", "5", str(left.data))
    assert (code, "belongs to broker 1, not to broker 5" in told) == (1, True)
    code, told, _ = adopt("--check", "--node-id", "5", "-o", "json", str(left.data))
    assert (code, json.loads(told)["error"]["code"]) == (1, "REFUSED")


def test_missing_partition_directory_is_refused(left: Left, tmp_path: Path) -> None:
    data = Path(shutil.copytree(left.data, tmp_path / "data"))
    shutil.rmtree(data / "orders-1")
    code, _, told = adopt("--check", str(data))
    assert code == 1
    assert "orders lacks partition 1" in told
    assert "orders-1 is missing" in told


def test_nothing_is_deleted_without_kafkas_metadata(left: Left, tmp_path: Path) -> None:
    data = Path(shutil.copytree(left.data, tmp_path / "data"))
    shutil.rmtree(data / "__cluster_metadata-0")
    code, told, _ = adopt("--check", "-o", "json", str(data))
    assert code == 0
    facts = json.loads(told)
    topics = {topic["name"]: topic["settings"] for topic in facts["topics"]}
    assert topics["state.compacted"] == {"retention.ms": "-1"}
    assert topics["__consumer_offsets"]["cleanup.policy"] == "compact"
    assert "kept for ever" in facts["notes"][0]

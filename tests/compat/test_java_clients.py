"""Java clients of Kafka, the last version before 4 and the newest, use all of our broker."""

import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from judges.java import CLIENTS_39_POM, POM, source_command
from judges.ottla_broker import OttlaBroker, ottla_broker
from kafka_java import judge_needed

JUDGE = Path(__file__).with_name("ClientJudge.java")

# The output of a real Kafka 4.3 for the same steps, except for "broker config" and "grow": there
# its metadata is stale, and it responds as before the change.
TOLD = {
    "create": "3 1",
    "create again": "TopicExistsException",
    "create badly": "InvalidTopicException",
    "create widely": "InvalidReplicationFactorException",
    "list": "true",
    "describe": "3 false 1 1",
    "describe by id": "true",
    "describe nothing": "UnknownTopicOrPartitionException",
    "cluster": "1 1",
    "produce none": "19",
    "produce gzip": "39",
    "produce snappy": "59",
    "produce lz4": "79",
    "produce zstd": "99",
    "produce unsafely": "true",
    "produce too much": "RecordTooLargeException",
    "consume": "100 100",
    "times": "5 5 5",
    "time to come": "null",
    "ends": "[0] [100]",
    "newest": "19 19",
    "group": "[3, 3, 3, 3, 3, 3]",
    "static member": "3 0",
    "commit": "42 a note",
    "resume": "42",
    "commit elsewhere": "{p0=42, p1=1}",
    "commit nowhere": "UnknownTopicOrPartitionException",
    "forget": "{p0=42}",
    "describe group": "0 1",
    "delete group": "null",
    "delete group again": "GroupIdNotFoundException",
    "config": "604800000 DEFAULT_CONFIG LONG false",
    "set config": "12345000 DYNAMIC_TOPIC_CONFIG",
    "append config": "delete,compact",
    "unset config": "delete",
    "bad config": "InvalidConfigurationException",
    "broker config": "2 DYNAMIC_BROKER_CONFIG",
    "grow": "5",
    "shrink": "InvalidPartitionsException",
    "delete records": "10",
    "directories": "true true",
    "delete": "false",
    "delete again": "UnknownTopicOrPartitionException",
}


@pytest.fixture(scope="module")
def broker() -> Generator[OttlaBroker]:
    with ottla_broker() as running:
        yield running


@pytest.mark.parametrize("pom", [CLIENTS_39_POM, POM], ids=["3.9", "4.3"])
def test_java_client_uses_every_feature(broker: OttlaBroker, pom: Path) -> None:
    with judge_needed():
        command = source_command(JUDGE, broker.bootstrap, pom.name.split(".")[0], pom=pom)
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    told = dict(line.split("\t", 1) for line in done.stdout.splitlines())
    assert told == TOLD, done.stderr

"""`ottla topic` and `ottla config` on a real Kafka, with and without rights.

Most of it needs a Kafka without other topics and runs only in `make judge`.
"""

import json
import subprocess
from collections.abc import Generator
from typing import Any

import pytest

from cli.golden import check_settled
from cli.scripts import ottla
from judges.kafka_broker import KafkaBroker
from kafka_java import kafka_broker
from ottla.client.admin import ScramMechanism, ScramPassword
from ottla.sync import Admin, Producer
from shared_kafka import SharedKafka

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.login.scram-sha-512.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
}


@pytest.fixture(scope="module")
def kafka() -> Generator[KafkaBroker]:
    with kafka_broker(SETTINGS, listeners={"LOGIN": "SASL_PLAINTEXT"}) as broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            password = ScramPassword("bob", "secret", ScramMechanism.SHA_512)
            admin.alter_scram_users([password]).or_raise()
        yield broker


def run(kafka: KafkaBroker, *arguments: str) -> subprocess.CompletedProcess[str]:
    return ottla(*arguments, "-b", kafka.bootstrap)


def told(kafka: KafkaBroker, *arguments: str) -> Any:
    answer = run(kafka, *arguments, "-o", "json")
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def as_bob(kafka: KafkaBroker, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user without rights."""
    settings = {
        "bootstrap.servers": f"127.0.0.1:{kafka.ports['LOGIN']}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "bob",
        "sasl.password": "secret",
    }
    words = [word for one in settings.items() for word in ("-X", "=".join(one))]
    return ottla(*arguments, *words)


def test_topic_is_created_filled_changed_and_deleted(shared_kafka: SharedKafka) -> None:
    kafka = shared_kafka.broker
    made = run(kafka, "topic", "create", "cli-orders", "-p", "3", "-r", "1", "-c", "retention.ms=5")
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout == "Created cli-orders with 3 partitions, replication factor 1.\n"
    with Producer(bootstrap_servers=kafka.bootstrap) as producer:
        for _ in range(100):
            producer.send("cli-orders", b"x" * 10_000, partition=1)
    (found,) = told(kafka, "topic", "describe", "cli-orders", "--seconds", "0.1")["topics"]
    assert found["configs"] == {"retention.ms": "5"}
    sizes = [one["size_bytes"] for one in found["partitions"]]
    assert sizes[1] > 1_000_000
    assert [one["skewed"] for one in found["partitions"]] == [[], ["size"], []]
    assert [one["end_offset"] for one in found["partitions"]] == [0, 100, 0]
    assert [one["records_per_s"] for one in found["partitions"]] == [0, 0, 0]
    grown = run(kafka, "topic", "alter", "cli-orders", "-p", "4", "--unset", "retention.ms")
    assert grown.returncode == 0
    (found,) = told(kafka, "topic", "describe", "cli-orders", "--seconds", "0")["topics"]
    assert len(found["partitions"]) == 4
    assert found["configs"] == {}
    assert told(kafka, "topic", "delete", "cli-orders", "--yes")["deleted"] == ["cli-orders"]
    assert run(kafka, "topic", "delete", "cli-orders", "--yes").returncode == 1


@pytest.mark.judge
def test_apply_creates_changes_and_deletes_topics(kafka: KafkaBroker) -> None:
    text = "- {name: a, partitions: 2, configs: {retention.ms: 5}}\n- {name: b}\n"
    words = ("topic", "apply", "-f", "-", "-b", kafka.bootstrap)
    assert ottla(*words, "--yes", stdin=text).returncode == 0
    again = ottla(*words, stdin=text)
    assert again.stdout == "= 2 topics are unchanged\nNothing to do.\n"
    bad = text.replace("retention.ms: 5", "retention.ms: soon").replace("name: b", "name: c")
    refused = ottla(*words, "--yes", stdin=bad)
    assert refused.returncode == 1
    assert "! a: to be changed" in refused.stdout
    assert "+ c: to be created" in refused.stdout
    names = [one["name"] for one in told(kafka, "topic", "list")["topics"]]
    assert "c" not in names
    gone = ottla(*words, "--yes", "--delete-others", stdin="[]")
    assert gone.returncode == 0
    assert told(kafka, "topic", "list")["topics"] == []


@pytest.mark.judge
def test_settings_of_a_group_are_set_and_unset(kafka: KafkaBroker) -> None:
    of = ("--group", "shop")
    assert run(kafka, "config", "set", *of, "consumer.session.timeout.ms=50000").returncode == 0
    shown = run(kafka, "config", "describe", *of)
    check_settled("config-describe-group.txt", shown.stdout)
    assert run(kafka, "config", "unset", *of, "consumer.session.timeout.ms").returncode == 0
    assert told(kafka, "config", "describe", *of)["configs"] == []


@pytest.mark.judge
def test_quotas_are_set_described_and_unset(kafka: KafkaBroker) -> None:
    for whom in (("--user", "ann"), ("--user", "ann", "--client-id", "app"), ("--ip-defaults",)):
        quota = (
            "connection_creation_rate=5" if "--ip-defaults" in whom else "producer_byte_rate=1e6"
        )
        assert run(kafka, "config", "set", *whom, quota).returncode == 0
    alone = told(kafka, "config", "describe", "--user", "ann")["quotas"]
    assert alone == [
        {"entity": [{"kind": "user", "name": "ann"}], "values": {"producer_byte_rate": 1e6}}
    ]
    check_settled("config-quotas.txt", run(kafka, "config", "describe", "--quotas").stdout)
    check_settled(
        "config-quotas.json", run(kafka, "config", "describe", "--quotas", "-o", "json").stdout
    )
    gone = run(kafka, "config", "unset", "--user", "ann", "producer_byte_rate", "-o", "json")
    check_settled("config-unset-quota.json", gone.stdout)
    assert told(kafka, "config", "describe", "--user", "ann")["quotas"] == []
    nobody = run(kafka, "config", "describe", "--user", "nobody")
    assert (nobody.returncode, nobody.stdout) == (0, "No matching quotas.\n")


@pytest.mark.judge
@pytest.mark.parametrize(
    "words",
    [
        ("topic", "create", "mine"),
        ("topic", "describe", "there"),
        ("topic", "alter", "there", "-p", "2"),
        ("topic", "delete", "there", "--yes"),
        ("config", "describe", "--topic", "there"),
        ("config", "set", "--topic", "there", "retention.ms=1"),
        ("config", "set", "--broker-defaults", "log.cleaner.threads=2"),
        ("config", "describe", "--quotas"),
        ("config", "set", "--user", "bob", "producer_byte_rate=1e9"),
    ],
    ids=" ".join,
)
def test_command_without_rights_fails_and_changes_nothing(
    kafka: KafkaBroker, words: tuple[str, ...]
) -> None:
    run(kafka, "topic", "create", "there", "--if-not-exists")
    said = as_bob(kafka, *words)
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.startswith("ottla: ")
    assert said.stderr.count("\n") == 1
    topics = told(kafka, "topic", "list")["topics"]
    assert [(one["name"], one["partitions"]) for one in topics] == [("there", 1)]


@pytest.mark.judge
def test_user_without_rights_sees_no_topics(kafka: KafkaBroker) -> None:
    said = as_bob(kafka, "topic", "list")
    assert (said.returncode, said.stdout, said.stderr) == (0, "No topics.\n", "")

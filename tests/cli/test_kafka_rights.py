"""Every command that talks to a cluster, run without rights: it says so and changes nothing.

The cluster is a Kafka with an authorizer.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from cli.console import command
from cli.test_every_command import ASKING, ASKING_TOOLS, OFFSETS, at_once, verdict
from judges.kafka_broker import KafkaBroker
from ottla.client.admin import ConfigResource, OffsetAt, ScramPassword
from ottla.sync import Admin, Producer
from sampling import sample
from shared_kafka import SharedKafka

BOB = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "bob",
    "sasl.password": "secret",
}
# Commands that need no rights: the cluster, and lists of what the user may see, which are empty.
OPEN: Mapping[str, str] = {
    "api-versions": "Metadata",
    "cluster describe": "127.0.0.1",
    "cluster status": "127.0.0.1",
    "doctor": "responds, with 1 broker",
    "group list": "There are no groups.",
    "offsets": "No topics.",
    "topic describe": "No topics.",
    "topic list": "No topics.",
}
REFUSED = (
    "broker drain {broker} --execute",
    "broker list",
    "broker undrain {broker}",
    "cluster balance --execute",
    "collect files config.toml --topic t --once --state collected",
    "config describe --topic t",
    "config describe --quotas",
    "config set --topic t retention.ms=1",
    "config set --broker-defaults log.cleaner.threads=2",
    "config set --user bob producer_byte_rate=1e9",
    "config unset --topic t retention.ms",
    "consume t --exit",
    "consume t --group g --exit",
    "group delete g --yes",
    "group describe g",
    "group seek g --to start --topic t --execute",
    "offsets t",
    "partition cancel --all",
    "partition cancel t",
    "partition elect",
    "partition elect t",
    "partition move t --to {broker} --execute",
    "partition status",
    "partition status --wait",
    "perf consume t",
    "perf latency t -n 1",
    "perf produce t -n 1",
    "pipeline init t",
    "produce t",
    "topic alter t --partitions 2",
    "topic apply -f {topics} --yes",
    "topic create new",
    "topic delete t --yes",
    "topic describe t",
)
# Exit codes of Kafka's tools: some print the error and exit with 0, like Kafka's.
TOOLS: Mapping[str, int] = {
    "kafka-broker-api-versions": 0,
    "kafka-cluster cluster-id": 0,
    "kafka-configs --describe --entity-type topics --entity-name t": 0,
    "kafka-configs --alter --entity-type topics --entity-name t --add-config retention.ms=1": 1,
    "kafka-configs --alter --entity-type users --entity-name bob --add-config request_percentage=9": 1,  # noqa: E501
    "kafka-console-consumer --topic t --from-beginning": 1,
    "kafka-console-consumer --topic t --group g --from-beginning": 1,
    "kafka-console-producer --topic t": 0,
    "kafka-consumer-groups --list": 0,
    "kafka-consumer-groups --describe --group g": 0,
    "kafka-consumer-groups --delete --group g": 0,
    "kafka-consumer-groups --reset-offsets --to-earliest --group g --topic t --execute": 0,
    "kafka-consumer-perf-test --topic t --num-records 1": 1,
    "kafka-delete-records --offset-json-file {offsets}": 0,
    "kafka-get-offsets --topic t": 1,
    "kafka-leader-election --election-type preferred --all-topic-partitions": 1,
    "kafka-leader-election --election-type preferred --topic t --partition 0": 1,
    "kafka-log-dirs --describe": 1,
    "kafka-producer-perf-test --topic t --num-records 1 --record-size 1 --throughput -1": 1,
    "kafka-reassign-partitions --list": 1,
    "kafka-reassign-partitions --execute --reassignment-json-file {moves}": 1,
    "kafka-topics --list": 0,
    "kafka-topics --describe --topic t": 1,
    "kafka-topics --create --topic new": 1,
    "kafka-topics --alter --topic t --partitions 2": 1,
    "kafka-topics --delete --topic t": 1,
    "kafka-verifiable-consumer --topic t --group-id g": 1,
    "kafka-verifiable-producer --topic t --max-messages 1": 0,
}
# Like Kafka's, this tool has no flag for client settings: it cannot log in.
NO_LOGIN = "kafka-replica-verification"


class Scene(NamedTuple):
    """A cluster with a topic and a group, and the settings of bob."""

    kafka: KafkaBroker
    folder: Path

    @property
    def server(self) -> str:
        return f"127.0.0.1:{self.kafka.ports['SASL']}"

    def words(self, text: str) -> list[str]:
        files = ("topics.yaml", "offsets.json", "moves.json")
        places = {f"{{{Path(name).stem}}}": str(self.folder / name) for name in files}
        places["{broker}"] = str(self.kafka.node_id)
        return [places.get(word, word) for word in text.split()]

    def state(self) -> object:
        """Return everything that a command could change."""
        with Admin(bootstrap_servers=self.kafka.bootstrap) as admin:
            topics = {one.name: one.partitions for one in admin.list_topics().values()}
            owners = [ConfigResource.topic("t")]
            owners += [ConfigResource.broker(one) for one in (None, self.kafka.node_id)]
            configs = admin.describe_configs(owners).or_raise()
            return (
                topics,
                {
                    (owner.name, name): one.value
                    for owner, found in configs.items()
                    for name, one in found.items()
                },
                [
                    admin.list_offsets({("t", 0): at}).or_raise()["t", 0].offset
                    for at in (OffsetAt.EARLIEST, OffsetAt.LATEST)
                ],
                {
                    where: one and one.offset
                    for where, one in admin.list_group_offsets("g")["g"].items()
                },
                sorted(one.id for one in admin.list_groups().found),
                admin.describe_quotas(),
                admin.list_reassignments(),
            )


@pytest.fixture(scope="module")
def scene(shared_kafka: SharedKafka, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    folder = tmp_path_factory.mktemp("bob")
    kafka = shared_kafka.broker
    with Admin(bootstrap_servers=kafka.bootstrap) as admin:
        admin.alter_scram_users([ScramPassword("bob", "secret")]).or_raise()
        admin.create_topic("t", 1)
        with Producer(bootstrap_servers=kafka.bootstrap) as producer:
            producer.send("t", b"x")
            producer.send("t", b"y")
        admin.alter_group_offsets("g", {("t", 0): 1}).or_raise()
    scene = Scene(kafka, folder)
    (folder / "topics.yaml").write_text("- {name: new, partitions: 1}\n")
    (folder / "offsets.json").write_text(OFFSETS.replace('"offset": 0', '"offset": 1'))
    moves = {"partitions": [{"topic": "t", "partition": 0, "replicas": [kafka.node_id]}]}
    (folder / "moves.json").write_text(json.dumps(moves))
    (folder / "bob.properties").write_text("".join(f"{k}={v}\n" for k, v in BOB.items()))
    lines = "".join(f'"{name}" = "{value}"\n' for name, value in BOB.items())
    server = f'"bootstrap.servers" = "{scene.server}"\n'
    (folder / "config.toml").write_text(f'profile = "bob"\n[profiles.bob]\n{server}{lines}')
    return scene


def test_every_command_is_in_the_tables() -> None:
    said = [*OPEN, *REFUSED]
    assert [one.name for one in ASKING if not any(_is(one.name, words) for words in said)] == []
    said = [*TOOLS]
    assert [one for one in ASKING_TOOLS if not any(_is(one, words) for words in said)] == [NO_LOGIN]


def _is(name: str, words: str) -> bool:
    return f"{words} ".startswith(f"{name} ")


EVERY = pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.judge)])
SOME = 6
"""The number of commands that `make test` runs; `make judge` runs all."""


@EVERY
def test_command_without_rights_says_so_and_does_nothing(scene: Scene, every: bool) -> None:
    env = {"OTTLA_CONFIG": str(scene.folder / "config.toml")}

    def refused(words: str) -> str | None:
        done = command("ottla", *scene.words(words), env=env, stdin="x\n", folder=scene.folder)
        if told := verdict(words, done, [1], one_line=True):
            return told
        if not any(one in done.stderr for one in ("uthorization failed", "is not authorized")):
            return f"{words}: does not say why: {done.stderr}"
        done = command(
            "ottla",
            *scene.words(words),
            "-o",
            "json",
            env=env,
            stdin="x\n",
            folder=scene.folder,
        )
        return verdict(words, done, [1], one_line=False, is_json=True)

    def seen(words: str) -> str | None:
        done = command("ottla", *words.split(), env=env, folder=scene.folder)
        # Other findings of doctor depend on the machine.
        codes = [0, 1] if words == "doctor" else [0]
        if OPEN[words] not in done.stdout:
            return f"{words}: says {done.stdout}{done.stderr}"
        return verdict(words, done, codes, one_line=False)

    before = scene.state()
    at_once(refused, REFUSED if every else sample(REFUSED, SOME))
    at_once(seen, [*OPEN] if every else sample(OPEN, SOME // 2))
    assert scene.state() == before


@EVERY
def test_tool_without_rights_says_so_and_does_nothing(scene: Scene, every: bool) -> None:
    who = ("--bootstrap-server", scene.server)
    who = (*who, "--command-config", str(scene.folder / "bob.properties"))

    def check(words: str) -> str | None:
        tool, *arguments = scene.words(words)
        done = command(tool, *arguments, *who, stdin="x\n")
        return verdict(words, done, [TOOLS[words]], one_line=False)

    before = scene.state()
    at_once(check, [*TOOLS] if every else sample(TOOLS, SOME))
    assert scene.state() == before

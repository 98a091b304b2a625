"""Ottla's `kafka-topics` and `kafka-configs`, compared with Kafka's Java tools.

Each tool runs a command that changes something on a topic of its own, {t}. Both run a command that
only reads on the same topic. On an Ottla broker, the output of Java's tools is recorded, and
Ottla's tool makes the changes to Java's topic. `make judge` runs both tools on both kinds of
brokers. Messages of the broker are compared only on Kafka.
"""

import re
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from cli.kafka.in_process import run_here
from cli.scripts import run
from judges.ottla_broker import ottla_broker
from judges.recording import Mode, Scenario
from kafka_java import kafka_broker
from kafka_tools import KafkaTools, Said
from recorded import recording, scenario

__all__ = ["recording", "scenario"]  # fixtures

pytestmark = pytest.mark.recorded

OURS, THEIRS = "ours", "java"

Places: TypeAlias = Mapping[str, str]
"""Values of the other names in braces."""

NOWHERE: Places = {}

DELETED_WITHIN_S = {"ottla": 0, "kafka": 30}
"""How long the metadata may have a topic whose deletion a broker has answered."""


class Bench(NamedTuple):
    """A broker, and Java's tools or their recorded output."""

    name: str
    bootstrap: str
    java: KafkaTools
    scenario: Scenario | None

    def arguments(self, words: str, topic: str, *, server: bool, places: Places) -> list[str]:
        for name, place in ({"{t}": topic} | dict(places)).items():
            words = words.replace(name, place)
        return [*words.split(), *(("--bootstrap-server", self.bootstrap) if server else ())]

    def javas(
        self,
        tool: str,
        words: str,
        *,
        server: bool = True,
        places: Places = NOWHERE,
        message: str = "{message}",
    ) -> Said:
        """Return the output of Java's tool; it is recorded on an Ottla broker.

        `message` is a text of the broker, which is not recorded: "{message}" stands for it.
        """
        arguments = self.arguments(words, THEIRS, server=server, places=places)

        def ask() -> Said:
            said = self.settled(self.java.run(tool, *arguments))
            return said._replace(out=said.out.replace(message, "{message}"))

        if self.scenario is None:
            return ask()
        if self.scenario.mode is Mode.READ and "{t}" in words:
            run_here(tool, *arguments)  # makes the change of Java's tool, which does not run
        asked = f"{tool} {words}{' --bootstrap-server {server}' if server else ''}"
        return Said.of(self.scenario.answer(asked, lambda: ask().json))

    def settled(self, said: Said) -> Said:
        """Remove what belongs to one tool: names, ids, addresses, the usage, stack traces."""

        def plain(text: str) -> str:
            text = re.sub(rf"(?<![a-z])({OURS}|{THEIRS})(?![a-z])", "{t}", text)
            text = text.replace(self.bootstrap, "{server}")
            return re.sub(r"TopicId: \S+", "TopicId: {id}", text)

        err = said.err if said.code == 0 else "\n".join(said.err.splitlines()[:1])
        return Said(said.code, plain(said.out), plain(err))


@pytest.fixture(scope="module")
def ottla() -> Generator[str]:
    with ottla_broker() as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def kafka() -> Generator[str]:
    with kafka_broker() as broker:
        yield broker.bootstrap


@pytest.fixture
def of_ottla(ottla: str, scenario: Scenario, java_tools: KafkaTools) -> Bench:
    return Bench("ottla", ottla, java_tools, scenario)


@pytest.fixture
def of_kafka(kafka: str, java_tools: KafkaTools) -> Bench:
    return Bench("kafka", kafka, java_tools, None)


@pytest.fixture(params=["of_ottla", pytest.param("of_kafka", marks=pytest.mark.judge)])
def bench(request: pytest.FixtureRequest) -> Bench:
    return request.getfixturevalue(request.param)


def both(
    bench: Bench, tool: str, words: str, *, server: bool = True, places: Places = NOWHERE
) -> tuple[Said, Said]:
    """Return the output of Ottla's tool and Kafka's; {t} is a topic of each tool's own."""
    ours = run_here(tool, *bench.arguments(words, OURS, server=server, places=places))
    return bench.settled(ours), bench.javas(tool, words, server=server, places=places)


def same(bench: Bench, tool: str, words: str, places: Places = NOWHERE) -> Said:
    """Assert that both print the same; returns the output."""
    ours, theirs = both(bench, tool, words, places=places)
    assert ours.out.splitlines() == theirs.out.splitlines(), words
    assert ours == theirs, words
    return ours


def _blocks(said: Said) -> list[str]:
    """Return the headings with the sorted lines below them."""
    return sorted(re.split(r"\n(?=\S)", said.out.strip()))


# Topics.


def test_topic_is_created_changed_and_deleted_as_by_java(bench: Bench) -> None:
    def topics(words: str) -> Said:
        return same(bench, "kafka-topics", words)

    made = topics("--create --topic {t} --partitions 3 --config retention.ms=86400000")
    assert made == (0, "Created topic {t}.\n", "")
    assert topics("--create --topic {t}").code == 1
    assert topics("--create --topic {t} --if-not-exists") == (0, "", "")
    configs = "--config segment.bytes=2000000 --config cleanup.policy=compact"
    topics("--create --topic {t}.x --replication-factor 1 " + configs)
    topics("--create --topic {t}_y --replica-assignment 1,1")
    assert OURS in run_here("kafka-topics", "--list", "--bootstrap-server", bench.bootstrap).out
    for words in (
        "--list",
        "--list --exclude-internal",
        "--list --topic ours.*",
        "--list --topic ours,java_y",
        "--list --topic nothing",
        "--describe",
        "--describe --topic ours",
        "--describe --topic {t}",
        "--describe --topic java.*",
        "--describe --topics-with-overrides",
        "--describe --under-replicated-partitions",
        "--describe --unavailable-partitions",
        "--describe --under-min-isr-partitions",
        "--describe --at-min-isr-partitions --exclude-internal",
        "--describe --at-min-isr-partitions --under-min-isr-partitions --topic {t}",
        "--describe --topic absent",
        "--describe --topic absent --if-exists",
        "--describe --topic-id AAAAAAAAAAAAAAAAAAAAAQ",
        "--describe --topic-id AAAAAAAAAAAAAAAAAAAAAA --topic {t} --if-exists",
        "--describe --topic {t} --partition-size-limit-per-response 1",
        "--desc --topic {t}",
    ):
        topics(words)
    assert topics("--alter --topic {t} --partitions 5") == (0, "", "")
    assert topics("--alter --topic {t}_y --partitions 3 --replica-assignment 1,1,1").code == 0
    topics("--alter --topic {t} --partitions 2")
    topics("--alter --topic absent --partitions 2")
    topics("--alter --topic absent --partitions 2 --if-exists")
    topics("--describe --topic {t}")
    topics("--describe --topic {t}_y")
    assert topics("--delete --topic {t}") == (0, "", "")
    await_deletion(bench, lambda topic: topic in (OURS, THEIRS))
    assert topics("--delete --topic {t}").code == 1
    assert topics("--delete --topic {t} --if-exists") == (0, "", "")
    assert topics("--delete --topic {t}.*") == (0, "", "")
    await_deletion(bench, lambda topic: topic.startswith((OURS, THEIRS)))
    topics("--list")


def await_deletion(bench: Bench, is_deleted: Callable[[str], bool]) -> None:
    """Wait until no deleted topic is listed: Kafka's metadata follows a deletion late."""
    listed = ("--list", "--bootstrap-server", bench.bootstrap)
    deadline = time.monotonic() + DELETED_WITHIN_S[bench.name]
    while any(map(is_deleted, run_here("kafka-topics", *listed).out.split())):
        assert time.monotonic() < deadline


def test_topic_is_described_by_its_id(bench: Bench) -> None:
    where = ("--bootstrap-server", bench.bootstrap)
    assert run_here("kafka-topics", "--create", "--topic", "by-id", *where).code == 0
    described = run_here("kafka-topics", "--describe", "--topic", "by-id", *where).out
    found = re.search(r"TopicId: (\S+)", described)
    assert found
    places = {"{id}": found.group(1)}
    said = same(bench, "kafka-topics", "--describe --topic-id {id}", places)
    assert said.code == 0
    assert "Topic: by-id" in said.out
    assert run_here("kafka-topics", "--delete", "--topic", "by-id", *where).code == 0


REFUSED = (
    "",
    "--list --create",
    "--topic a",
    "--create",
    "--create --topic a --partitions 0",
    "--create --topic a --partitions x",
    "--create --topic a --replication-factor 0",
    "--create --topic a --replication-factor 40000",
    "--create --topic a --config retention.ms",
    "--create --topic a --config a=b=c",
    "--create --topic a --replica-assignment 1:1",
    "--create --topic a --replica-assignment 1,1:2",
    "--create --topic a --replica-assignment x",
    "--create --topic a --replica-assignment 99999999999999",
    "--create --topic a --replica-assignment 1 --partitions 1",
    "--create --topic a --if-exists",
    "--create --topic a --topic b",
    "--alter --topic a",
    "--alter --topic a --partitions 2 --replication-factor 2",
    "--delete",
    "--delete --topic a --if-not-exists",
    "--delete --topic a --partitions 2",
    "--list --config a=b",
    "--list --under-replicated-partitions",
    "--describe --under-replicated-partitions --topics-with-overrides",
    "--describe --if-exists",
    "--describe --topic [",
    "--describe --replication-factor 1",
    "--alter --topic a --partitions 2 --exclude-internal",
    "--nothing",
    "--list --top a",
    "--list --topic",
    "--delete-config a --list --create",
)


@pytest.mark.parametrize("words", REFUSED)
def test_topics_refuses_what_java_refuses(of_ottla: Bench, words: str) -> None:
    ours, theirs = both(of_ottla, "kafka-topics", words, server=not words.endswith("--topic"))
    assert theirs.code == 1
    assert ours == theirs


@pytest.mark.parametrize(
    "words", ["--list", "--create --topic a", "--describe", "--version --list"]
)
def test_topics_needs_a_server(of_ottla: Bench, words: str) -> None:
    ours, theirs = both(of_ottla, "kafka-topics", words, server=False)
    if "--version" in words:
        assert ours.code == theirs.code == 0
    else:
        assert ours == theirs


@pytest.mark.parametrize(
    "words",
    [
        "--create --topic a --config no.such=1",
        "--create --topic a --config retention.ms=soon",
        "--create --topic a --replication-factor 2",
        "--create --topic a/b",
        "--create --topic a --replica-assignment 77",
    ],
)
def test_topics_prints_what_the_broker_refuses(bench: Bench, words: str) -> None:
    ours = run_here("kafka-topics", *bench.arguments(words, OURS, server=True, places=NOWHERE))
    ours = bench.settled(ours)
    prefix, separator, message = ours.out.partition(" : ")
    assert prefix == "Error while executing topic command"
    assert message.count("\n") == 1
    theirs = bench.javas("kafka-topics", words, message=message)
    assert theirs.out.startswith(prefix + separator)  # Java's tool checks settings itself
    if bench.name == "kafka" or "--config" not in words:
        assert theirs.out == f"{prefix}{separator}{{message}}"
    assert ours.code == theirs.code == 1


# Configs.


def test_settings_of_a_topic_are_changed_as_by_java(bench: Bench) -> None:
    def configs(words: str) -> Said:
        return same(bench, "kafka-configs", words)

    same(bench, "kafka-topics", "--create --topic {t}")
    of = "--entity-type topics --entity-name {t}"
    add = "--add-config max.message.bytes=2000000,cleanup.policy=[compact,delete]"
    done = configs(f"--alter {of} {add}")
    assert done == (0, "Completed updating config for topic {t}.\n", "")
    for words in (
        f"--describe {of}",
        "--describe --topic {t}",
        f"--describe --all {of}",
        "--describe --topic absent",
        "--describe --entity-type topics --entity-name absent",
    ):
        configs(words)
    ours, theirs = both(bench, "kafka-configs", "--describe --entity-type topics")
    assert _blocks(ours) == _blocks(theirs)  # Scala's set has an order of its own
    configs(f"--alter {of} --delete-config max.message.bytes --add-config retention.ms=5")
    assert "max.message.bytes" not in configs(f"--describe {of}").out
    assert configs(f"--alter {of} --delete-config max.message.bytes").code == 0
    configs(f"--alter {of} --delete-config no.such")
    assert configs(f"--alter {of} --delete-config retention.ms,cleanup.policy").code == 0
    configs(f"--describe {of}")
    same(bench, "kafka-topics", "--delete --topic {t}")


def test_settings_of_brokers_are_changed_as_by_java(bench: Bench) -> None:
    def configs(words: str) -> Said:
        return same(bench, "kafka-configs", words)

    everybody = "--entity-type brokers --entity-default"
    one = "--entity-type brokers --entity-name 1"
    done = configs(f"--alter {everybody} --add-config log.cleaner.threads=2")
    assert done == (0, "Completed updating default config for brokers in the cluster.\n", "")
    assert configs(f"--alter {one} --add-config log.cleaner.threads=3").code == 0
    for words in (
        f"--describe {everybody}",
        "--describe --broker-defaults",
        f"--describe {one}",
        "--describe --broker 1",
        "--describe --entity-type brokers",
        "--describe --broker 77",
        "--describe --broker one",
    ):
        configs(words)
    if bench.name == "kafka":  # for Ottla it would have to be recorded again with every new setting
        configs(f"--describe --all {one}")
    assert configs(f"--alter {everybody} --delete-config log.cleaner.threads").code in (0, 1)
    for words in ("--broker-defaults", "--broker 1"):
        both(bench, "kafka-configs", f"--alter {words} --delete-config log.cleaner.threads")
        assert "threads" not in configs(f"--describe {words}").out


def test_settings_are_read_from_a_file(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "add.properties"
    path.write_text("retention.ms = 7\ncleanup.policy=compact,delete\n")
    same(bench, "kafka-topics", "--create --topic {t}")
    of = "--entity-type topics --entity-name {t}"
    add, places = f"--alter {of} --add-config-file {{file}}", {"{file}": str(path)}
    assert same(bench, "kafka-configs", add, places).code == 0
    assert "retention.ms=7 " in same(bench, "kafka-configs", f"--describe {of}").out
    path.write_text("retention.ms=8\nsegment.ms=\\u00zz\n")
    ours, theirs = both(bench, "kafka-configs", add, places=places)
    assert (ours.code, ours.out, theirs.code, theirs.out) == (1, "", 1, "")
    assert "retention.ms=7 " in same(bench, "kafka-configs", f"--describe {of}").out
    same(bench, "kafka-topics", "--delete --topic {t}")


@pytest.mark.judge  # Ottla does not support group configs and quotas yet
def test_group_settings_and_quotas_are_changed_as_by_java(of_kafka: Bench) -> None:
    def configs(words: str) -> Said:
        return same(of_kafka, "kafka-configs", words)

    group = "--entity-type groups --entity-name {t}"
    assert configs(f"--alter {group} --add-config consumer.session.timeout.ms=50000").code == 0
    configs(f"--describe {group}")
    configs("--describe --group {t}")
    configs("--describe --group absent")
    configs("--describe --entity-type groups")
    configs(f"--alter {group} --delete-config consumer.session.timeout.ms")
    rates = "--add-config producer_byte_rate=1024,consumer_byte_rate=20000000"
    for whom in (
        "--entity-type users --entity-name {t}",
        "--entity-type clients --entity-name {t}",
        "--entity-type users --entity-name {t} --entity-type clients --entity-name {t}",
        "--entity-type users --entity-default --entity-type clients --entity-default",
        "--user {t} --client-defaults",
        "--user-defaults",
        "--client-defaults",
    ):
        assert configs(f"--alter {whom} {rates}").code == 0
        configs(f"--describe {whom}")
    assert configs("--alter --ip 127.0.0.1 --add-config connection_creation_rate=10").code == 0
    configs("--describe --ip 127.0.0.1")
    configs("--describe --ip-defaults")
    for words in (
        "--alter --ip 127.0.0.1 --add-config connection_creation_rate=10.5",
        "--alter --user {t} --delete-config producer_byte_rate",
        "--alter --user {t} --delete-config producer_byte_rate",
        "--alter --user {t} --add-config producer_byte_rate=fast",
        "--alter --user {t} --add-config no_such=1",
        "--alter --client {t} --add-config no_such=1",
        "--alter --client {t} --delete-config no_such",
        "--alter --user {t} --delete-config no_such",
        "--alter --ip 127.0.0.1 --add-config producer_byte_rate=1",
        "--alter --user {t} --add-config SCRAM-SHA-256=[password=secret]",
        "--alter --user {t} --add-config SCRAM-SHA-512=[iterations=8192,password=secret]",
        "--describe --user {t}",
        "--describe --user absent",
        "--alter --user {t} --add-config SCRAM-SHA-512=[iterations=10,password=secret]",
        "--alter --user {t} --add-config SCRAM-SHA-512=[secret]",
        "--alter --user-defaults --add-config SCRAM-SHA-512=[password=secret]",
        "--alter --user {t} --add-config SCRAM-SHA-512=[password=a],producer_byte_rate=1",
        "--alter --user {t} --delete-config SCRAM-SHA-512",
        "--alter --user {t} --delete-config SCRAM-SHA-256",
        "--alter --user {t} --delete-config SCRAM-SHA-256",
        "--describe --user {t}",
    ):
        configs(words)
    lines = [
        sorted(said.out.splitlines())
        for said in both(of_kafka, "kafka-configs", "--describe --entity-type users")
    ]
    assert lines[0] == lines[1]
    assert len(lines[0]) >= 2


CONFIGS_REFUSED = (
    "",
    "--describe",
    "--alter",
    "--describe --alter --topic a",
    "--describe --topic a --add-config a=b",
    "--describe --entity-type things --entity-name a",
    "--describe --entity-type topics --entity-type brokers",
    "--describe --entity-type topics --entity-type topics",
    "--describe --topic a --entity-name b",
    "--describe --entity-type topics --entity-default",
    "--describe --entity-type broker-loggers",
    "--describe --broker one",
    "--alter --entity-type topics --add-config a=b",
    "--alter --entity-type brokers --add-config a=b",
    "--alter --topic a",
    "--alter --topic a --add-config b",
    "--alter --topic a --add-config b=c=d",
    "--alter --topic a --add-config b/c=d",
    "--alter --topic a --add-config b=c --add-config-file d",
    "--alter --entity-type users --entity-type clients --entity-name a --add-config b=c",
    "--nothing",
)


@pytest.mark.parametrize("words", CONFIGS_REFUSED)
def test_configs_refuses_what_java_refuses(of_ottla: Bench, words: str) -> None:
    ours, theirs = both(of_ottla, "kafka-configs", words)
    assert theirs.code == 1
    assert ours == theirs


@pytest.mark.parametrize(
    "words",
    [
        "--alter --topic absent --add-config retention.ms=1",
        "--alter --topic there --add-config retention.ms=soon",
        "--alter --topic there --add-config no.such=1",
        "--alter --broker 1 --add-config node.id=5",
        "--describe --topic absent --all",
    ],
)
def test_configs_prints_what_the_broker_refuses(bench: Bench, words: str) -> None:
    where = ("--bootstrap-server", bench.bootstrap)
    run_here("kafka-topics", "--create", "--topic", "there", "--if-not-exists", *where)
    ours, theirs = both(bench, "kafka-configs", words)
    assert ours == theirs
    assert ours.code == 1


def test_configs_needs_a_server(of_ottla: Bench) -> None:
    ours, theirs = both(of_ottla, "kafka-configs", "--describe --topic a", server=False)
    assert ours == theirs


# Cases for which Kafka's tool waits for a minute or would end the test process.


@pytest.mark.parametrize(
    ("tool", "words"),
    [("kafka-topics", ("--list",)), ("kafka-configs", ("--describe", "--topic", "a"))],
)
def test_tool_fails_at_once_without_a_broker(tool: str, words: tuple[str, ...]) -> None:
    said = run(tool, *words, "--bootstrap-server", "127.0.0.1:1")
    assert said.returncode == 1
    told = (said.stdout + said.stderr).splitlines()
    assert "no broker found: 127.0.0.1:1: connection refused" in told[-1]
    assert len(told) <= 2
    bad = run(tool, *words, "--bootstrap-server", "nowhere")
    assert bad.returncode == 1
    assert "Traceback" not in bad.stderr


def test_unsupported_flag_is_one_line_and_exit_code_2() -> None:
    said = run("kafka-configs", "--describe", "--topic", "a", "--bootstrap-controller", "a:1")
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr == "kafka-configs: --bootstrap-controller is not supported yet\n"


@pytest.mark.parametrize("tool", ["kafka-topics", "kafka-configs"])
def test_help_names_every_flag(tool: str) -> None:
    said = run(tool, "--help")
    assert (said.returncode, said.stdout) == (1, "")
    assert "--bootstrap-server <host:port,…>" in said.stderr

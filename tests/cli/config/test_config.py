"""`ottla config` on an Ottla broker: changes, output and errors."""

import json
import socket
import subprocess
from collections.abc import Generator
from typing import Any

import pytest

from cases import each_case
from cli.golden import check_settled
from cli.scripts import ottla
from judges.ottla_broker import OttlaBroker, ottla_broker


@pytest.fixture(scope="module")
def broker() -> Generator[OttlaBroker]:
    with ottla_broker() as broker:
        assert ottla("topic", "create", "orders", "-b", broker.bootstrap).returncode == 0
        yield broker


def config(broker: OttlaBroker, *arguments: str) -> subprocess.CompletedProcess[str]:
    return ottla("config", *arguments, "-b", broker.bootstrap)


def told(broker: OttlaBroker, *arguments: str, code: int = 0) -> Any:
    answer = config(broker, *arguments, "-o", "json")
    assert answer.returncode == code, answer.stderr
    assert answer.stdout.count("\n") == 1
    return json.loads(answer.stdout)


def values(broker: OttlaBroker, *arguments: str) -> dict[str, str | None]:
    configs = told(broker, "describe", *arguments)["configs"]
    return {one["name"]: one["value"] for one in configs}


def test_topic_settings_are_set_described_and_unset(broker: OttlaBroker) -> None:
    of_topic = ("--topic", "orders")
    empty = config(broker, "describe", *of_topic)
    assert (
        empty.stdout == "topic orders has no settings of its own; --all shows the effective ones.\n"
    )
    done = config(broker, "set", *of_topic, "retention.ms=5", "cleanup.policy=compact,delete")
    assert (done.returncode, done.stderr) == (0, "")
    check_settled("config-set.txt", done.stdout)
    again = config(broker, "set", *of_topic, "retention.ms=6", "-o", "json")
    check_settled("config-set.json", again.stdout)
    check_settled("config-describe.txt", config(broker, "describe", *of_topic).stdout)
    check_settled(
        "config-describe.json", config(broker, "describe", *of_topic, "-o", "json").stdout
    )
    assert values(broker, *of_topic) == {
        "cleanup.policy": "compact,delete",
        "retention.ms": "6",
    }
    assert values(broker, *of_topic, "segment.bytes") == {"segment.bytes": "1073741824"}
    assert len(values(broker, *of_topic, "--all")) > 20
    gone = config(broker, "unset", *of_topic, "cleanup.policy")
    check_settled("config-unset.txt", gone.stdout)
    gone = config(broker, "unset", *of_topic, "retention.ms", "-o", "json")
    check_settled("config-unset.json", gone.stdout)
    assert values(broker, *of_topic) == {}


def test_dry_run_changes_nothing(broker: OttlaBroker) -> None:
    of_topic = ("--topic", "orders")
    assert told(broker, "set", *of_topic, "retention.ms=5", "--dry-run")["changed"] is False
    assert values(broker, *of_topic) == {}


def test_broker_settings_override_cluster_defaults(broker: OttlaBroker) -> None:
    assert config(broker, "set", "--broker-defaults", "log.cleaner.threads=2").returncode == 0
    assert values(broker, "--broker-defaults") == {"log.cleaner.threads": "2"}
    assert config(broker, "set", "--broker", "1", "log.cleaner.threads=3").returncode == 0
    found = told(broker, "describe", "--broker", "1", "log.cleaner.threads")
    assert found["resource"] == {"kind": "broker", "name": "1"}
    assert found["configs"] == [
        {
            "name": "log.cleaner.threads",
            "value": "3",
            "source": "broker",
            "read_only": False,
            "sensitive": False,
        }
    ]
    given = values(broker, "--broker", "1")
    assert given["node.id"] == "1"  # from the command line
    for words in (("--broker", "1"), ("--broker-defaults",)):
        assert config(broker, "unset", *words, "log.cleaner.threads").returncode == 0
    assert values(broker, "--broker-defaults") == {}


@each_case(
    ("words", "why"),
    [
        (("describe", "--topic", "absent"), "topic absent does not exist"),
        (("describe", "--topic", "orders", "no.such"), "topic orders has no setting no.such"),
        (("set", "--topic", "absent", "retention.ms=5"), "topic absent does not exist"),
        (("set", "--topic", "orders", "retention.ms=soon"), "topic orders: "),
        (("set", "--topic", "orders", "no.such=5"), "topic orders: "),
        (("set", "--broker", "1", "node.id=5"), "broker 1: "),
        (("describe", "--broker", "77"), ""),
        (("describe", "--group", "g"), "group g: configs of groups are not supported\n"),
        (("set", "--group", "g", "a=b"), "group g: configs of groups are not supported\n"),
        (("describe", "--user", "u"), ""),
        (("set", "--user", "u", "producer_byte_rate=5"), ""),
    ],
    ids=str,
)
def test_refused_change_prints_one_line_and_exits_with_1(
    broker: OttlaBroker, words: tuple[str, ...], why: str
) -> None:
    said = config(broker, *words)
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.startswith(f"ottla: {why}")
    assert said.stderr.count("\n") == 1
    assert told(broker, *words, code=1)["error"]["message"]


@each_case(
    "words",
    [
        ("describe",),
        ("describe", "--topic", "a", "--broker", "1"),
        ("describe", "--quotas", "--topic", "a"),
        ("describe", "--broker", "one"),
        ("set", "--topic", "a"),
        ("set", "--topic", "a", "b"),
        ("set", "retention.ms=1"),
        ("set", "--user", "u", "producer_byte_rate=fast"),
        ("unset", "--topic", "a"),
        ("unset", "a"),
        ("nothing",),
    ],
    ids=" ".join,
)
def test_wrong_usage_prints_one_line_and_exits_with_2(words: tuple[str, ...]) -> None:
    said = ottla("config", *words, "-b", "127.0.0.1:1")
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.startswith("ottla: ")
    assert said.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("describe", "--topic", "a"),
        ("set", "--topic", "a", "x=1"),
        ("unset", "--topic", "a", "x"),
    ],
    ids=" ".join,
)
def test_config_fails_at_once_without_a_broker(words: tuple[str, ...]) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # not listening
        said = ottla("config", *words, "-b", f"127.0.0.1:{held.getsockname()[1]}")
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.startswith("ottla: no broker found: ")
    assert said.stderr.count("\n") == 1

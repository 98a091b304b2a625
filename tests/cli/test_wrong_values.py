"""Invalid values and options that do not fit together are refused, and nothing changes."""

import json
from collections.abc import Generator
from pathlib import Path

import pytest

from cases import each_case
from cli.console import command, ottla
from judges.ottla_broker import OttlaBroker, ottla_broker
from ottla.client.admin.configs import ConfigResource, ConfigSource
from ottla.sync import Admin


@pytest.fixture(scope="module")
def broker() -> Generator[OttlaBroker]:
    with ottla_broker({"auto.create.topics.enable": "false"}) as running:
        made = ottla("topic", "create", "fruit", "-c", "retention.ms=9999", "-b", running.bootstrap)
        assert made.returncode == 0, made.stderr
        yield running


@pytest.fixture(scope="module")
def admin(broker: OttlaBroker) -> Generator[Admin]:
    with Admin({"bootstrap.servers": broker.bootstrap}) as connected:
        yield connected


def own_settings(admin: Admin) -> dict[str, str | None]:
    fruit = ConfigResource.topic("fruit")
    configs = admin.describe_configs(fruit)[fruit].values()
    return {one.name: one.value for one in configs if one.source is ConfigSource.TOPIC}


@each_case(
    ("words", "code", "said"),
    [
        (["topic", "create", "x", "-p", "99999999999"], 2, "99999999999"),
        (["topic", "create", "x", "-p", "10001"], 1, "Excessively large number of partitions"),
        (["topic", "create", "x", "-p", "2000000000", "--dry-run"], 1, "Excessively large"),
        (["topic", "alter", "fruit", "-p", "2000000000"], 1, "excessively large batch"),
        (["topic", "describe", "--seconds", "nan"], 2, "--seconds nan"),
        (["perf", "produce", "fruit", "-n", "1", "--rate", "nan"], 2, "--rate nan"),
        (["perf", "latency", "fruit", "-p", "99999999999"], 2, "is not in the range"),
        (["perf", "produce", "fruit", "--size", "99999999999"], 2, "is not in the range"),
        (["perf", "latency", "fruit", "--size", "99999999999"], 2, "is not in the range"),
        (["perf", "produce", "fruit", "--size", "2147483647"], 1, "max.request.size=1048576"),
        (["perf", "latency", "fruit", "--size", "2147483647"], 1, "max.request.size=1048576"),
        (["perf", "consume", "fruit", "--timeout", "nan"], 2, "--timeout nan"),
        (["group", "list", "--state", "foo"], 2, "foo: unknown, use PreparingRebalance"),
        (["group", "list", "--type", "foo"], 2, "foo: unknown, use Classic, Consumer"),
        (
            ["group", "seek", "", "--to", "end", "-t", "fruit", "--execute"],
            2,
            "the group name must not be empty",
        ),
        (["config", "set", "-t", "fruit", "retention.ms=5", "retention.ms=6"], 2, "is given twice"),
        (
            ["config", "unset", "-t", "fruit", "retention.ms", "nope"],
            1,
            "fruit has no setting nope",
        ),
        (["topic", "alter", "fruit", "-u", "nope"], 1, "fruit has no setting nope"),
        (
            ["topic", "create", "x", "-p", "abc"],
            2,
            "'abc' is not an integer. See `ottla topic create",
        ),
        (["consum", "fruit"], 2, "Did you mean 'consume'? See `ottla --help`."),
        (["topic", "list", "-X", "bootstrap.servers=127.0.0.1:1"], 2, "different brokers"),
        (["consume", "fruit", "-g", "\udcff"], 2, "not valid UTF-8"),
    ],
)
def test_invalid_value_prints_one_line_and_changes_nothing(
    broker: OttlaBroker, admin: Admin, words: list[str], code: int, said: str
) -> None:
    done = ottla(*words, "-b", broker.bootstrap)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert own_settings(admin) == {"retention.ms": "9999"}
    assert [*admin.list_topics()] == ["fruit"]


@each_case(
    ("tool", "words", "said"),
    [
        ("console-consumer", "--partition 99999999999", "'99999999999' of option partition"),
        ("console-consumer", "--partition -1", "'-1' of option partition"),
        ("consumer-perf-test", "--num-records 1 --fetch-size 99999999999", "option fetch-size"),
        ("producer-perf-test", "--throughput nan --record-size 1", "could not convert 'nan' to Do"),
        ("producer-perf-test", "--throughput abc --record-size 1", "could not convert 'abc' to Do"),
        ("producer-perf-test", "--throughput 1_0 --record-size 1", "could not convert '1_0' to Do"),
        ("producer-perf-test", "--throughput -1 --record-size 99999999999", "' to Integer (For"),
        ("producer-perf-test", "--throughput NaN --record-size 2147483647", "max.request.size"),
    ],
)
def test_kafkas_tools_refuse_numbers_that_java_refuses(
    broker: OttlaBroker, tool: str, words: str, said: str
) -> None:
    count = ["--num-records", "1"] if tool == "producer-perf-test" else []
    servers = ["--bootstrap-server", broker.bootstrap]
    done = command(f"kafka-{tool}", "--topic", "fruit", *count, *words.split(), *servers)
    assert done.returncode == 1, done.stdout
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@each_case(
    "servers", ["", "127.0.0.1:99999", "127.0.0.1:x", "a..b:1", ".a:1", "a" * 64 + ":1", "\udcff:1"]
)
def test_invalid_address_is_wrong_usage(servers: str) -> None:
    done = ottla("topic", "list", "-b", servers)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1


def test_perf_reads_the_requested_number_of_records(broker: OttlaBroker) -> None:
    assert ottla("perf", "produce", "fruit", "-n", "1200", "-b", broker.bootstrap).returncode == 0
    told = ottla("perf", "consume", "fruit", "-n", "1001", "-o", "json", "-b", broker.bootstrap)
    assert json.loads(told.stdout)["records"] == 1001


def test_kafkas_tools_warn_of_unknown_client_settings(broker: OttlaBroker, tmp_path: Path) -> None:
    shared = tmp_path / "client.properties"
    shared.write_text("group.id=g\nlinger.ms=3\nmy.custom=1\n")
    servers = ("--bootstrap-server", broker.bootstrap)
    warning = "warning: unknown client settings: my.custom\n"
    done = command("kafka-topics", "--list", "--command-config", str(shared), *servers)
    assert (done.returncode, done.stdout, done.stderr) == (0, "fruit\n", warning)
    done = command(
        "kafka-console-producer", "--topic", "fruit", "--command-config", str(shared), *servers,
        stdin="z\n",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, warning)
    done = command(
        "kafka-console-consumer", "--topic", "fruit", "--from-beginning", "--timeout-ms", "3000",
        "--command-property", "my.custom=1", *servers,
    )  # fmt: skip
    assert (done.returncode, "z\n" in done.stdout) == (0, True)
    assert done.stderr.startswith(warning)

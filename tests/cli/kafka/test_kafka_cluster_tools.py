"""`kafka-cluster`, `kafka-broker-api-versions`, `ottla cluster` and `ottla api-versions`.

Each is compared with Kafka's Java tool. On an Ottla broker, the output of Java's tools is recorded;
`make judge` runs both kinds of tools on both kinds of brokers.
"""

import json
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from cli.console import command, ottla
from cli.golden import check_golden
from cli.non_brokers import nobody
from judges.ottla_broker import ottla_broker
from judges.recording import Recording, Scenario
from kafka_java import kafka_broker
from kafka_tools import KafkaTools, Said
from ottla.cli.cluster.served_apis import compared
from ottla.cli.kafka.broker_api_versions import lines, node
from ottla.cli.kafka.cluster import endpoint_lines, id_line
from ottla.client.admin.cluster import BrokerDescription
from ottla.protocol.schema import Versions
from ottla.sync import Admin
from recorded import recording, scenario

__all__ = ["recording", "scenario"]  # fixtures

pytestmark = pytest.mark.recorded

RUNS = {
    "id": "cluster-id --bootstrap-server {server}",
    "id, cut short": "cluster-id -b {server} -c {config}",
    "id, former name": "cluster-id --config {config} --bootstrap-server {server}",
    "endpoints": "list-endpoints --bootstrap-server {server}",
    "fenced": "list-endpoints -b {server} --include-fenced-brokers",
    "no file": "cluster-id -b {server} -c /nonexistent",
}


class Judged(NamedTuple):
    """A broker, and the output of Java's tools for it."""

    server: str
    config: str
    cluster: dict[str, Said]
    api_versions: Said


def ours(tool: str, *arguments: str) -> Said:
    return Said.by(command(tool, *arguments))


def filled(line: str, server: str, config: str) -> list[str]:
    return line.replace("{server}", server).replace("{config}", config).split()


@pytest.fixture(scope="module", params=["ottla", pytest.param("kafka", marks=pytest.mark.judge)])
def judged(
    request: pytest.FixtureRequest,
    recording: Recording,
    java_tools: KafkaTools,
    tmp_path_factory: pytest.TempPathFactory,
) -> Generator[Judged]:
    config = tmp_path_factory.mktemp("java") / "client.properties"
    config.write_text("client.id=me\n")
    settings = {"broker.rack": "rack-1"}
    started = ottla_broker(settings) if request.param == "ottla" else kafka_broker(settings)
    with started as broker, ExitStack() as stack:
        server = broker.bootstrap
        names = {"{server}": server, "{port}": str(broker.port), "{id}": cluster_id(server)}
        scenario = None
        if request.param == "ottla":
            scenario = stack.enter_context(recording.scenario("on our broker"))

        def javas(tool: str, line: str) -> Said:
            def ask() -> Said:
                return java_tools.run(tool, *filled(line, server, str(config)))

            if scenario is None:
                return ask()
            answer = scenario.answer(f"{tool} {line}", lambda: replaced(ask(), names).json)
            return replaced(Said.of(answer), {value: name for name, value in names.items()})

        told = {case: javas("kafka-cluster", line) for case, line in RUNS.items()}
        versions = javas("kafka-broker-api-versions", "--bootstrap-server {server}")
        yield Judged(server, str(config), told, versions)


def cluster_id(server: str) -> str:
    with Admin(bootstrap_servers=server) as admin:
        found = admin.describe_cluster().id
    assert found
    return found


def replaced(said: Said, names: Mapping[str, str]) -> Said:
    """Replace addresses and ids in the output by names, or names by addresses and ids."""

    def plain(text: str) -> str:
        for name, value in names.items():
            text = text.replace(value, name)
        return text

    err = "" if said.code else said.err  # a stack trace, which is not compared
    return Said(said.code, plain(said.out), plain(err))


@pytest.mark.parametrize("case", RUNS)
def test_cluster_tool_prints_what_kafkas_prints(case: str, judged: Judged) -> None:
    told = ours("kafka-cluster", *filled(RUNS[case], judged.server, judged.config))
    theirs = judged.cluster[case]
    assert told.code == theirs.code
    if told.code == 0:
        assert (told.out, told.err) == (theirs.out, theirs.err)
    else:
        assert "Traceback" not in told.err


def test_api_versions_tool_prints_what_kafkas_prints(judged: Judged) -> None:
    assert judged.api_versions.code == 0
    assert ours("kafka-broker-api-versions", "--bootstrap-server", judged.server) == (
        judged.api_versions
    )


def test_ottla_commands_agree_with_kafkas_tools(judged: Judged) -> None:
    host, _, port = judged.server.rpartition(":")
    done = ottla("cluster", "describe", "-b", judged.server, "-o", "json")
    told = json.loads(done.stdout)
    assert judged.cluster["id"].out == f"Cluster ID: {told['id']}\n"
    assert told["brokers"] == [
        {"id": 1, "host": host, "port": int(port), "rack": "rack-1", "controller": True,
         "fenced": False}
    ]  # fmt: skip
    known = {told["id"]: "cluster", port: "port"}
    check_golden("cluster-describe.json", done.stdout, known)
    done = ottla("cluster", "describe", "-b", judged.server)
    check_golden("cluster-describe.txt", done.stdout, known)
    done = ottla("api-versions", "-b", judged.server, "-o", "json")
    (broker,) = json.loads(done.stdout)["brokers"]
    for api in broker["apis"]:
        if api["name"] is None:
            continue
        served = api["served"]
        text = " to ".join(map(str, sorted({served["min"], served["max"]})))
        line = f"\t{api['name']}({api['key']}): {text} [usable: {api['usable']}]"
        assert line in judged.api_versions.out


def test_our_broker_lists_the_apis_that_it_serves() -> None:
    with ottla_broker() as broker:
        known = {broker.bootstrap: "server", str(broker.port): "port"}
        for form, name in (("table", "api-versions.txt"), ("json", "api-versions.json")):
            done = ottla("api-versions", "-b", broker.bootstrap, "-o", form)
            assert (done.returncode, done.stderr) == (0, "")
            check_golden(name, done.stdout, known)
        done = ottla("api-versions", "-b", broker.bootstrap, "--broker", "7")
        assert (done.returncode, done.stderr) == (1, "ottla: broker 7 does not exist\n")
        done = ottla("api-versions", "-b", broker.bootstrap, "--all", "-o", "json")
        verdicts = {api["verdict"] for api in json.loads(done.stdout)["brokers"][0]["apis"]}
        assert verdicts == {"usable", "not served"}


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("kafka-cluster", "", 1),
        ("kafka-cluster", "cluster-id", 1),
        ("kafka-cluster", "list-endpoints", 1),
        ("kafka-cluster", "cluster-id --nothing", 1),
        ("kafka-cluster", "nothing -b a:1", 1),
        ("kafka-broker-api-versions", "", 1),
        ("kafka-broker-api-versions", "--nothing", 1),
    ],
)
def test_wrong_use_ends_as_with_kafka(
    scenario: Scenario, java_tools: KafkaTools, tool: str, arguments: str, code: int
) -> None:
    told = ours(tool, *arguments.split())
    javas = scenario.answer(
        f"{tool} {arguments}", lambda: java_tools.run(tool, *arguments.split()).code
    )
    assert told.code == javas == code
    assert "Traceback" not in told.err


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("kafka-cluster", "unregister --id 1 -b a:1"),
        ("kafka-cluster", "cluster-id -C a:1"),
    ],
)
def test_unsupported_flag_is_one_line_and_exit_code_2(tool: str, arguments: str) -> None:
    told = ours(tool, *arguments.split())
    assert told.code == 2
    assert (told.out, told.err.count("\n")) == ("", 1)


def test_tool_fails_at_once_without_a_broker() -> None:
    address = nobody()
    port = address.rpartition(":")[2]
    for tool, arguments in (
        ("kafka-cluster", ["cluster-id", "-b", address]),
        ("kafka-broker-api-versions", ["--bootstrap-server", address]),
    ):
        told = ours(tool, *arguments)
        why = f"no broker found: {address}: connection refused. "
        assert told == Said(1, "", f"{why}`ottla dev --port {port}` starts one on this machine\n")


def test_lines_for_unusual_brokers_and_versions() -> None:
    assert [*endpoint_lines([])] == []
    found = [*endpoint_lines([BrokerDescription(7, "h", 1, None, is_fenced=True)])]
    assert found[1].split() == ["7", "h", "1", "null", "fenced", "broker"]
    assert id_line(None).startswith("No cluster ID found.")
    assert node(BrokerDescription(7, "h", 1)) == "h:1 (id: 7 rack: null isFenced: false)"
    told = [*lines({0: Versions(90, 91), 3: Versions(0, 99), 11: Versions(-3, -2),
                    999: Versions(1, 1)})]  # fmt: skip
    assert "Produce(0): 90 to 91 [unusable: node too new]" in told
    assert "Metadata(3): 0 to 99 [usable: 13]" in told
    assert "JoinGroup(11): -3 to -2 [unusable: node too old]" in told
    assert "UNKNOWN(999): 1" in told
    assert "Fetch(1): UNSUPPORTED" in told


def test_usable_versions_are_those_of_both_ends() -> None:
    served = {0: Versions(90, 91), 3: Versions(1, 99), 11: Versions(-3, -2), 999: Versions(1, 1)}
    apis = {one.key: one for one in compared(served)}
    assert (apis[0].usable, apis[0].verdict) == (None, "too new")
    assert (apis[3].usable, apis[3].verdict) == (13, "usable")
    assert apis[11].verdict == "too old"
    assert (apis[999].name, apis[999].verdict) == (None, "not supported")
    assert apis[1].verdict == "not served"

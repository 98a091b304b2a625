"""Kafka's tools for replicas, on three brokers of Ottla.

They run in order: what one has changed, the next one finds. Each test checks the output of one.
Ottla's version of each tool must print the same. It runs after a tool that changes nothing; what
Kafka's tools change in a topic, it changes in a second topic with the same replicas (TWINS).
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Timer
from typing import Final, NamedTuple

import pytest

from cli.kafka.in_process import run_here
from judges.java import archive_options, java_command
from kafka_java import judge_needed
from kafka_tools import CLASSES, PATIENCE_S, KafkaTools, Said
from ottla import NewTopic
from ottla.sync import Admin, Producer
from ottla.testing import ClusterThread

TOPICS = "kafka-topics"
REASSIGN = "kafka-reassign-partitions"
ELECT = "kafka-leader-election"
RECORDS = 90
PLACED: Final = {0: [1, 2], 1: [2, 3], 2: [3, 1]}
MOVED: Final = {0: [3, 2], 1: [1, 3], 2: [2, 3, 1]}


class Expected(NamedTuple):
    """What the output of a tool has and lacks."""

    says: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    code: int = 0


EXPECTED = {
    "under-replicated": Expected(lacks=("Topic:",)),
    "unavailable": Expected(lacks=("Topic:",)),
    "at min ISR": Expected(
        (
            "Topic: moved\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2\t",
            "Topic: moved\tPartition: 2\tLeader: 3\tReplicas: 3,1\tIsr: 3,1\t",
            "Topic: alone\tPartition: 0\t",
        )
    ),
    "under min ISR": Expected(lacks=("Topic:",)),
    "generate": Expected(
        (
            'Current partition replica assignment\n{"version":1,"partitions":[{"topic":"moved"',
            '"partition":0,"replicas":[1,2],"log_dirs":["/',
            "Proposed partition reassignment configuration\n",
        )
    ),
    "execute": Expected(
        (
            (
                "option during rollback\nWarning: You must run --verify periodically, until the "
                "reassignment completes, to ensure the throttle is removed.\n"
                "The inter-broker throttle limit was set to 90000000 B/s\n"
                "Successfully started partition reassignments for moved-0,moved-1,moved-2\n"
            ),
        )
    ),
    "verify": Expected(
        (
            "Reassignment of partition moved-0 is completed.",
            "Reassignment of partition moved-1 is completed.",
            "Reassignment of partition moved-2 is completed.",
            "Clearing broker-level throttles on brokers 1,2,3\n",
            "Clearing topic-level throttles on topic moved",
        )
    ),
    "replica verification": Expected(
        ("verification process is started", ": max lag is 0 for partition "),
        ("doesn't match", "unmatched checksum"),
    ),
    "elect all": Expected(
        ("Successfully completed leader election (PREFERRED) for partitions moved-2",)
    ),
    "elect again": Expected(("Valid replica already elected for partitions moved-2",)),
    "execute slowly": Expected(("Successfully started partition reassignment for held-0",)),
    "verify too early": Expected(("Reassignment of partition held-0 is still in progress.",)),
    "list": Expected(("Current partition reassignments:\nheld-0: replicas: ", "adding: ")),
    "describe while moving": Expected(("\tAdding Replicas: ", "\tRemoving Replicas: ")),
    "cancel": Expected(("Successfully cancelled partition reassignment for: held-0",)),
    "cancel again": Expected(("None of the specified partition reassignments are active.",)),
    "list nothing": Expected(("No partition reassignments found.",)),
    "move to another directory": Expected(
        (
            "Error: Failed to alter dir for alone-0-2",
            "UnsupportedVersionException: The node does not support ALTER_REPLICA_LOG_DIRS",
        ),
        code=1,
    ),
    "under-replicated after a stop": Expected(
        ("Topic: alone\tPartition: 0", "Topic: moved\tPartition: 0", "Topic: moved\tPartition: 2"),
        ("Topic: moved\tPartition: 1",),
    ),
    "unavailable after a stop": Expected(
        ("Topic: alone\tPartition: 0\tLeader: none\tReplicas: 2\t",), ("Topic: moved",)
    ),
    "at min ISR after a stop": Expected(
        ("Topic: moved\tPartition: 1\tLeader: 1\tReplicas: 1,3\t", "Topic: moved\tPartition: 2\t"),
        ("Topic: moved\tPartition: 0", "Topic: alone"),
    ),
    "under min ISR after a stop": Expected(
        ("Topic: alone\tPartition: 0", "Topic: moved\tPartition: 0"),
        ("Topic: moved\tPartition: 1", "Topic: moved\tPartition: 2"),
    ),
    "elect unclean": Expected(("Valid replica already elected for partitions moved-1",)),
}


TWINS: Final = {"moved": "twin", "held": "held-too"}
# Kafka's tools change the topics, and Ottla's tools their twins.
CHANGING = {"execute", "elect all", "execute slowly", "cancel"}


class Tools:
    """Runs tools against a cluster and keeps what they print."""

    def __init__(self, java_tools: KafkaTools, cluster: ClusterThread, folder: Path) -> None:
        self._java = java_tools
        self._servers = cluster.bootstrap_servers
        self._folder = folder
        self.said: dict[str, Said] = {}
        self.ours: dict[str, Said] = {}

    def run(self, name: str, tool: str, arguments: str) -> None:
        """Run Kafka's tool, and Ottla's if it finds the same state after it."""
        words = (*arguments.split(), "--bootstrap-server", self._servers)
        self.said[name] = self._java.run(tool, *words)
        if name not in CHANGING:
            self.ours[name] = run_here(tool, *words)

    def run_ours(self, name: str, tool: str, arguments: str) -> None:
        """Run Ottla's tool on a twin."""
        assert name in CHANGING
        said = run_here(tool, *arguments.split(), "--bootstrap-server", self._servers)
        for topic, twin in TWINS.items():
            said = Said(said.code, *(one.replace(twin, topic) for one in said[1:]))
        self.ours[name] = said

    def describe(self, when: str = "") -> None:
        for name in ("under-replicated", "unavailable", "at min ISR", "under min ISR"):
            option = name.replace(" ", "-").lower()
            self.run(f"{name}{when}", TOPICS, f"--describe --{option}-partitions")

    def verify_replicas(self) -> None:
        """Let processes compare all replicas: the tool ends only with its process."""
        name = "kafka-replica-verification"
        with judge_needed():
            options = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *archive_options())
            java = java_command(CLASSES[name], options=options)
        ours = [str(Path(sys.executable).parent / name)]
        self.said["replica verification"] = self._verified(java)
        self.ours["replica verification"] = self._verified(ours)

    def _verified(self, command: Sequence[str]) -> Said:
        arguments = ("--broker-list", self._servers, "--time", "-2", "--topics-include", "moved")
        pace = ("--report-interval-ms", "100", "--max-wait-ms", "50")
        lines: list[str] = []
        with subprocess.Popen(
            (*command, *arguments, *pace),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            assert process.stdout is not None
            hangs = Timer(PATIENCE_S, process.kill)
            hangs.start()
            for line in process.stdout:
                lines.append(line)
                if "max lag is 0 " in line:  # all replicas are compared up to the end
                    break
            hangs.cancel()
            process.kill()
        return Said(0, "".join(lines), "")

    def file(self, name: str, content: Mapping[str, object]) -> str:
        path = self._folder / f"{name}.json"
        path.write_text(json.dumps({"version": 1, **content}))
        return str(path)

    def plan(self, topic: str, replicas: Mapping[int, Sequence[int]], **more: object) -> str:
        """Return the arguments for a file with the replicas of a topic's partitions."""
        rows = [
            {"topic": topic, "partition": index, "replicas": [*row], **more}
            for index, row in replicas.items()
        ]
        return f"--reassignment-json-file {self.file(topic, {'partitions': rows})}"


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def is_known_to_be_down(cluster: ClusterThread, broker_id: int) -> bool:
    """Whether all brokers know that a broker has stopped, and what it led."""
    for one in cluster.brokers:
        image = one.image
        alone = None if image is None else image.state("alone", 0)
        if one.id != broker_id and (
            image is None or broker_id in image.brokers or alone is None or alone.leader >= 0
        ):
            return False
    return True


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory, java_tools: KafkaTools) -> Tools:
    """The output of each tool."""
    with ClusterThread(brokers=3) as cluster:
        tools = Tools(java_tools, cluster, tmp_path_factory.mktemp("tools"))
        settings = {"bootstrap.servers": cluster.bootstrap_servers}
        controller = cluster.controller
        assert controller is not None
        # The controller reaches both brokers that do not reach each other.
        first, second = (one for one in cluster.brokers if one is not controller)
        with Admin(settings) as admin, Producer[bytes, bytes](settings) as producer:
            config = {"min.insync.replicas": "2"}
            made = admin.create_topics(
                [
                    NewTopic("moved", replicas=PLACED, config=config),
                    NewTopic("alone", replicas={0: [2]}),
                    NewTopic("held", replicas={0: [first.id, controller.id]}),
                ]
            )
            made.or_raise()
            for number in range(RECORDS):
                producer.send("moved", b"%d" % number, partition=number % 3)
            producer.flush()
        cluster.settled()
        tools.describe()
        topics = tools.file("topics", {"topics": [{"topic": "moved"}]})
        generate = f"--generate --topics-to-move-json-file {topics} --broker-list 1,2,3"
        tools.run("generate", REASSIGN, generate)
        plan = tools.plan("moved", MOVED)
        tools.run("execute", REASSIGN, f"--execute {plan} --throttle 90000000")
        cluster.settled()
        tools.run("verify", REASSIGN, f"--verify {plan}")
        tools.verify_replicas()
        every = "--election-type preferred --all-topic-partitions"
        tools.run("elect all", ELECT, every)
        cluster.settled()
        again = "--election-type preferred --topic moved --partition 2"
        tools.run("elect again", ELECT, again)
        plan = tools.plan("held", {0: [first.id, second.id]})
        with cluster.partition(first, second):
            tools.run("execute slowly", REASSIGN, f"--execute {plan}")
            tools.run("verify too early", REASSIGN, f"--verify {plan}")
            tools.run("list", REASSIGN, "--list")
            tools.run("describe while moving", TOPICS, "--describe --topic held")
            tools.run("cancel", REASSIGN, f"--cancel {plan}")
        cluster.settled()
        tools.run("cancel again", REASSIGN, f"--cancel {plan}")
        tools.run("list nothing", REASSIGN, "--list")
        plan = tools.plan("alone", {0: [2]}, log_dirs=["/elsewhere"])
        tools.run("move to another directory", REASSIGN, f"--execute {plan}")
        with Admin(settings) as admin:
            twins = {"twin": PLACED, "held-too": {0: [first.id, controller.id]}}
            admin.create_topics(
                [NewTopic(name, replicas=row) for name, row in twins.items()]
            ).or_raise()
            cluster.settled()
            plan = tools.plan("twin", MOVED)
            tools.run_ours("execute", REASSIGN, f"--execute {plan} --throttle 90000000")
            cluster.settled()
            tools.run_ours("elect all", ELECT, every)
            cluster.settled()
            plan = tools.plan("held-too", {0: [first.id, second.id]})
            with cluster.partition(first, second):
                tools.run_ours("execute slowly", REASSIGN, f"--execute {plan}")
                tools.run_ours("cancel", REASSIGN, f"--cancel {plan}")
            cluster.settled()
            admin.delete_topics([*twins]).or_raise()
        cluster.broker(2).stop()
        until(lambda: is_known_to_be_down(cluster, 2))
        tools.describe(" after a stop")
        unclean = "--election-type unclean --topic moved --partition 1"
        tools.run("elect unclean", ELECT, unclean)
        return tools


@pytest.mark.parametrize("name", EXPECTED)
def test_tool_works_on_a_cluster(tools: Tools, name: str) -> None:
    expected = EXPECTED[name]
    code, out, err = tools.said[name]
    text = out + err
    assert code == expected.code, text
    for part in expected.says:
        assert part in text
    for part in expected.lacks:
        assert part not in text


def comparable(name: str, said: Said) -> Said:
    """Return the output without what differs between two runs of the same tool."""
    lines = said.out.splitlines()
    if name == "generate":  # the plan is random
        plan = json.loads(lines[-1])
        for row in plan["partitions"]:
            row["replicas"] = len(row["replicas"])
        lines[-1] = json.dumps(plan)
    if name == "replica verification":  # time stamps, and how much was compared by the first report
        lines = [re.sub(r"^[-\d]+ [:,\d]+: |^[^ ]+: ", "", one) for one in (lines[0], lines[-1])]
    if name == "move to another directory":  # Kafka's tool prints a stack trace
        last = next(index for index, line in enumerate(lines) if line.startswith("Error: "))
        lines[last:] = [lines[last].partition(": UNSUPPORTED_VERSION")[0]]
    return said._replace(out="\n".join(lines))


@pytest.mark.parametrize("name", EXPECTED)
def test_own_tool_prints_the_same(tools: Tools, name: str) -> None:
    assert comparable(name, tools.ours[name]) == comparable(name, tools.said[name])


def test_every_output_is_checked(tools: Tools) -> None:
    assert tools.said.keys() == tools.ours.keys() == EXPECTED.keys()

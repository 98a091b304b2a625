"""`kafka-reassign-partitions` and `kafka-leader-election` on three brokers in one process.

The expected output is what Kafka's tools of version 4.3 print on the same cluster.
"""

import json
from collections.abc import Generator
from pathlib import Path

import pytest

from cli.kafka.in_process import run_here
from kafka_tools import Said
from ottla import NewTopic
from ottla.client.admin.configs import ConfigResource
from ottla.client.admin.log_dirs import Replica
from ottla.sync import Admin
from ottla.testing import ClusterThread

REASSIGN = "kafka-reassign-partitions"
ELECT = "kafka-leader-election"


@pytest.fixture(scope="module")
def cluster() -> Generator[ClusterThread]:
    with ClusterThread(brokers=3) as cluster:
        with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            made = admin.create_topics([NewTopic("moved", replicas={0: [1, 2], 1: [2, 3]})])
            made.or_raise()
        cluster.settled()
        yield cluster


def run(cluster: ClusterThread, tool: str, words: str, code: int = 0) -> str:
    said = run_here(tool, "--bootstrap-server", cluster.bootstrap_servers, *words.split())
    assert (said.code, said.err) == (code, ""), said
    return said.out


def plan(folder: Path, replicas: dict[int, list[int]], **more: object) -> str:
    rows = [
        {"topic": "moved", "partition": index, "replicas": row, **more}
        for index, row in replicas.items()
    ]
    path = folder / "plan.json"
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    return f"--reassignment-json-file {path}"


def directories(cluster: ClusterThread) -> dict[int, str]:
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        return {one: next(iter(found)) for one, found in admin.describe_log_dirs().items()}


CLEARED = (
    "Clearing broker-level throttles on brokers 1,2,3\n"
    "Clearing topic-level throttles on topic moved\n"
)


def test_reassignment_from_plan_to_election(cluster: ClusterThread, tmp_path: Path) -> None:
    paths = directories(cluster)
    current = (
        '{"version":1,"partitions":[{"topic":"moved","partition":0,"replicas":[1,2],"log_dirs":'
        f'["{paths[1]}","{paths[2]}"]}}]}}'
    )
    wanted = plan(tmp_path, {0: [3, 1]})
    assert run(cluster, REASSIGN, f"--verify {wanted}") == (
        "Status of partition reassignment:\n"
        "There is no active reassignment of partition moved-0, but replica set is 1,2 rather than "
        f"3,1.\n\n{CLEARED}"
    )
    assert run(cluster, REASSIGN, f"--execute {wanted} --throttle 90000000") == (
        f"Current partition replica assignment\n\n{current}\n\n"
        "Save this to use as the --reassignment-json-file option during rollback\n"
        "Warning: You must run --verify periodically, until the reassignment completes, to ensure "
        "the throttle is removed.\nThe inter-broker throttle limit was set to 90000000 B/s\n"
        "Successfully started partition reassignment for moved-0\n"
    )
    cluster.settled()
    assert run(cluster, REASSIGN, f"--verify {wanted}") == (
        f"Status of partition reassignment:\nReassignment of partition moved-0 is completed.\n"
        f"\n{CLEARED}"
    )
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        resources = [ConfigResource.topic("moved"), ConfigResource.broker(1)]
        found = admin.describe_configs(resources).or_raise()
    left = [entry.name for one in found.values() for entry in one.values() if not entry.is_default]
    assert not any("throttled" in name for name in left)
    assert run(cluster, REASSIGN, "--list") == "No partition reassignments found.\n"
    assert run(cluster, ELECT, "--election-type preferred --all-topic-partitions") in (
        "Successfully completed leader election (PREFERRED) for partitions moved-0\n",
        "",  # the leader left, so that the preferred one may lead already
    )
    again = "--election-type PREFERRED --topic moved --partition 0"
    assert run(cluster, ELECT, again) == "Valid replica already elected for partitions moved-0\n"


def test_reassignment_in_progress_is_listed_and_cancelled(
    cluster: ClusterThread, tmp_path: Path
) -> None:
    controller = cluster.controller
    assert controller is not None
    # The controller reaches both brokers that do not reach each other.
    first, second = (one for one in cluster.brokers if one is not controller)
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        admin.create_topics([NewTopic("held", replicas={0: [first.id, controller.id]})]).or_raise()
    cluster.settled()
    wanted = plan(tmp_path, {0: [first.id, second.id]}, topic="held")
    cleared = CLEARED.replace("moved", "held")
    with cluster.partition(first, second):
        run(cluster, REASSIGN, f"--execute {wanted}")
        assert run(cluster, REASSIGN, "--list") == (
            "Current partition reassignments:\n"
            f"held-0: replicas: {first.id},{second.id},{controller.id}. adding: {second.id}. "
            f"removing: {controller.id}.\n"
        )
        assert run(cluster, REASSIGN, f"--verify {wanted}") == (
            "Status of partition reassignment:\n"
            "Reassignment of partition held-0 is still in progress.\n\n"
        )
        refused = run(cluster, REASSIGN, f"--execute {wanted}", code=1)
        assert refused.startswith("Cannot execute because there is an existing partition assign")
        assert run(cluster, REASSIGN, f"--cancel {wanted}") == (
            "Successfully cancelled partition reassignment for: held-0\n"
            f"None of the specified partition moves are active.{cleared}"
        )
    assert run(cluster, REASSIGN, f"--cancel {wanted} --preserve-throttles") == (
        "None of the specified partition reassignments are active.\n"
        "None of the specified partition moves are active."
    )


def test_generated_plan_covers_every_partition(cluster: ClusterThread, tmp_path: Path) -> None:
    file = tmp_path / "topics.json"
    file.write_text('{"topics": [{"topic": "moved"}], "version": 1}')
    words = f"--generate --topics-to-move-json-file {file} --broker-list 1,3"
    lines = run(cluster, REASSIGN, words).split("\n")
    assert (lines[0], lines[2:4]) == (
        "Current partition replica assignment",
        ["", "Proposed partition reassignment configuration"],
    )
    assert lines[5:] == [""]
    proposed = json.loads(lines[4])["partitions"]
    assert [sorted(one["replicas"]) for one in proposed] == [[1, 3], [1, 3]]
    assert {one["replicas"][0] for one in proposed} == {1, 3}
    assert proposed[0]["log_dirs"] == ["any", "any"]


def test_errors_of_plans(cluster: ClusterThread, tmp_path: Path) -> None:
    cases: dict[str, tuple[dict[int, list[int]], dict[str, object]]] = {
        "Error: Unknown broker id 9\n": ({0: [9]}, {}),
        "Error: Partition reassignment list cannot be empty\n": ({}, {}),
        "Error: Partition replica list cannot be empty\n": ({0: []}, {}),
        "Error: Partition replica lists may not contain duplicate entries: moved-0 contains "
        "multiple entries for 1\n": ({0: [1, 1]}, {}),
        "Error: Size of replicas list [1] is different from size of log dirs list [] for partition "
        "moved-0\n": ({0: [1]}, {"log_dirs": []}),
        "Error: org.apache.kafka.common.errors.UnknownTopicOrPartitionException: Unable to find "
        "partition: moved-7\n": ({7: [1]}, {}),
    }
    for expected, (replicas, more) in cases.items():
        words = f"--execute {plan(tmp_path, replicas, **more)}"
        assert run(cluster, REASSIGN, words, code=1) == expected
    missing = "--execute --reassignment-json-file /nowhere"
    assert run(cluster, REASSIGN, missing, code=1) == "Error: Unable to read file /nowhere\n"
    factor = f"--execute --disallow-replication-factor-change {plan(tmp_path, {0: [1]})}"
    refused = run(cluster, REASSIGN, factor, code=1)
    assert "Error reassigning partition(s):\nmoved-0: " in refused


def said(tool: str, words: str) -> Said:
    return run_here(tool, *words.split())


def test_wrong_flags_print_kafkas_message() -> None:
    server = "--bootstrap-server a:1"
    actions = "--generate, --execute, --verify, --cancel, --list"
    one_of = "One and only one of the following options is required: topic, all-topic-partitions, "
    preferred = f"{server} --election-type preferred"
    cases = {
        (REASSIGN, ""): "Move partitions to other brokers.",
        (REASSIGN, "--verify"): (
            "Please specify either --bootstrap-server or --bootstrap-controller"
        ),
        (REASSIGN, f"--verify {server}"): 'Missing required argument "[reassignment-json-file]"',
        (REASSIGN, f"--verify --list {server}"): (
            f"Command must include exactly one action: {actions}"
        ),
        (REASSIGN, f"--list --timeout 3 {server}"): (
            'Option "[timeout]" can\'t be used with action "[list]"'
        ),
        (ELECT, ""): "Elect leaders of partitions.",
        (ELECT, server): "Missing required option(s): election-type",
        (ELECT, f"{server} --election-type x"): f"{one_of}path-to-json-file",
        (ELECT, f"{preferred} --topic t"): "Missing required option(s): partition",
        (ELECT, f"{preferred} --partition 1 --all-topic-partitions"): (
            "Option partition is only allowed if topic is used"
        ),
        (ELECT, f"{preferred} --path-to-json-file /nope"): (
            "java.io.IOException: Unable to read file /nope"
        ),
    }
    for (tool, words), expected in cases.items():
        found = said(tool, words)
        assert (found.code, found.out, found.err.split("\n")[0]) == (1, "", expected), words
    unsupported = said(REASSIGN, "--list --bootstrap-controller a:1")
    assert unsupported.code == 2
    assert "--bootstrap-controller is not supported yet" in unsupported.err


def test_move_to_another_directory_names_the_missing_api(
    cluster: ClusterThread, tmp_path: Path
) -> None:
    """Brokers do not serve AlterReplicaLogDirs."""
    wanted = plan(tmp_path, {1: [2, 3]}, log_dirs=["/elsewhere", "any"])
    printed = run(cluster, REASSIGN, f"--execute {wanted}", code=1)
    reason = (
        "UNSUPPORTED_VERSION (35): AlterReplicaLogDirs is not supported by the broker at 127.0.0.1:"
    )
    assert f"\nError: Failed to alter dir for moved-1-2: {reason}" in printed
    replica = Replica("moved", 1, broker=2)
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        told = admin.alter_replica_log_dirs({replica: "/elsewhere"})
    assert str(told.failed[replica]).startswith(reason)

"""`ottla partition`, `ottla broker` and `ottla cluster balance` on three brokers in one process.

The commands run in this process. They run in order: what one has changed, the next one finds.
"""

import json
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cli.golden import check_settled
from cli.ottla_here import ottla_here
from cli.scripts import ottla
from kafka_tools import Said
from ottla import NewTopic
from ottla.sync import Admin, Producer
from ottla.testing import ClusterThread

PATIENCE_S = 60
RECORD = b"x" * 100_000  # one batch of a known size


@pytest.fixture(scope="module")
def cluster() -> Generator[ClusterThread]:
    with ClusterThread(brokers=3) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: ClusterThread) -> Generator[str]:
    """A topic with two partitions on brokers 1 and 2, and no other topic."""
    settings = {"bootstrap.servers": cluster.bootstrap_servers}
    with Admin(settings) as admin, Producer[bytes, bytes](settings) as producer:
        made = admin.create_topics([NewTopic("orders", replicas={0: [1, 2], 1: [2, 1]})])
        made.or_raise()
        for index in (0, 1):
            producer.send("orders", RECORD, partition=index)
        producer.flush()
        cluster.settled()
        yield "orders"
        admin.delete_topics(["orders"]).or_raise()


def run(cluster: ClusterThread, words: str, code: int = 0) -> Said:
    said = ottla_here(*words.split(), "-b", cluster.bootstrap_servers)
    assert said.code == code, said
    return said


def told(cluster: ClusterThread, words: str, code: int = 0) -> Any:
    said = run(cluster, f"{words} -o json", code)
    assert said.out.count("\n") == 1
    return json.loads(said.out)


def replicas(cluster: ClusterThread, topic: str) -> dict[int, list[int]]:
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        found = admin.describe_topics([topic])[topic]
    return {one.index: [*one.replicas] for one in found.partitions}


def leaders(cluster: ClusterThread, topic: str) -> list[int | None]:
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        found = admin.describe_topics([topic])[topic]
    return [one.leader for one in found.partitions]


def check_both(cluster: ClusterThread, name: str, words: str) -> None:
    """Compare both forms of the output with golden files; the command must not change anything."""
    check_settled(f"{name}.txt", run(cluster, words).out)
    check_settled(f"{name}.json", run(cluster, f"{words} -o json").out)


def test_move_shows_a_plan_and_executes_it(cluster: ClusterThread, topic: str) -> None:
    check_both(cluster, "partition-move", "partition move orders --to 2,3")
    assert replicas(cluster, topic) == {0: [1, 2], 1: [2, 1]}
    done = run(cluster, "partition move orders --to 2,3 --execute")
    assert done.out.endswith("Reassigned 2 partitions, 195.5 KiB copied.\n")
    assert replicas(cluster, topic) == {0: [2, 3], 1: [3, 2]}
    assert leaders(cluster, topic) == [2, 3]
    again = told(cluster, "partition move orders:0 --to 2,3 --execute")
    assert (again["state"], again["moves"]) == ("nothing to do", [])


def test_replication_factor_is_changed(cluster: ClusterThread, topic: str) -> None:
    value = told(cluster, "partition move orders:1 -r 3 --execute")
    assert (value["state"], value["started"]) == ("complete", 1)
    assert replicas(cluster, topic) == {0: [1, 2], 1: [2, 1, 3]}
    assert told(cluster, "partition move orders -r 1 --execute")["moved_bytes"] == 0
    assert replicas(cluster, topic) == {0: [1], 1: [2]}
    said = run(cluster, "partition move orders -r 4", code=1)
    assert "no other broker can take one: add a broker" in said.err


def test_throttle_is_set_and_removed(cluster: ClusterThread, topic: str) -> None:
    controller = cluster.controller
    assert controller is not None
    first, second = (one for one in cluster.brokers if one is not controller)
    told(cluster, f"partition move orders:0 --to {first.id},{controller.id} --execute")
    shown = (f"config describe --topic {topic}", f"config describe --broker {first.id}")
    words = f"partition move orders:0 --to {first.id},{second.id} --execute --throttle 90000000"
    with ThreadPoolExecutor(1) as pool:
        # The new replica cannot catch up, so that the command waits.
        with cluster.partition(first, second):
            waiting = pool.submit(ottla, *words.split(), "-b", cluster.bootstrap_servers)
            deadline_s = time.monotonic() + PATIENCE_S
            while not told(cluster, "partition status")["reassignments"]:
                assert time.monotonic() < deadline_s
            for one in shown:
                assert "throttled" in run(cluster, one).out
        done = waiting.result(PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert replicas(cluster, topic)[0] == [first.id, second.id]
    for one in shown:
        assert "throttled" not in run(cluster, one).out


def test_wrong_arguments_of_move(cluster: ClusterThread, topic: str) -> None:
    cases = {
        "orders": (2, "use either --to or --replication-factor"),
        "orders --to 1 -r 2": (2, "use either --to or --replication-factor"),
        "orders --to 1,x": (2, '"1,x" is not a list of broker ids'),
        "orders --to 1,1": (2, '"1,1" has a broker twice'),
        "orders --to 7": (1, "broker 7 does not exist"),
        "orders:5 --to 1": (1, "partition orders-5 does not exist"),
        "order --to 1": (1, "topic order does not exist. Did you mean orders?"),
        "orders:x --to 1": (2, "'x' is not a partition number"),
        "orders --to 1 --throttle 5000 --no-wait": (2, "omit --no-wait"),
    }
    for words, (code, why) in cases.items():
        assert why in run(cluster, f"partition move {words}", code).err, words


def test_status_and_cancel_of_a_move_in_progress(cluster: ClusterThread, topic: str) -> None:
    controller = cluster.controller
    assert controller is not None
    # The controller reaches both brokers that do not reach each other.
    first, second = (one for one in cluster.brokers if one is not controller)
    told(cluster, f"partition move orders:0 --to {first.id},{controller.id} --execute")
    with cluster.partition(first, second):
        words = f"partition move orders:0 --to {first.id},{second.id} --execute --no-wait"
        assert told(cluster, words)["state"] == "started"
        (one,) = told(cluster, "partition status")["reassignments"]
        assert (one["adding"], one["removing"]) == ([second.id], [controller.id])
        assert (one["copied_bytes"], one["total_bytes"]) == (0, 100_072)
        check_settled("partition-cancel.txt", run(cluster, "partition cancel orders:0").out)
    assert replicas(cluster, topic)[0] == [first.id, controller.id]
    check_settled("partition-cancel.json", run(cluster, "partition cancel --all -o json").out)
    assert "No reassignment is in progress" in run(cluster, "partition status --wait").out
    assert "none of these partitions" in run(cluster, "partition cancel orders", code=1).err
    assert "use --all" in run(cluster, "partition cancel", code=2).err


def test_preferred_leaders_are_elected(cluster: ClusterThread, topic: str) -> None:
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        # Another order of the replicas changes the preferred leader and not the leader.
        admin.alter_reassignments({("orders", 0): [2, 1]}).or_raise()
    cluster.settled()
    assert leaders(cluster, topic) == [1, 2]
    check_settled("partition-elect.txt", run(cluster, "partition elect orders").out)
    assert leaders(cluster, topic) == [2, 2]
    check_settled("partition-elect.json", run(cluster, "partition elect orders -o json").out)
    assert "use --yes" in run(cluster, "partition elect orders --unclean", code=2).err
    assert told(cluster, "partition elect --unclean --yes")["elected"] == []


def test_drained_broker_has_no_replicas_until_undrained(cluster: ClusterThread, topic: str) -> None:
    check_both(cluster, "broker-drain", "broker drain 2")
    assert replicas(cluster, topic) == {0: [1, 2], 1: [2, 1]}
    assert told(cluster, "broker drain 2 --execute")["state"] == "complete"
    assert replicas(cluster, topic) == {0: [1, 3], 1: [3, 1]}
    drained = {one["id"]: one["drained"] for one in told(cluster, "broker list")["brokers"]}
    assert drained == {1: False, 2: True, 3: False}
    run(cluster, "topic create others -p 6 -r 2")
    assert 2 not in {one for row in replicas(cluster, "others").values() for one in row}
    run(cluster, "topic delete others --yes")
    assert told(cluster, "cluster balance")["moves"] == []
    refused = run(cluster, "partition move orders --to 1,2", code=1)
    assert "broker 2 is drained: use `ottla broker undrain 2`" in refused.err
    check_settled("broker-undrain.txt", run(cluster, "broker undrain 2").out)
    check_settled("broker-undrain.json", run(cluster, "broker undrain 2 -o json").out)
    assert not any(one["drained"] for one in told(cluster, "broker list")["brokers"])
    assert "broker 9 does not exist" in run(cluster, "broker drain 9", code=1).err
    assert "broker 9 does not exist" in run(cluster, "broker undrain 9", code=1).err


def test_balance_moves_bytes_to_the_empty_broker(cluster: ClusterThread, topic: str) -> None:
    check_settled("cluster-balance.txt", run(cluster, "cluster balance").out)
    planned = told(cluster, "cluster balance")
    traffic = ("bytes_in", "new_bytes_in", "bytes_out", "new_bytes_out")
    for one in planned["brokers"]:
        for name in traffic:
            one[name] = min(one[name], 1)  # measured
    check_settled("cluster-balance.json", json.dumps(planned) + "\n")
    before = replicas(cluster, topic)
    value = told(cluster, "cluster balance --execute")
    assert value["state"] == "complete"
    assert replicas(cluster, topic) != before
    assert leaders(cluster, topic) == [row[0] for row in replicas(cluster, topic).values()]
    held = {one["id"]: one["new_replicas"] for one in value["brokers"]}
    assert held == {1: 1, 2: 2, 3: 1}
    assert told(cluster, "cluster balance")["state"] == "nothing to do"
    assert told(cluster, "cluster balance --goal 1.05")["goal"] == 1.05


def test_broker_that_is_down_is_drained(cluster: ClusterThread, topic: str) -> None:
    """Runs last: the broker does not return."""
    controller = cluster.controller
    assert controller is not None
    gone = next(one for one in cluster.brokers if one is not controller)
    others = sorted(one.id for one in cluster.brokers if one is not gone)
    told(cluster, f"partition move orders:0 --to {controller.id},{gone.id} --execute")
    gone.stop()
    deadline_s = time.monotonic() + PATIENCE_S
    while len(told(cluster, "broker list")["brokers"]) > 2:  # its session has to end
        assert time.monotonic() < deadline_s
    value = told(cluster, f"broker drain {gone.id} --execute")
    assert (value["state"], value["drained"]) == ("complete", False)
    held = {one for row in replicas(cluster, topic).values() for one in row}
    assert held == {*others}

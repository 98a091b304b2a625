"""The client against three brokers of Ottla that are killed and paused under load.

The workloads and what they must show are those of `test_kafka_cluster.py`. Only the classic group
protocol is there: the broker does not have the other one yet.
"""

import asyncio
from dataclasses import dataclass

import pytest

from client import chaos_workload
from client.chaos_workload import AsyncWorkload, SyncWorkload, Workload
from client.test_kafka_cluster import all_make_progress, made_topic, outcomes, run, until
from ottla.testing import ClusterThread, ThreadBroker

SESSION_MS = 4000
WORKLOADS = {"async": AsyncWorkload, "sync": SyncWorkload}


@dataclass(frozen=True, slots=True)
class OttlaCluster:
    """A cluster as the scenarios for Kafka see it."""

    cluster: ClusterThread

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap_servers


def leader(cluster: ClusterThread, topic: str, partition: int) -> ThreadBroker:
    found = cluster.leader(topic, partition)
    assert found is not None
    return found


def test_killed_leaders_lose_duplicate_and_reorder_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A member that dies with its coordinator cannot leave: the others wait for its session.
    monkeypatch.setattr(chaos_workload, "SESSION_MS", SESSION_MS)

    async def lived(cluster: ClusterThread) -> dict[str, BaseException | None]:
        served = OttlaCluster(cluster)
        workloads: dict[str, Workload] = {}
        for name, kind in WORKLOADS.items():
            topic = await made_topic(served, f"deaths-{name}")
            workloads[name] = kind(served.bootstrap, topic, "classic")
        tasks = {name: asyncio.create_task(one.live()) for name, one in workloads.items()}
        try:
            await all_make_progress(workloads.values(), tasks.values())
            topic = workloads["async"].topic
            killed = leader(cluster, topic, 0)
            await asyncio.to_thread(killed.kill)
            for one in workloads.values():
                one.fail()
            await all_make_progress(workloads.values(), tasks.values())
            await asyncio.to_thread(killed.start)
            await asyncio.to_thread(cluster.settled)
            # A paused broker still believes that it leads when it is already deposed.
            paused = leader(cluster, topic, 0)
            with paused.pause():
                await until(lambda: cluster.leader(topic, 0) not in (paused, None))
            await asyncio.to_thread(cluster.settled)
            await all_make_progress(workloads.values(), tasks.values())
        except BaseException:
            for one in workloads.values():
                one.abandon()
            raise
        return await outcomes(served, tasks, workloads)

    settings = {"group.min.session.timeout.ms": SESSION_MS}
    with ClusterThread(brokers=3, settings=settings) as cluster:
        wrong = run(lived(cluster), 60)
    assert wrong == dict.fromkeys(WORKLOADS)

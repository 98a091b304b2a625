# pyright: reportPrivateUsage=false
"""A broker that stops waits for others to take over, but not if that is hopeless or unwanted."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from broker.disks import FaultyDisk, FaultyFile
from broker.nodes import broker as broker_of
from broker.nodes import run
from broker.test_node import batch, create, produce
from ottla.broker.node import Node
from ottla.cluster.znodes import broker_path
from ottla.coordination.embedded import EmbeddedStore
from ottla.log.files import OsDisk, OsFile
from ottla.log.names import CLEAN_SHUTDOWN
from ottla.testing import Cluster
from ottla.testing.cluster import ClusterBroker


def node_of(broker: ClusterBroker) -> Node:
    running = broker._running
    assert running is not None
    assert running._node is not None
    return running._node


@pytest.mark.parametrize("why", ["second signal", "no coordination"])
def test_b11_stop_does_not_wait_for_a_silent_controller(
    why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with Cluster(brokers=2) as cluster:
            await cluster.settled()
            controller = cluster.controller
            (broker,) = [one for one in cluster.brokers if one is not controller]
            assert controller is not None
            with cluster.partition(broker, controller):
                node, session = node_of(broker), broker._running
                assert session is not None
                assert session._session is not None
                session_id = session._session.id
                stopping = asyncio.ensure_future(broker.stop())
                while node._handing_over is None:
                    await asyncio.sleep(0)
                if why == "second signal":
                    node.hurry()
                else:
                    broker._coordination.suspend(session_id)
                await stopping

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario()

    with (
        caplog.at_level(logging.WARNING, "ottla.broker.node"),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(bounded())
    assert "leaderships not handed over" in [record.message for record in caplog.records]


class NotingFile(FaultyFile):
    """A records file whose syncs are noted."""

    __slots__ = ("_noting",)

    def __init__(self, disk: "NotingDisk", file: OsFile) -> None:
        super().__init__(disk, file)
        self._noting = disk

    def sync(self) -> None:
        super().sync()
        self._noting.note("flush")


class NotingDisk(FaultyDisk):
    """A disk that notes the steps of a clean shutdown."""

    def __init__(self) -> None:
        super().__init__()
        self.note: Callable[[str], None] = lambda step: None

    def open(self, path: str, *, create: bool = False, private: bool = False) -> OsFile:
        file = OsDisk.open(self, path, create=create, private=private)
        return NotingFile(self, file) if path.endswith(".log") else file

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        if new.endswith(CLEAN_SHUTDOWN):
            self.note("mark")


def test_b11_stop_flushes_marks_and_ends_its_session_last(tmp_path: Path) -> None:
    async def scenario() -> None:
        disk, steps = NotingDisk(), list[tuple[str, bool]]()
        async with broker_of(tmp_path, disk=disk) as running:
            client = await running.client()
            await create(client, "t")
            assert (await produce(client, "t", batch(b"a")))[0] == 0
            store = running.node._environment.coordination
            assert isinstance(store, EmbeddedStore)

            def note(step: str) -> None:
                steps.append((step, store.tree.exists(broker_path(running.node.id)) is not None))

            disk.note = note
        assert steps == [("flush", True), ("mark", True)], "it is registered until the end"
        assert store.tree.exists(broker_path(running.node.id)) is None

    run(scenario)

# pyright: reportPrivateUsage=false
"""A broker that stops waits for others to take over, but not if that is hopeless or unwanted."""

import asyncio
import logging

import pytest
import uvloop

from ottla.broker.node import Node
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

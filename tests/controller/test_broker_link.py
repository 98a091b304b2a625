"""The link of the controller to one broker: how it ends."""

import asyncio

from ottla.clock import SystemClock
from ottla.controller.broker_link import BrokerLink
from ottla.controller.control_update import ControlUpdate, Failures
from ottla.ids import BrokerEpoch, BrokerId, ControllerEpoch

BROKER = BrokerId(2)


def test_cancelled_close_of_a_busy_link_raises_the_cancellation() -> None:
    update = ControlUpdate(
        controller=BrokerId(1), controller_epoch=ControllerEpoch(1), broker_epoch=BrokerEpoch(1)
    )

    async def apply(update: ControlUpdate) -> Failures:
        await asyncio.Event().wait()
        return {}

    async def scenario() -> tuple[bool, Failures]:
        link = BrokerLink(BROKER, apply, SystemClock())
        applied = link.send(update)
        await asyncio.sleep(0)  # now it applies the update
        closing = asyncio.create_task(link.close())
        await asyncio.sleep(0)  # now it waits until the link has ended
        closing.cancel()
        await asyncio.wait((closing,))
        return closing.cancelled(), await applied

    assert asyncio.run(scenario()) == (True, {})

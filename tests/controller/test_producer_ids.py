"""Producer ids are unique (rule B12)."""

import asyncio
from pathlib import Path

import pytest

from controller.controllers import Coordinated, coordinated
from controller.lossy_session import Loss, LossySession
from ottla.cluster.znodes import PRODUCER_ID_BLOCK, parse_producer_id_block
from ottla.controller.producer_ids import BLOCK_SIZE, ProducerIds
from ottla.coordination.errors import ConnectionLoss
from ottla.ids import BrokerId


def test_b12_concurrent_brokers_issue_different_ids(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        givers = [ProducerIds(await there.session(), BrokerId(n)) for n in range(3)]
        taken = await asyncio.gather(
            *(giver.take() for _ in range(BLOCK_SIZE + 5) for giver in givers)
        )
        assert len(set(taken)) == len(taken) == 3 * (BLOCK_SIZE + 5)
        assert min(taken) == 0
        assert max(taken) < 6 * BLOCK_SIZE

    coordinated(tmp_path, scenario)


def test_b12_block_is_reserved_before_its_first_id_is_issued(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        session = await there.session()
        giver = ProducerIds(session, BrokerId(7))
        assert await giver.take() == 0
        block = parse_producer_id_block((await session.get(PRODUCER_ID_BLOCK)).data)
        assert (block.broker, block.first, block.last) == (7, 0, BLOCK_SIZE - 1)
        assert await giver.take() == 1

    coordinated(tmp_path, scenario)


def test_b12_rest_of_a_block_is_never_issued(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        session = await there.session()
        assert await ProducerIds(session, BrokerId(1)).take() == 0
        assert await ProducerIds(session, BrokerId(1)).take() == BLOCK_SIZE

    coordinated(tmp_path, scenario)


@pytest.mark.parametrize("loss", list(Loss))
def test_b12_block_of_a_lost_reservation_is_not_issued(tmp_path: Path, loss: Loss) -> None:
    async def scenario(there: Coordinated) -> None:
        session = LossySession(await there.session())
        giver = ProducerIds(session, BrokerId(1))
        assert await giver.take() == 0
        for _ in range(BLOCK_SIZE - 1):
            await giver.take()
        session.losses = [loss]
        with pytest.raises(ConnectionLoss):
            await giver.take()
        first = await giver.take()
        assert first == (2 if loss is Loss.RESPONSE else 1) * BLOCK_SIZE
        assert await ProducerIds(session, BrokerId(2)).take() == first + BLOCK_SIZE

    coordinated(tmp_path, scenario)

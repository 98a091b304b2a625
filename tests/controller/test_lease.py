"""A broker is registered once, and an epoch has one controller (rules B1 to B3)."""

import json
from pathlib import Path

import pytest

from controller.controllers import Coordinated, coordinated
from ottla.cluster.image import Address, Broker
from ottla.cluster.znodes import BROKER_IDS, CONTROLLER, CONTROLLER_EPOCH
from ottla.controller.lease import RegistrationRefused, Resigned, elect_controller, register
from ottla.coordination.errors import NoNode
from ottla.coordination.operations import Create, SetData
from ottla.ids import BrokerEpoch, BrokerId

ADDRESSES = {"PLAINTEXT": Address("here", 9092), "INSIDE": Address("there", 9093)}
ME = Broker(BrokerId(3), BrokerEpoch(-1), ADDRESSES, "rack-a")
PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "INSIDE": "PLAINTEXT"}


def test_registration_has_kafkas_fields(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        session = await there.session()
        await register(session, ME, PROTOCOLS, 1234)
        assert json.loads((await session.get(f"{BROKER_IDS}/3")).data) == {
            "version": 5,
            "host": "here",
            "port": 9092,
            "jmx_port": -1,
            "timestamp": "1234",
            "endpoints": ["PLAINTEXT://here:9092", "INSIDE://there:9093"],
            "listener_security_protocol_map": PROTOCOLS,
            "features": {},
            "rack": "rack-a",
        }

    coordinated(tmp_path, scenario)


def test_registration_belongs_to_one_session_and_ends_with_it(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        first, second = await there.session(), await there.session()
        epoch = await register(first, ME, PROTOCOLS, 0)
        with pytest.raises(RegistrationRefused, match=r"node\.id"):
            await register(second, ME, PROTOCOLS, 0)
        assert (await second.get(f"{BROKER_IDS}/3")).stat.ephemeral_owner == first.id
        await first.close()
        assert await register(second, ME, PROTOCOLS, 0) > epoch

    coordinated(tmp_path, scenario)


def test_broker_registers_again_in_its_session_with_new_epoch(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        session = await there.session()
        epoch = await register(session, ME, PROTOCOLS, 0)
        assert await register(session, ME, PROTOCOLS, 0) > epoch

    coordinated(tmp_path, scenario)


def test_one_controller_and_the_next_has_a_higher_epoch(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        first, second = await there.session(), await there.session()
        lease = await elect_controller(first, BrokerId(1), 5)
        assert lease is not None
        assert await elect_controller(second, BrokerId(2), 5) is None
        assert json.loads((await second.get(CONTROLLER)).data)["brokerid"] == 1
        await first.close()
        after = await elect_controller(second, BrokerId(2), 5)
        assert after is not None
        assert after.epoch == lease.epoch + 1

    coordinated(tmp_path, scenario)


def test_superseded_controller_changes_nothing(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        lease = await there.lease()
        await lease.change([Create("/mine", b"1")])
        other = await there.session()
        await other.set(CONTROLLER_EPOCH, b"9", lease.version)
        with pytest.raises(Resigned):
            await lease.change([SetData("/mine", b"2")])
        with pytest.raises(Resigned):
            await lease.change_all([SetData("/mine", b"3")])
        assert (await other.get("/mine")).data == b"1"

    coordinated(tmp_path, scenario)


def test_failed_change_alone_is_not_a_resignation(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        lease = await there.lease()
        with pytest.raises(NoNode):
            await lease.change([Create("/one"), SetData("/nowhere", b"")])
        assert await lease.session.exists("/one") is None

    coordinated(tmp_path, scenario)


def test_large_change_is_split_into_ordered_transactions(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        lease = await there.lease()
        data = bytes(200_000)
        await lease.change_all(
            [Create("/parent"), *(Create(f"/parent/{n}", data) for n in range(9))]
        )
        assert len(await lease.session.children("/parent")) == 9

    coordinated(tmp_path, scenario)

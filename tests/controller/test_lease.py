"""A broker is registered once, and an epoch has one controller (rules B1 to B3, B6)."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from controller.controllers import Coordinated, coordinated
from controller.lossy_session import Loss, LossySession
from ottla.cluster.image import Address, Broker
from ottla.cluster.registration import NO_BROKER_EPOCH, Registered, Registration
from ottla.cluster.znodes import (
    BROKER_IDS,
    CONTROLLER,
    CONTROLLER_EPOCH,
    broker_path,
    format_controller,
)
from ottla.controller.lease import (
    RegistrationRefused,
    Resigned,
    elect_controller,
    read_controller,
    register,
)
from ottla.controller.loading import read_registrations
from ottla.controller.store import ClusterStore
from ottla.coordination.errors import NoNode
from ottla.coordination.operations import Create, Delete, SetData
from ottla.coordination.session import Change, Session, WatchEvent
from ottla.ids import BrokerEpoch, BrokerId, Uuid

THREE = BrokerId(3)
ME = Registration(
    Broker(THREE, NO_BROKER_EPOCH, {"PLAINTEXT": Address("here", 9092)}, "rack-a"),
    Uuid(b"1" * 16),
    {"PLAINTEXT": "PLAINTEXT"},
)


def restarted(clean_epoch: int = -1) -> Registration:
    """The registration of the broker's next process."""
    return replace(ME, incarnation=Uuid(b"2" * 16), last_clean_epoch=BrokerEpoch(clean_epoch))


async def registered(session: Session) -> Registered:
    return (await read_registrations(session))[THREE]


def test_b1_registration_ends_with_its_session(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        first, second = await there.session(), await there.session()
        epoch = await register(first, ME)
        found = await first.get(f"{BROKER_IDS}/3")
        assert (found.data, found.stat.czxid, found.stat.version) == (ME.format(), epoch, 1)
        assert (await registered(second)).epoch == epoch
        await first.close()
        assert await read_registrations(second) == {}
        assert await register(second, restarted()) > epoch

    coordinated(tmp_path, scenario)


def test_b1_id_of_another_process_is_refused(tmp_path: Path) -> None:
    """Also that of a process that was killed, until its session expires."""

    async def scenario(there: Coordinated) -> None:
        first, second = await there.session(), await there.session()
        epoch = await register(first, ME)
        with pytest.raises(RegistrationRefused, match=r"node\.id"):
            await register(second, restarted())
        found = await registered(second)
        assert (found.epoch, found.counter_version) == (epoch, 0)
        assert (await second.get(broker_path(THREE))).stat.ephemeral_owner == first.id

    coordinated(tmp_path, scenario)


def test_b1_copied_directories_do_not_replace_a_live_broker(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        first, second = await there.session(), await there.session()
        original = replace(ME, directories=(Uuid(b"d" * 16),))
        copy = replace(restarted(), directories=original.directories)
        epoch = await register(first, original)
        asked: list[Registration] = []

        async def answers(other: Registration) -> bool:
            asked.append(other)
            return len(asked) == 1

        with pytest.raises(RegistrationRefused, match="do not start a copy"):
            await register(second, copy, answers)
        assert asked[0].incarnation == original.incarnation
        assert (await registered(second)).epoch == epoch
        assert await register(second, copy, answers) > epoch  # it has died

    coordinated(tmp_path, scenario)


def test_b1_registration_of_the_same_session_is_kept(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        session = await there.session()
        epoch = await register(session, ME)
        assert await register(session, ME) == epoch
        moved = replace(ME, broker=replace(ME.broker, rack="rack-b"))
        assert await register(session, moved) > epoch
        found = await registered(session)
        assert (found.registration.broker.rack, found.counter_version) == ("rack-b", 1)

    coordinated(tmp_path, scenario)


def test_b1_process_replaces_its_earlier_session(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        first, second = await there.session(), await there.session()
        old = await register(first, ME)
        epoch = await register(second, ME)
        assert epoch > old
        found = await registered(second)
        assert (found.epoch, found.counter_version, found.clean_since) == (epoch, 1, old)
        assert (await second.get(broker_path(THREE))).stat.ephemeral_owner == second.id
        await first.close()
        assert (await registered(second)).epoch == epoch

    coordinated(tmp_path, scenario)


@pytest.mark.parametrize("loss", list(Loss))
def test_b1_b6_lost_registration_is_looked_up(tmp_path: Path, loss: Loss) -> None:
    async def scenario(there: Coordinated) -> None:
        session = LossySession(await there.session())
        session.losses = [loss]
        epoch = await register(session, ME)
        assert len(session.writes) == 1
        found = await registered(session)
        assert (found.epoch, found.counter_version) == (epoch, 0)

    coordinated(tmp_path, scenario)


def test_b1_concurrent_registration_is_noticed(tmp_path: Path) -> None:
    """The id is free when it is read, and taken when it is written."""

    async def scenario(there: Coordinated) -> None:
        session, other = LossySession(await there.session()), await there.session()

        async def be_faster() -> None:
            await register(other, restarted())

        session.before_write = be_faster
        with pytest.raises(RegistrationRefused):
            await register(session, ME)
        assert (await registered(session)).registration.incarnation == restarted().incarnation

    coordinated(tmp_path, scenario)


def test_b1_counter_outlives_registrations_and_judges_them(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        lives: list[tuple[int, int]] = []  # broker epoch, and since when restarts were clean
        clean_epochs = [-1, 0, -1, 0, 0]
        for number, clean in enumerate(clean_epochs):
            session = await there.session()
            last = BrokerEpoch(lives[-1][0] if lives and clean == 0 else -1)
            one = replace(ME, incarnation=Uuid(bytes([number]) * 16), last_clean_epoch=last)
            await register(session, one)
            found = await registered(session)
            assert found.counter_version == number
            lives.append((found.epoch, found.clean_since))
            await session.close()
        epochs = [epoch for epoch, _ in lives]
        assert epochs == sorted(set(epochs))
        first, third = epochs[0], epochs[2]
        assert [since for _, since in lives] == [first, first, third, third, third]

    coordinated(tmp_path, scenario)


def test_b2_one_controller_and_the_next_has_a_higher_epoch(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        first, second = await there.session(), await there.session()
        assert await read_controller(second) is None
        lease = await elect_controller(first, BrokerId(1), 5)
        assert lease is not None
        assert await elect_controller(second, BrokerId(2), 5) is None
        assert await read_controller(second) == (1, lease.epoch)
        assert json.loads((await second.get(CONTROLLER)).data)["brokerid"] == 1
        await first.close()
        after = await elect_controller(second, BrokerId(2), 5)
        assert after is not None
        assert after.epoch == lease.epoch + 1
        assert await read_controller(second) == (2, after.epoch)

    coordinated(tmp_path, scenario)


@pytest.mark.parametrize("loss", list(Loss))
def test_b2_lost_election_is_looked_up(tmp_path: Path, loss: Loss) -> None:
    async def scenario(there: Coordinated) -> None:
        session, other = LossySession(await there.session()), await there.session()
        await session.create(CONTROLLER_EPOCH, b"7")
        session.losses = [loss]
        lease = await elect_controller(session, BrokerId(1), 5)
        assert lease is not None
        assert lease.epoch == 8
        assert await read_controller(other) == (1, 8)
        await lease.change([Create("/mine")])
        assert await elect_controller(other, BrokerId(2), 5) is None

    coordinated(tmp_path, scenario)


def test_b2_controller_of_an_earlier_session_is_not_mine(tmp_path: Path) -> None:
    """The node names the same broker, but it is not this session's."""

    async def scenario(there: Coordinated) -> None:
        first, second = await there.session(), LossySession(await there.session())
        assert await elect_controller(first, BrokerId(1), 5) is not None
        assert await elect_controller(second, BrokerId(1), 5) is None
        await first.close()
        lease = await elect_controller(second, BrokerId(1), 5)
        assert lease is not None
        assert lease.epoch == 2

    coordinated(tmp_path, scenario)


def test_b2_concurrent_election_has_one_winner(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        session, other = LossySession(await there.session()), await there.session()
        await session.create(CONTROLLER_EPOCH, b"7")

        async def win() -> None:
            assert await elect_controller(other, BrokerId(2), 5) is not None

        async def win_and_resign() -> None:
            lease = await elect_controller(other, BrokerId(2), 5)
            assert lease is not None
            await lease.resign()

        session.before_write = win_and_resign
        lease = await elect_controller(session, BrokerId(1), 5)
        assert lease is not None
        assert lease.epoch == 9
        await lease.resign()
        session.before_write = win
        assert await elect_controller(session, BrokerId(1), 5) is None
        assert await read_controller(session) == (2, 10)

    coordinated(tmp_path, scenario)


def test_b2_lost_election_that_another_broker_won(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        session, other = LossySession(await there.session()), await there.session()
        await session.create(CONTROLLER_EPOCH, b"7")
        # The same epoch and the same broker id, in another session.
        await other.create(CONTROLLER, format_controller(BrokerId(1), 5), ephemeral=True)
        await other.set(CONTROLLER_EPOCH, b"8")
        assert await elect_controller(session, BrokerId(1), 5) is None

    coordinated(tmp_path, scenario)


def test_b2_dead_controller_is_replaced_at_once(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        lease = await there.lease(1)
        session = await there.session()
        dead = await read_controller(session)
        assert dead == (1, lease.epoch)
        after = await elect_controller(session, BrokerId(2), 5, dead)
        assert after is not None
        assert await read_controller(session) == (2, lease.epoch + 1)
        with pytest.raises(Resigned):
            await lease.change([Create("/mine")])
        third = await there.session()
        assert await elect_controller(third, BrokerId(3), 5, dead) is None

    coordinated(tmp_path, scenario)


def test_b7_watch_on_the_controller_is_set_before_the_read(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        session = await there.session()
        seen: list[WatchEvent] = []
        assert await read_controller(session, seen.append) is None
        lease = await there.lease(1)
        assert seen == [WatchEvent(Change.CREATED, CONTROLLER)]
        assert await read_controller(session, seen.append) == (1, lease.epoch)
        await lease.resign()
        await lease.resign()
        assert seen[1:] == [WatchEvent(Change.DELETED, CONTROLLER)]
        assert await read_controller(session) is None

    coordinated(tmp_path, scenario)


def test_b3_superseded_controller_changes_nothing(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        lease = await there.lease()
        await lease.change([Create("/mine", b"1")])
        other = await there.session()
        await other.set(CONTROLLER_EPOCH, b"9", lease.version)
        with pytest.raises(Resigned):
            await lease.change([SetData("/mine", b"2")])
        with pytest.raises(Resigned):
            await lease.change_all([SetData("/mine", b"3")])
        await lease.resign()
        assert (await other.get("/mine")).data == b"1"
        assert await other.exists(CONTROLLER) is not None, "it belongs to the next controller"

    coordinated(tmp_path, scenario)


def test_b3_failed_change_alone_is_not_a_resignation(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        lease = await there.lease()
        with pytest.raises(NoNode):
            await lease.change([Create("/one"), SetData("/nowhere", b"")])
        assert await lease.session.exists("/one") is None

    coordinated(tmp_path, scenario)


@pytest.mark.parametrize("losses", [[one] for one in Loss] + [[Loss.REQUEST, Loss.RESPONSE]])
def test_b6_lost_change_is_made_once(tmp_path: Path, losses: list[Loss]) -> None:
    async def scenario(there: Coordinated) -> None:
        session = LossySession(await there.session())
        lease = await elect_controller(session, BrokerId(1), 5)
        assert lease is not None
        await lease.change([Create("/a", b"1"), Create("/gone")])
        session.writes.clear()
        session.losses = [*losses]
        await lease.change([SetData("/a", b"2", 0), Delete("/gone"), Create("/b", b"3")])
        assert len(session.writes) == 1
        assert (await session.get("/a")).stat.version == 1
        assert (await session.get("/b")).data == b"3"
        assert await session.exists("/gone") is None

    coordinated(tmp_path, scenario)


def test_b6_lost_change_of_a_superseded_controller(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        session, other = LossySession(await there.session()), await there.session()
        lease = await elect_controller(session, BrokerId(1), 5)
        assert lease is not None
        await lease.change([Create("/a", b"1")])
        await other.set(CONTROLLER_EPOCH, b"9", lease.version)
        session.losses = [Loss.REQUEST]
        with pytest.raises(Resigned):
            await lease.change([SetData("/a", b"2")])
        assert (await other.get("/a")).data == b"1"

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


def test_b13_registration_of_a_restarted_broker_is_not_deleted(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        session, store = await there.session(), ClusterStore(await there.lease())
        await register(session, ME)
        dead = await registered(session)
        # The data version of the node is 1 in both registrations: only the counter differs.
        await register(session, restarted())
        alive = await registered(session)
        assert not await store.unregister(dead)
        assert await registered(session) == alive
        assert await store.unregister(alive)
        assert await session.exists(broker_path(THREE)) is None
        assert not await store.unregister(alive)

    coordinated(tmp_path, scenario)

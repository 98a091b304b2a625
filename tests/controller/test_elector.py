"""Election of the controller: what a broker does about its own earlier elections."""

from collections.abc import Mapping
from pathlib import Path

from controller.controllers import Coordinated, coordinated
from ottla.clock import SystemClock
from ottla.cluster.image import Address, Broker
from ottla.cluster.registration import NO_BROKER_EPOCH, Registration
from ottla.controller.elector import ControllerElector
from ottla.controller.lease import ControllerLease, read_controller, register
from ottla.coordination.errors import ConnectionLoss
from ottla.coordination.session import Session
from ottla.ids import BrokerEpoch, BrokerId, Uuid

DIRECTORY = Uuid(b"d" * 16)


class Candidate:
    """A broker that stands for election, and the epochs in which it controlled."""

    def __init__(
        self,
        session: Session,
        broker: int,
        failures: int = 0,
        dead: Mapping[BrokerId, BrokerEpoch] | None = None,
    ) -> None:
        self.session = session
        self.epochs: list[int] = []
        self.resigned = 0
        self._failures = failures
        self._broker = BrokerId(broker)
        self.dead = dict(dead or {})
        self.elector = ControllerElector(
            session,
            self._broker,
            SystemClock(),
            self._elected,
            self._resign,
            dead=lambda: self.dead,
            session_timeout_s=60.0,
        )

    async def register(self, incarnation: bytes) -> BrokerEpoch:
        address = {"PLAINTEXT": Address("127.0.0.1", 9092)}
        broker = Broker(self._broker, NO_BROKER_EPOCH, address, None, None)
        registration = Registration(broker, Uuid(incarnation * 16), {}, (DIRECTORY,))
        return await register(self.session, registration)

    async def _elected(self, lease: ControllerLease, resign: object) -> None:
        if self._failures:
            self._failures -= 1
            raise ConnectionLoss
        self.epochs.append(lease.epoch)

    async def _resign(self) -> None:
        self.resigned += 1


def test_b2_restarted_controller_replaces_its_dead_session(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        killed = Candidate(await there.session(), 1)
        await killed.register(b"a")
        assert await killed.elector.elect()
        # Its session lives on until it expires.
        restarted, other = Candidate(await there.session(), 1), Candidate(await there.session(), 2)
        assert not await restarted.elector.elect()  # it is not registered, so the other may live
        await restarted.register(b"b")
        assert not await other.elector.elect()
        assert await restarted.elector.elect()
        assert (killed.epochs, restarted.epochs) == ([1], [2])
        assert await read_controller(other.session) == (1, 2)

    coordinated(tmp_path, scenario)


def test_b8_controller_that_could_not_load_is_elected_again(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        candidate = Candidate(await there.session(), 1, failures=1)
        await candidate.register(b"a")
        try:
            await candidate.elector.elect()
        except ConnectionLoss:
            pass
        else:
            raise AssertionError("a controller that knows nothing was elected")
        assert await candidate.elector.elect()
        assert candidate.epochs == [2]
        assert candidate.resigned == 1

    coordinated(tmp_path, scenario)


def test_b13_dead_controller_is_replaced_once_per_session_timeout(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        killed, other = Candidate(await there.session(), 1), Candidate(await there.session(), 2)
        epoch = await killed.register(b"a")
        assert await killed.elector.elect()
        assert not await other.elector.elect()
        other.dead[BrokerId(1)] = epoch
        assert await other.elector.elect(), "its session lives, but it is dead"
        assert await read_controller(other.session) == (2, 2)
        assert not await killed.elector.elect()
        assert killed.resigned == 1
        # It lived after all, and is elected again: now only its session decides.
        await other.session.delete("/controller")
        assert await killed.elector.elect()
        assert not await other.elector.elect()

    coordinated(tmp_path, scenario)


def test_b13_controller_that_restarted_is_not_dead(tmp_path: Path) -> None:
    async def scenario(there: Coordinated) -> None:
        killed, other = Candidate(await there.session(), 1), Candidate(await there.session(), 2)
        other.dead[BrokerId(1)] = await killed.register(b"a")
        restarted = Candidate(await there.session(), 1)
        await restarted.register(b"b")
        assert await restarted.elector.elect()
        assert not await other.elector.elect()

    coordinated(tmp_path, scenario)

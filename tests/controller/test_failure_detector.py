"""Which failures of connections prove that a broker's process is dead (rule B13)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from ottla.cluster.image import Address, Broker
from ottla.cluster.registration import NO_BROKER_EPOCH, Registered, Registration
from ottla.controller import plan
from ottla.controller.failure_detector import RETRY_SECONDS, FailureDetector, LostBroker
from ottla.ids import BrokerEpoch, BrokerId, Uuid
from ottla.testing.clock import SimulatedClock, simulated
from ottla.transport.channel import Channel
from ottla.transport.failures import Disconnected

TWO = Broker(BrokerId(2), BrokerEpoch(7), {"PLAINTEXT": Address("two", 9092)})


class FakeChannel:
    """A connection that the test or the detector ends."""

    def __init__(self, ended: Callable[[], None], is_ended: Callable[[], bool]) -> None:
        self._ended = ended
        self.is_ended_by_peer = is_ended

    def close(self) -> None:
        self._ended()


class Peer:
    """Another broker: whether it listens, and whether the network between refuses or is silent."""

    def __init__(self, clock: SimulatedClock) -> None:
        self.clock = clock
        self.accepts = True
        self.answer: bool | None = False  # whether it refuses; None: nothing comes back
        self.deaths: list[BrokerEpoch] = []
        self.is_enabled = True
        self.is_ended = False  # the connection, before the event loop learns it
        self._ends: list[Callable[[], None]] = []
        self.watch = FailureDetector(
            BrokerId(1),
            "PLAINTEXT",
            clock=clock,
            connect=self._connect,
            refuses=self._refuses,
            is_enabled=lambda: self.is_enabled,
            on_dead=self._died,
        )
        self.brokers = {TWO.id: TWO}
        self.changed = asyncio.Event()

    @property
    def lost(self) -> Mapping[BrokerId, LostBroker]:
        return self.watch.look(())

    async def _connect(self, address: Address, ended: Callable[[], None]) -> Channel:
        if not self.accepts:
            raise Disconnected("no connection")
        self._ends.append(ended)
        return cast("Any", FakeChannel(ended, lambda: self.is_ended))

    async def _refuses(self, host: str, port: int) -> bool:
        if self.answer is None:
            await asyncio.Event().wait()
        return bool(self.answer)

    async def _died(self, broker: Broker) -> None:
        self.deaths.append(broker.epoch)

    async def breaks(self, *, accepts: bool, refuses: bool | None) -> None:
        """End the connections, and let attempts end like this from now on."""
        self.accepts, self.answer = accepts, refuses
        ends, self._ends = self._ends, []
        for end in ends:
            end()
        await self.clock.sleep(0.01)


def watched(scenario: Callable[[Peer], Awaitable[None]], *, accepts: bool = True) -> None:
    async def program(clock: SimulatedClock) -> None:
        peer = Peer(clock)
        peer.accepts = accepts
        running = asyncio.ensure_future(peer.watch.run(peer.changed, lambda: peer.brokers))
        await clock.sleep(0.01)
        await scenario(peer)
        running.cancel()
        await asyncio.wait((running,))

    simulated(program)


def test_b13_refusal_after_an_open_connection_proves_death() -> None:
    async def scenario(peer: Peer) -> None:
        await peer.breaks(accepts=False, refuses=True)
        assert peer.deaths == [TWO.epoch]
        assert peer.watch.dead == {TWO.id: TWO.epoch}
        await peer.clock.sleep(RETRY_SECONDS)
        assert len(peer.deaths) == 2, "it is repeated while the broker is registered"
        peer.accepts, peer.answer = True, False
        await peer.clock.sleep(RETRY_SECONDS)
        assert not peer.watch.dead, "it lives, or another process is there"

    watched(scenario)


def test_b13_silence_and_failed_logins_prove_nothing() -> None:
    async def scenario(peer: Peer) -> None:
        for refuses in (None, False):
            await peer.breaks(accepts=False, refuses=refuses)
            await peer.clock.sleep(5.0)
            assert not peer.deaths
            peer.accepts, peer.answer = True, False
            await peer.clock.sleep(5.0)

    watched(scenario)


def test_b13_broker_that_never_accepted_a_connection_is_not_dead() -> None:
    async def scenario(peer: Peer) -> None:
        peer.answer = True
        await peer.clock.sleep(5.0)
        assert not peer.deaths

    watched(scenario, accepts=False)


def test_b13_proof_ends_with_the_registration() -> None:
    async def scenario(peer: Peer) -> None:
        await peer.breaks(accepts=False, refuses=True)
        again = Broker(TWO.id, BrokerEpoch(8), TWO.addresses)
        peer.brokers = {TWO.id: again}
        peer.changed.set()
        await peer.clock.sleep(5.0)
        assert peer.deaths == [TWO.epoch], "no connection was open in the new broker epoch"
        assert not peer.watch.dead

    watched(scenario)


def test_b13_nothing_is_proven_while_disabled() -> None:
    async def scenario(peer: Peer) -> None:
        peer.is_enabled = False
        await peer.breaks(accepts=False, refuses=True)
        await peer.clock.sleep(5.0)
        assert not peer.deaths

    watched(scenario)


def test_broker_is_lost_until_it_accepts_a_connection_again() -> None:
    async def scenario(peer: Peer) -> None:
        assert not peer.lost
        ended_s = peer.clock.elapsed_s()
        await peer.breaks(accepts=False, refuses=False)
        await peer.clock.sleep(5.0)
        assert peer.lost == {TWO.id: LostBroker(TWO, ended_s)}
        peer.accepts = True
        await peer.clock.sleep(RETRY_SECONDS)
        assert not peer.lost

    watched(scenario)


def test_broker_is_lost_before_the_event_loop_learns_it() -> None:
    async def scenario(peer: Peer) -> None:
        peer.is_ended = True
        assert not peer.watch.look(())
        assert peer.watch.look([TWO.id]).keys() == {TWO.id}

    watched(scenario)


def test_lost_broker_stays_lost_without_its_registration() -> None:
    async def scenario(peer: Peer) -> None:
        await peer.breaks(accepts=False, refuses=False)
        peer.brokers = {}
        peer.changed.set()
        await peer.clock.sleep(0.01)
        assert peer.lost.keys() == {TWO.id}
        peer.brokers = {TWO.id: Broker(TWO.id, BrokerEpoch(8), TWO.addresses)}
        peer.changed.set()
        await peer.clock.sleep(0.01)
        assert not peer.lost, "it has registered again"

    watched(scenario)


def test_broker_that_unregisters_is_not_lost() -> None:
    async def scenario(peer: Peer) -> None:
        peer.brokers = {}
        peer.changed.set()
        await peer.clock.sleep(0.01)
        assert not peer.lost, "the detector itself has closed the connection"

    watched(scenario)


def test_nobody_is_lost_while_disabled() -> None:
    async def scenario(peer: Peer) -> None:
        peer.is_enabled = False
        await peer.breaks(accepts=False, refuses=False)
        assert not peer.lost

    watched(scenario)


def test_b13_broker_that_was_taken_for_dead_is_spared() -> None:
    def may_be_removed(*, was_taken_for_dead: bool, known_for_s: float) -> bool:
        registration = Registration(TWO, Uuid(b"1" * 16), {}, was_taken_for_dead=was_taken_for_dead)
        registered = Registered(registration, 3, NO_BROKER_EPOCH)
        return plan.may_be_removed(registered, known_for_s=known_for_s, session_timeout_s=9.0)

    assert may_be_removed(was_taken_for_dead=False, known_for_s=0.0)
    assert not may_be_removed(was_taken_for_dead=True, known_for_s=8.9)
    assert may_be_removed(was_taken_for_dead=True, known_for_s=9.0)

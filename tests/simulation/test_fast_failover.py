"""Dead brokers are replaced before their session expires, and live ones lose nothing (rule B13).

The times are virtual. In every script clients write with acks=all, and the run checks all
invariants: nothing acknowledged is lost, and one broker appends in each leader epoch.
"""

from collections.abc import Awaitable, Callable

from ottla.cluster.image import INTERNAL_TOPICS
from ottla.cluster.registration import parse_registration
from ottla.cluster.znodes import CONTROLLER, broker_path, counter_path
from ottla.ids import BrokerEpoch
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.testing.cluster_faults import Machine
from ottla.testing.cluster_scenario import SESSION_SECONDS, ClusterScenario, run
from ottla.testing.simulation import PORT
from ottla.transport.channel import open_channel
from simulation.test_cluster_mutants import Drill

SEED = 11
REPLACED_WITHIN_S = 1.0


class FailoverDrill(Drill):
    """The steps of scripts about brokers that die, or seem to."""

    def __init__(self, scenario: ClusterScenario) -> None:
        super().__init__(scenario)
        self.tree = scenario.coordination.store.tree

    def is_in_charge(self, *machines: Machine) -> bool:
        """Whether one of the brokers is the controller or leads a partition."""
        ids = {one.id for one in machines}
        leaders = {one.state.leader for one in self.scenario.checks.recorded.values()}
        return (
            self.tree.exists(CONTROLLER) is None
            or self.controller.id in ids
            or bool(leaders & {*ids, -1})
        )

    async def until_whole(self) -> None:
        """Wait until all replicas are in all ISRs."""
        brokers = len(self.scenario.faults.machines)
        await self.until(
            lambda: all(
                len(one.state.in_sync) == (3 if one.name in INTERNAL_TOPICS else brokers)
                for one in self.scenario.checks.recorded.values()
            )
        )

    async def until_replaced(self, *machines: Machine) -> None:
        began_s = self.clock.elapsed_s()
        await self.until(lambda: not self.is_in_charge(*machines))
        assert self.clock.elapsed_s() - began_s <= REPLACED_WITHIN_S

    def registrations(self, machine: Machine) -> int:
        """Return how often a broker has registered."""
        return self.tree.get(counter_path(machine.id)).stat.version + 1

    def is_registered(self, machine: Machine) -> bool:
        return self.tree.exists(broker_path(machine.id)) is not None

    async def kill(self, *machines: Machine) -> None:
        """Kill brokers, and start them again when they are replaced."""
        await self.until_whole()
        for one in machines:
            self.scenario.faults.kill(one)
        await self.until_replaced(*machines)
        for one in machines:
            one.wanted.set()
        await self.until_whole()


def drilled(script: Callable[[FailoverDrill], Awaitable[None]], *, brokers: int = 3) -> None:
    outcome = run(
        SEED,
        minutes=0,
        brokers=brokers,
        script=lambda scenario: script(FailoverDrill(scenario)),
    )
    assert not outcome.violations, outcome.violations[:5]
    assert outcome.acknowledged


def test_b13_dead_brokers_are_replaced_at_once() -> None:
    async def script(drill: FailoverDrill) -> None:
        await drill.until_whole()
        await drill.kill(drill.follower)
        await drill.kill(drill.controller)
        await drill.kill(drill.leader)
        await restarts_at_once(drill)

    drilled(script)


def test_metadata_lists_a_killed_broker_when_it_names_the_new_leaders() -> None:
    """Librdkafka forgets the new leaders that it learns together with the end of a broker."""

    async def script(drill: FailoverDrill) -> None:
        await drill.until_whole()
        killed = drill.leader
        host = drill.scenario.client("asker")["network"]
        address = drill.others(killed)[0].broker.address
        channel = await open_channel(
            host,
            address,
            PORT,
            client_id="asker",
            software=("ottla", "0"),
            setup_timeout_s=5.0,
            request_timeout_s=5.0,
            ended=lambda: None,
        )
        drill.scenario.faults.kill(killed)
        found = None
        while found is None or killed.id in {
            one.leader_id for topic in found.topics for one in topic.partitions
        }:
            found = await channel.ask(MetadataRequest(topics=None), MetadataResponse, 5.0)
        assert killed.id in {one.node_id for one in found.brokers}
        channel.close()
        killed.wanted.set()
        await drill.until_whole()

    drilled(script)


async def restarts_at_once(drill: FailoverDrill) -> None:
    """The registration of the new process is not deleted for the death of the old one."""
    leader = drill.leader
    before = drill.registrations(leader)
    drill.scenario.faults.kill(leader)
    leader.wanted.set()
    await drill.until(lambda: drill.registrations(leader) > before)
    await drill.clock.sleep(2.0)
    assert drill.is_registered(leader)
    assert drill.registrations(leader) == before + 1
    await drill.until_whole()


def test_b13_leader_and_controller_that_die_together_are_replaced_at_once() -> None:
    async def script(drill: FailoverDrill) -> None:
        await drill.until_whole()
        controller = drill.controller
        leads = {one.state.leader for one in drill.scenario.checks.recorded.values()}
        other = next(one for one in drill.others(controller) if one.id in leads)
        await drill.kill(controller, other)

    drilled(script, brokers=5)


def test_b13_live_brokers_that_seem_dead_lose_nothing() -> None:
    async def script(drill: FailoverDrill) -> None:
        await drill.until_whole()
        await leader_is_unreachable(drill)
        await leader_refuses_everybody(drill)
        await controller_refuses_one_broker(drill)

    drilled(script)


async def leader_is_unreachable(drill: FailoverDrill) -> None:
    """A partition and a pause prove nothing: only the session decides."""
    leader = drill.leader
    before = drill.registrations(leader)
    heal = drill.part(leader, *drill.others(leader))
    leader.broker.pause()
    await drill.clock.sleep(SESSION_SECONDS / 2)
    leader.broker.resume()
    await drill.clock.sleep(SESSION_SECONDS / 2)
    assert drill.leader is leader
    assert drill.registrations(leader) == before
    heal()
    await drill.until_whole()


async def leader_refuses_everybody(drill: FailoverDrill) -> None:
    """The leader is replaced, registers again, and is then left to its session for a while."""
    leader = drill.leader
    before = drill.registrations(leader)
    pairs = [(one.broker.address, leader.broker.address) for one in drill.others(leader)]
    for pair in pairs:
        drill.network.refuse(*pair)
    await drill.until_replaced(leader)
    await drill.until(lambda: drill.is_registered(leader))
    node = drill.tree.get(broker_path(leader.id))
    found = parse_registration(node.data, leader.id, BrokerEpoch(node.stat.czxid))
    assert found.was_taken_for_dead
    await drill.clock.sleep(SESSION_SECONDS)
    assert drill.registrations(leader) == before + 1
    for pair in pairs:
        drill.network.allow(*pair)
    await drill.until_whole()


async def controller_refuses_one_broker(drill: FailoverDrill) -> None:
    """The broker that is refused becomes the controller; the other one resigns."""
    controller = drill.controller
    (other, *_) = drill.others(controller)
    pair = other.broker.address, controller.broker.address
    drill.network.refuse(*pair)
    await drill.until_replaced(controller)
    assert drill.controller is other
    drill.network.allow(*pair)
    await drill.until_whole()

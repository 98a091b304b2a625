"""The simulation detects rules of replication that are broken on purpose.

A mutant breaks one rule by patching the product's code in the test process. Its script creates the
moment in which the rule matters, and an invariant or the history of the clients must notice that
the rule is broken. The same script without the mutant finds nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from ottla.broker.fetch_read import FetchRead
from ottla.client.admin.administrator import Admin
from ottla.cluster.znodes import CONTROLLER, parse_controller
from ottla.controller import plan
from ottla.controller.controller import Controller
from ottla.controller.lease import ControllerLease, elect_controller, read_controller
from ottla.coordination.operations import Operation
from ottla.ids import BrokerId
from ottla.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ottla.replication.in_sync_replicas import InSyncReplicas, IsrProposal
from ottla.replication.produce_purgatory import DelayedProduce
from ottla.testing.cluster_faults import Machine
from ottla.testing.cluster_scenario import SESSION_SECONDS, ClusterScenario, run
from ottla.testing.coordination import ADDRESS as COORDINATION
from sampling import sample

PLACE = ("plain", 0)
SEED = 5
PATIENCE_S = 30.0  # virtual


class Drill:
    """The steps of scripts."""

    def __init__(self, scenario: ClusterScenario) -> None:
        self.scenario = scenario
        self.clock = scenario.world.clock
        self.network = scenario.world.network

    def machine(self, broker: BrokerId) -> Machine:
        return next(one for one in self.scenario.faults.machines if one.id == broker)

    @property
    def leader(self) -> Machine:
        return self.machine(self.scenario.checks.state_of(PLACE).leader)

    @property
    def controller(self) -> Machine:
        return self.machine(
            parse_controller(self.scenario.coordination.store.tree.get(CONTROLLER).data)
        )

    @property
    def follower(self) -> Machine:
        """A follower that is not the controller."""
        return next(one for one in self.others(self.leader) if one is not self.controller)

    @property
    def in_sync(self) -> set[BrokerId]:
        return {*self.scenario.checks.state_of(PLACE).in_sync}

    def others(self, *machines: Machine) -> list[Machine]:
        return [one for one in self.scenario.faults.machines if one not in machines]

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                await self.clock.sleep(0.1)

    async def until_whole(self) -> None:
        """Wait until all brokers are in all ISRs."""
        await self.until(
            lambda: all(
                len(one.state.in_sync) == len(self.scenario.faults.machines)
                for one in self.scenario.checks.recorded.values()
            )
        )

    def part(self, one: Machine, *others: Machine) -> Callable[[], None]:
        """Partition brokers; return a function that ends it."""
        pairs = [(one.broker.address, other.broker.address) for other in others]
        for pair in pairs:
            self.network.partition(*pair)

        def heal() -> None:
            for pair in pairs:
                self.network.heal(*pair)

        return heal


async def write(drill: Drill) -> None:
    """Records are acknowledged."""
    await drill.clock.sleep(2.0)


async def follower_is_cut_off(drill: Drill) -> None:
    """A member of the ISR fetches nothing while the others write."""
    await drill.until_whole()
    heal = drill.part(drill.leader, drill.follower)
    await drill.clock.sleep(2.0)
    heal()


async def follower_falls_behind(drill: Drill) -> None:
    """A follower returns after others have written, over a link that is slower than the rest."""
    await drill.until_whole()
    leader, follower = drill.leader, drill.follower
    drill.scenario.faults.kill(follower)
    await drill.until(lambda: follower.id not in drill.in_sync)
    await drill.clock.sleep(2.0)
    pair = frozenset((leader.broker.address, follower.broker.address))
    drill.network.delays_s[pair] = 0.3
    follower.wanted.set()
    await drill.until_whole()
    del drill.network.delays_s[pair]


async def leader_diverges(drill: Drill) -> None:
    """A leader appends what its followers never get, dies, and returns as their follower."""
    await drill.until_whole()
    leader = drill.leader
    heal = drill.part(leader, *drill.others(leader))
    await drill.clock.sleep(2.0)
    drill.scenario.faults.kill(leader)
    heal()
    await drill.until(lambda: drill.leader is not leader)
    await drill.clock.sleep(SESSION_SECONDS)
    leader.wanted.set()
    await drill.clock.sleep(3.0)


async def controller_becomes_a_zombie(drill: Drill) -> None:
    """A controller is replaced before its session ends, while it stores a decision."""
    await drill.until_whole()
    zombie = drill.controller
    follower = drill.leader if drill.leader is not zombie else drill.others(zombie)[0]
    drill.scenario.faults.kill(follower)  # afterwards its partitions have no preferred leader
    await drill.until(lambda: follower.id not in drill.in_sync)
    follower.wanted.set()
    await drill.until_whole()
    scenario, address = drill.scenario, zombie.broker.address
    async with Admin(scenario.config(), **scenario.client("second admin")) as admin:
        await admin.describe_cluster()  # so that it is connected to the controller
        drill.network.partition(address, COORDINATION)
        electing = asyncio.ensure_future(admin.elect_leaders())
        await drill.clock.sleep(1.0)
        client = scenario.coordination.client(
            "10.0.0.99", copy_context(), lambda: True, lambda: False
        )
        session = await client.connect(lambda state: None)
        current = await read_controller(session)
        assert current is not None
        assert current.broker == zombie.id
        lease = await elect_controller(session, follower.id, drill.clock.now_ms(), current)
        assert lease is not None
        drill.network.heal(address, COORDINATION)
        await drill.clock.sleep(1.0)
        await session.close()
        electing.cancel()
    await drill.until(lambda: drill.scenario.coordination.store.tree.exists(CONTROLLER) is not None)


class Proposals:
    """Records the ISR changes that leaders propose, with the controller that got them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[Controller, AlterPartitionRequest]] = []
        alter = Controller.alter_partition

        async def recording(
            controller: Controller, request: AlterPartitionRequest
        ) -> AlterPartitionResponse:
            self.seen.append((controller, request))
            return await alter(controller, request)

        patch.setattr(Controller, "alter_partition", recording)


async def proposal_arrives_twice(drill: Drill, proposals: Proposals) -> None:
    """A leader adds a follower to the ISR and removes it; then the first request arrives again."""
    await drill.until_whole()
    leader, follower = drill.leader, drill.follower
    heal = drill.part(leader, follower)
    await drill.until(lambda: follower.id not in drill.in_sync)
    proposals.seen.clear()
    heal()
    await drill.until_whole()
    adding = _adding(proposals, leader, follower)
    drill.part(leader, follower)
    await drill.until(lambda: follower.id not in drill.in_sync)
    await drill.clock.sleep(2.0)
    assert drill.leader is leader
    assert adding
    for controller, request in adding:
        await controller.alter_partition(request)
    await drill.clock.sleep(0.5)
    heal()


def _adding(
    proposals: Proposals, leader: Machine, follower: Machine
) -> list[tuple[Controller, AlterPartitionRequest]]:
    """Return the proposals of a leader to add a follower to an ISR."""
    return [
        (controller, request)
        for controller, request in proposals.seen
        if request.broker_id == leader.id
        and any(
            follower.id in {state.broker_id for state in one.new_isr_with_epochs}
            for topic in request.topics
            for one in topic.partitions
        )
    ]


# Mutants.


def a2_leader_reports_no_divergence(patch: pytest.MonkeyPatch) -> None:
    """A follower does not learn where its log diverges, and keeps its tail."""

    def nowhere(*args: object) -> bool:
        return False

    patch.setattr(FetchRead, "_is_diverging", nowhere)


def a4_watermark_ignores_followers(patch: pytest.MonkeyPatch) -> None:
    """The high watermark is the log end offset of the leader."""

    def high_watermark(self: InSyncReplicas, current: int, log_end: int, now_s: float) -> int:
        return max(current, log_end)

    patch.setattr(InSyncReplicas, "high_watermark", high_watermark)


def a8_append_is_acknowledged(patch: pytest.MonkeyPatch) -> None:
    """acks=all is answered before the high watermark passes the batch."""
    wait_for: Callable[..., None] = DelayedProduce[Any].wait_for

    def at_once(self: Any, part: Any, condition: Any, *args: Any, **options: Any) -> None:
        wait_for(self, part, condition, *args, **options)
        if condition is part.commit_waiters:
            *_, wait = self._waits
            asyncio.get_running_loop().call_soon(wait.finish, None)

    patch.setattr(DelayedProduce, "wait_for", at_once)


def a10_every_follower_joins(patch: pytest.MonkeyPatch) -> None:
    """A follower joins the ISR with its first fetch, whatever it has fetched."""

    def expand(self: Any, broker_id: BrokerId, high_watermark: int) -> IsrProposal | None:
        if self.proposed is not None or broker_id in self.state.in_sync:
            return None
        return self._proposal((*self.state.in_sync, broker_id))

    patch.setattr(InSyncReplicas, "expand", expand)


def b3_epoch_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    """A controller writes without the check of /controller_epoch."""

    async def commit(self: ControllerLease, operations: list[Operation]) -> None:
        await self.session.multi(operations)

    patch.setattr(ControllerLease, "commit", commit)


def b5_old_partition_epoch_is_accepted(patch: pytest.MonkeyPatch) -> None:
    """A proposal for an earlier state of the partition changes the current one."""
    altered = plan._altered  # pyright: ignore[reportPrivateUsage]

    def of_now(topic: Any, topic_id: Any, asked: Any, *rest: Any) -> Any:
        before = None if topic is None else topic.partition(asked.partition_index)
        if before is not None:
            asked.partition_epoch = max(asked.partition_epoch, before.version)
        return altered(topic, topic_id, asked, *rest)

    patch.setattr(plan, "_altered", of_now)


@dataclass(frozen=True)
class Case:
    """A mutant, the script in which its rule matters, and what must notice it."""

    mutant: Callable[[pytest.MonkeyPatch], None]
    script: Callable[..., Awaitable[None]]
    noticed: str
    records_proposals: bool = False

    def violations(self, patch: pytest.MonkeyPatch) -> list[str]:
        script = self.script
        if self.records_proposals:
            script = partial(script, proposals=Proposals(patch))
        return run(SEED, minutes=0, script=lambda scenario: script(Drill(scenario))).violations


CASES = (
    Case(a2_leader_reports_no_divergence, leader_diverges, "another batch"),
    Case(a4_watermark_ignores_followers, follower_is_cut_off, "of the ISR does not have its batch"),
    Case(a8_append_is_acknowledged, write, "was acknowledged, the high watermark is"),
    Case(a10_every_follower_joins, follower_falls_behind, "of the ISR does not have its batch"),
    Case(b3_epoch_is_not_checked, controller_becomes_a_zombie, "writes in controller epoch"),
    Case(
        b5_old_partition_epoch_is_accepted,
        proposal_arrives_twice,
        "of the ISR does not have its batch",
        records_proposals=True,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.mutant.__name__)
def test_broken_rule_is_detected(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.mutant(monkeypatch)
    found = case.violations(monkeypatch)
    assert any(case.noticed in one for one in found), found[:5]


@pytest.mark.parametrize("case", sample(CASES, 1), ids=lambda case: case.script.__name__)
def test_script_finds_nothing_without_the_mutant(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert case.violations(monkeypatch) == []

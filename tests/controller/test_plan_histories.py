"""Random histories of a small cluster: the plan keeps its invariants, and no acknowledged record.

A model has the logs of the replicas. A record is acknowledged (acks=all) when every ISR member has
it and the ISR has the minimum. Whatever happens, every later leader must have it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.cluster.election import effective_min, is_unclean
from ottla.cluster.image import ClusterImage, PartitionChange, PartitionState, Topic
from ottla.controller.plan import (
    Conditions,
    ElectionType,
    alter_partition,
    alter_reassignment,
    brokers_changed,
    controlled_shutdown,
    directory_failed,
    directory_full,
    elect_leaders,
    min_isr_changed,
    new_partitions,
    preferred_imbalance,
    reassignment_steps,
    with_changes,
)
from ottla.errors import ErrorCode
from ottla.ids import NO_BROKER, BrokerEpoch, BrokerId, PartitionIndex, TopicPartition, Uuid
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)

TOPIC_ID = Uuid(bytes(15) + b"\x01")
BROKERS = tuple(map(BrokerId, (1, 2, 3, 4)))
PARTITION = TopicPartition("t", PartitionIndex(0))

Event = Callable[["Cluster"], None]


@dataclass
class Cluster:
    """One partition on up to four brokers, and the model of its logs."""

    min_isr: int
    unclean: bool
    loses: bool  # whether an unclean stop loses the end of a log
    image: ClusterImage
    alive: set[BrokerId] = field(default_factory=lambda: set(BROKERS))
    down: set[BrokerId] = field(default_factory=set[BrokerId])  # in a controlled shutdown
    was_clean: dict[BrokerId, bool] = field(default_factory=dict[BrokerId, bool])
    offline: set[BrokerId] = field(default_factory=set[BrokerId])  # with a failed directory
    epochs: dict[BrokerId, int] = field(default_factory=lambda: dict.fromkeys(BROKERS, 1))
    logs: dict[BrokerId, list[int]] = field(default_factory=lambda: {one: [] for one in BROKERS})
    fetched: dict[BrokerId, tuple[int, int, int]] = field(  # leader and broker epoch, offset
        default_factory=dict[BrokerId, tuple[int, int, int]]
    )
    acknowledged: set[int] = field(default_factory=set[int])
    incomplete: set[BrokerId] = field(default_factory=set[BrokerId])  # lost records
    records: int = 0
    copies: int = 3  # every acknowledged record had at least as many
    elections: int = 0

    @property
    def state(self) -> PartitionState:
        return self.image.topics["t"].partitions[0]

    @property
    def minimum(self) -> int:
        return effective_min(self.min_isr, len(self.state.replicas))

    def conditions(self) -> Conditions:
        return Conditions(
            frozenset(self.alive),
            lambda topic: self.min_isr,
            lambda topic: self.unclean,
            frozenset(self.down),
            offline={one: [PARTITION] for one in self.offline},
        )

    def store(self, changes: Iterable[PartitionChange]) -> None:
        """Store changes, as the controller does, and check them."""
        for one in changes:
            before, after = one.before, one.after
            assert before == self.state
            assert after.version == before.version + 1
            assert after.leader_epoch >= before.leader_epoch
            if after.leader != before.leader:
                assert after.leader_epoch > before.leader_epoch
                self.elections += 1
            assert after.leader == NO_BROKER or after.leader in after.in_sync
            assert after.in_sync or after.elr or after.last_known_elr
            assert after.leader == NO_BROKER or not after.last_known_elr
            members = {*after.in_sync, *after.elr, *after.adding, *after.removing}
            assert members <= set(after.replicas)
            assert not set(after.in_sync) & set(after.elr)
            if len(after.in_sync) >= effective_min(self.min_isr, len(after.replicas)):
                assert not after.elr
            if is_unclean(before, after) and not self.unclean:
                assert after.last_known_elr == ()
                assert before.last_known_elr == (after.leader,)
            if after.leader not in (NO_BROKER, before.leader):
                assert after.leader in self.alive - self.down - self.offline
            self.image = with_changes(self.image, [one])

    def take_over(self, lost: Sequence[BrokerId] = (), restarted: Sequence[BrokerId] = ()) -> None:
        """Do what a new controller does: plan for the brokers that are alive."""
        conditions = self.conditions()
        changes = brokers_changed(self.image, conditions, lost=lost, restarted=restarted)
        self.store(changes)
        assert brokers_changed(self.image, conditions) == []

    def leads(self) -> bool:
        state = self.state
        return state.leader in self.alive and state.leader not in self.offline

    # The replicas.

    def common(self, broker: BrokerId) -> int:
        """Return up to where a replica has the records of the leader."""
        own, led = self.logs[broker], self.logs[self.state.leader]
        equal = (at for at, (one, other) in enumerate(zip(own, led, strict=False)) if one != other)
        return next(equal, min(len(own), len(led)))

    def fetch(self, broker: BrokerId) -> None:
        state = self.state
        if not self.leads() or broker not in self.alive or broker not in state.replicas:
            return
        if broker not in self.offline and broker != state.leader:
            self.logs[broker] = list(self.logs[state.leader])
            offset = len(self.logs[broker])
            self.fetched[broker] = state.leader_epoch, self.epochs[broker], offset

    def write(self) -> None:
        """Produce a record, and acknowledge it if all ISR members get it."""
        if self.leads() and len(self.state.in_sync) >= self.minimum:
            self.records += 1
            self.logs[self.state.leader].append(self.records)
            for broker in self.state.in_sync:
                self.fetch(broker)
            self.acknowledge()

    def acknowledge(self) -> None:
        if self.leads() and len(self.state.in_sync) >= self.minimum:
            watermark = min(self.common(one) for one in self.state.in_sync)
            self.acknowledged.update(self.logs[self.state.leader][:watermark])
            self.copies = min(self.copies, self.minimum)

    def propose(self, in_sync: Sequence[BrokerId]) -> ErrorCode:
        state = self.state
        asked = PartitionData(
            partition_index=0,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.version,
            new_isr_with_epochs=[
                BrokerState(broker_id=one, broker_epoch=self.fetched.get(one, (0, -1, 0))[1])
                for one in in_sync
            ],
        )
        request = AlterPartitionRequest(
            broker_id=state.leader,
            broker_epoch=self.epochs[state.leader],
            topics=[TopicData(topic_id=TOPIC_ID, partitions=[asked])],
        )
        epochs = {one: BrokerEpoch(self.epochs[one]) for one in self.alive}
        outcomes = alter_partition(self.image, request, self.conditions(), epochs)
        assert not isinstance(outcomes, ErrorCode)
        if outcomes[0].change is not None:
            assert outcomes[0].change.after.leader_epoch == state.leader_epoch
            self.store([outcomes[0].change])
        return outcomes[0].error

    def expand(self, broker: BrokerId) -> None:
        """Propose a follower because of its last fetch, which may be from before its restart."""
        state = self.state
        if not self.leads() or broker in state.in_sync or broker not in state.replicas:
            return
        epoch, _, offset = self.fetched.get(broker, (-1, -1, 0))
        log = self.logs[state.leader]
        is_caught_up = epoch == state.leader_epoch and not self.acknowledged & set(log[offset:])
        if is_caught_up and self.propose((*state.in_sync, broker)) is ErrorCode.NONE:
            self.incomplete.discard(broker)

    def follow(self, broker: BrokerId) -> None:
        self.fetch(broker)
        self.expand(broker)

    def shrink(self, broker: BrokerId) -> None:
        state = self.state
        if self.leads() and broker in state.in_sync and broker != state.leader:
            assert self.propose([one for one in state.in_sync if one != broker]) is ErrorCode.NONE

    # The brokers.

    def kill(self, broker: BrokerId) -> None:
        if broker not in self.alive:
            return
        if self.loses and broker in self.state.replicas:
            if len(self.incomplete | {broker}) >= self.copies:
                return  # more than the cluster must survive
            self.incomplete.add(broker)
            del self.logs[broker][self.records // 2 :]
        self.was_clean[broker] = False
        self.alive.remove(broker)
        self.down.discard(broker)

    def stop(self, broker: BrokerId) -> None:
        if broker not in self.alive:
            return
        self.down.add(broker)
        plan = controlled_shutdown(self.image, self.conditions(), broker)
        self.store(plan.changes)
        if not plan.remaining:
            self.alive.remove(broker)
            self.down.remove(broker)
            self.was_clean[broker] = True

    def start(self, broker: BrokerId) -> None:
        if broker in self.alive:
            return
        self.alive.add(broker)
        self.offline.discard(broker)
        self.epochs[broker] += 1
        lost = () if self.was_clean[broker] else (broker,)
        self.take_over(lost, (broker,))

    def bounce(self, broker: BrokerId) -> None:
        """Kill a broker that registers again before the controller sees that it is gone."""
        self.kill(broker)
        self.start(broker)

    def fail_directory(self, broker: BrokerId) -> None:
        if broker in self.alive and broker not in self.offline:
            self.offline.add(broker)
            conditions = self.conditions()
            self.store(directory_failed(self.image, conditions, broker, [PARTITION]))

    def fill_directory(self, broker: BrokerId) -> None:
        self.store(directory_full(self.image, self.conditions(), broker, [PARTITION]))

    # The administrator.

    def set_min_isr(self, value: int) -> None:
        if self.loses:
            return  # the fault budget is the lowest minimum
        self.min_isr = value
        self.store(min_isr_changed(self.image, self.conditions(), ["t"]))

    def elect(self, kind: ElectionType) -> None:
        if kind is ElectionType.UNCLEAN and not self.unclean:
            return
        outcomes = elect_leaders(self.image, self.conditions(), kind, [PARTITION])
        self.store(one.change for one in outcomes if one.change is not None)

    def reassign(self, target: Sequence[int] | None) -> None:
        outcome = alter_reassignment(self.image, self.conditions(), PARTITION, target)
        if outcome.change is not None:
            self.store([outcome.change])
        self.delete(outcome.delete)

    def advance(self) -> None:
        for one in reassignment_steps(self.image, self.conditions(), [PARTITION]):
            self.delete(one.delete)
            self.store([one.change])

    def delete(self, brokers: Iterable[BrokerId]) -> None:
        for broker in brokers:
            self.logs[broker] = []

    def check(self) -> None:
        """Check that each broker that leads, or may lead next, has every acknowledged record."""
        if not self.unclean:
            for one in {*self.state.in_sync, *self.state.elr} & self.alive:
                assert self.acknowledged <= set(self.logs[one]), (one, self.state)


@dataclass(frozen=True)
class On:
    """An event on one broker."""

    broker: BrokerId
    event: Callable[[Cluster, BrokerId], None]

    def __call__(self, cluster: Cluster) -> None:
        self.event(cluster, self.broker)


def of_brokers(times: int, *events: Callable[[Cluster, BrokerId], None]) -> list[Event]:
    return [On(broker, event) for event in events for broker in BROKERS for _ in range(times)]


# One tuple per kind of history: what happens, as often as it is listed.
FAILURES: list[Event] = [
    *of_brokers(3, Cluster.kill, Cluster.start),
    *of_brokers(1, Cluster.stop),
    *of_brokers(2, Cluster.shrink, Cluster.expand),
    *of_brokers(1, Cluster.fail_directory, Cluster.fill_directory),
    *of_brokers(2, Cluster.follow, Cluster.bounce),
    *[Cluster.write, Cluster.take_over] * 8,
    *(partial(Cluster.elect, kind=kind) for kind in ElectionType),
    *(partial(Cluster.set_min_isr, value=value) for value in (1, 2, 3)),
]
TARGETS = [(2, 3, 4), (4, 3), (1,), (4,), (3, 1, 2), (1, 2), None]
REASSIGNMENTS: list[Event] = [
    *FAILURES,
    *(partial(Cluster.reassign, target=target) for target in TARGETS),
    *[Cluster.advance] * 10,
    *of_brokers(2, Cluster.follow),
]


@settings(max_examples=120)
@given(
    st.sampled_from([1, 2, 2, 2, 3]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([(1, 2, 3), (1, 2, 3), (3, 2, 1), (2, 1), (3,)]),
    st.one_of(
        st.lists(st.sampled_from(FAILURES), min_size=20, max_size=60),
        st.lists(st.sampled_from(REASSIGNMENTS), min_size=20, max_size=60),
    ),
)
def test_a14_every_leader_has_the_acknowledged_records(
    min_isr: int, unclean: bool, loses: bool, replicas: tuple[int, ...], events: list[Event]
) -> None:
    topic = Topic("t", TOPIC_ID, (PartitionState(tuple(map(BrokerId, replicas))),))
    cluster = Cluster(min_isr, unclean, loses, ClusterImage("c").with_topics([topic]))
    cluster.store(new_partitions(cluster.image, cluster.conditions()))
    for event in events:
        event(cluster)
        cluster.check()
    # When all brokers are back and follow, the partition is as it was meant to be.
    cluster.offline.clear()
    cluster.down.clear()
    for broker in BROKERS:
        cluster.start(broker)
    cluster.take_over()
    cluster.check()
    assert cluster.state.leader != NO_BROKER
    for _ in range(5):
        for broker in cluster.state.replicas:
            cluster.follow(broker)
        cluster.advance()
        cluster.check()
    assert set(cluster.state.in_sync) == set(cluster.state.replicas)
    assert (cluster.state.adding, cluster.state.removing, cluster.state.elr) == ((), (), ())
    cluster.store(preferred_imbalance(cluster.image, cluster.conditions(), percentage=0))
    assert cluster.state.leader == cluster.state.replicas[0]
    cluster.check()

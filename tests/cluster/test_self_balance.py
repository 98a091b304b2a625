"""When the controller balances by itself: observations and plans in, steps out."""

from collections.abc import Iterable

from ottla.cluster.balance import BalancePlan, ReplicaMove
from ottla.cluster.image import Address, Broker, ClusterImage, PartitionState, Topic
from ottla.cluster.self_balance import (
    GAIN_MIN,
    BalanceConfig,
    Observation,
    SelfBalance,
    Step,
    observe,
    still_valid,
)
from ottla.ids import NO_BROKER, ZERO_UUID, BrokerEpoch, BrokerId

CONFIG = BalanceConfig(stable_s=100, together=2)


def seen(
    brokers: int = 3, *, is_whole: bool = True, reassigning: Iterable[int] = ()
) -> Observation:
    epochs = {BrokerId(one): BrokerEpoch(10 + one) for one in range(1, brokers + 1)}
    return Observation(epochs, is_whole, frozenset(("t", one) for one in reassigning))


def move(
    index: int, before: tuple[int, ...], after: tuple[int, ...], size: int = 10
) -> ReplicaMove:
    return ReplicaMove("t", index, tuple(map(BrokerId, before)), tuple(map(BrokerId, after)), size)


def plan(*moves: ReplicaMove, gain: int = 1000) -> BalancePlan:
    return BalancePlan(moves, {}, {}, (), (gain, 0))


COPIES = tuple(move(index, (1, 2), (4, 2)) for index in range(5))


def planned(*moves: ReplicaMove) -> SelfBalance:
    """Return a balance with a plan, at 100 s."""
    balance = SelfBalance(0.0)
    balance.step(0.0, seen(), CONFIG)
    assert balance.step(100.0, seen(), CONFIG) == Step(measures=True)
    assert not balance.planned(plan(*moves)), "needed once"
    assert balance.step(100.0, seen(), CONFIG) == Step(measures=True)
    assert balance.planned(plan(*moves)), "needed twice"
    return balance


def test_loads_are_measured_once_the_cluster_is_stable() -> None:
    balance = SelfBalance(0.0)
    assert balance.step(0.0, seen(), CONFIG) == Step()
    assert balance.step(99.0, seen(), CONFIG) == Step()
    assert balance.step(100.0, seen(4), CONFIG) == Step(), "a broker came"
    assert balance.step(199.0, seen(4), CONFIG) == Step()
    assert balance.step(200.0, seen(4, is_whole=False), CONFIG) == Step()
    assert balance.step(299.0, seen(4), CONFIG) == Step()
    assert balance.step(300.0, seen(4, reassigning=[0]), CONFIG) == Step(), "of somebody else"
    assert balance.step(399.0, seen(4), CONFIG) == Step()
    assert balance.step(400.0, seen(4), CONFIG) == Step(measures=True)


def test_restarted_broker_is_a_change() -> None:
    balance = SelfBalance(0.0)
    balance.step(0.0, seen(), CONFIG)
    again = Observation({**seen().brokers, BrokerId(3): BrokerEpoch(99)}, True, frozenset())
    assert balance.step(100.0, again, CONFIG) == Step()
    assert balance.step(200.0, again, CONFIG) == Step(measures=True)


def test_moves_begin_a_few_at_a_time() -> None:
    balance = planned(*COPIES)
    assert balance.step(101.0, seen(), CONFIG) == Step(begin=COPIES[:2])
    assert balance.step(102.0, seen(reassigning=[0, 1]), CONFIG) == Step()
    # Their first replica has changed, so they get another leader.
    assert balance.step(103.0, seen(reassigning=[1]), CONFIG) == Step((("t", 0),), COPIES[2:3])
    assert balance.pending == 4
    assert balance.step(104.0, seen(), CONFIG) == Step((("t", 1), ("t", 2)), COPIES[3:])
    assert balance.step(105.0, seen(), CONFIG) == Step((("t", 3), ("t", 4)), completed=True)
    assert balance.pending == 0
    assert balance.step(106.0, seen(), CONFIG) == Step(), "the new loads have to show"
    assert balance.step(205.0, seen(), CONFIG) == Step(measures=True)


def test_leaders_move_before_replicas() -> None:
    free = tuple(move(index, (1, 2), (2, 1)) for index in (5, 6, 7))
    balance = planned(*COPIES, *free)
    assert balance.step(101.0, seen(), CONFIG) == Step(begin=free)
    step = balance.step(102.0, seen(), CONFIG)
    assert step == Step(tuple(one.key for one in free), COPIES[:2])


def test_moves_wait_while_a_replica_is_not_in_sync() -> None:
    balance = planned(*COPIES)
    assert balance.step(101.0, seen(is_whole=False), CONFIG) == Step()
    assert balance.step(102.0, seen(), CONFIG) == Step(begin=COPIES[:2])
    assert balance.step(103.0, seen(is_whole=False, reassigning=[0, 1]), CONFIG) == Step()
    assert balance.step(104.0, seen(reassigning=[0, 9]), CONFIG) == Step(), "of somebody else"
    assert balance.step(105.0, seen(), CONFIG).begin == COPIES[2:4]


def test_plan_is_dropped_when_a_broker_comes_or_goes() -> None:
    balance = planned(*COPIES)
    balance.step(101.0, seen(), CONFIG)
    assert balance.step(102.0, seen(2, reassigning=[0, 1]), CONFIG) == Step(dropped=3)
    assert balance.step(103.0, seen(2), CONFIG) == Step((("t", 0), ("t", 1)), completed=True)
    assert balance.step(203.0, seen(2), CONFIG) == Step(measures=True)


def test_refused_moves_are_forgotten() -> None:
    balance = planned(*COPIES[:2])
    balance.step(101.0, seen(), CONFIG)
    balance.refused([("t", 0), ("t", 1)])
    assert balance.pending == 0
    assert balance.step(102.0, seen(), CONFIG).begin == ()


def test_small_gain_moves_nothing() -> None:
    balance = SelfBalance(0.0)
    for _ in range(3):
        assert not balance.planned(plan(*COPIES, gain=GAIN_MIN - 1))
    free = plan(move(0, (1, 2), (2, 1)), gain=0)
    assert not balance.planned(free)
    assert balance.planned(free), "leaders cost nothing"
    assert not balance.planned(plan())


def test_peak_moves_nothing() -> None:
    balance = SelfBalance(0.0)
    for one in (plan(*COPIES), plan(), plan(*COPIES), plan()):
        assert not balance.planned(one)


def test_stopped_balance_begins_no_moves() -> None:
    balance = planned(*COPIES)
    balance.step(101.0, seen(), CONFIG)
    assert balance.stop() == 3
    assert balance.step(102.0, seen(), CONFIG).begin == ()


def state(
    *replicas: int, leader: int = 1, in_sync: tuple[int, ...] | None = None
) -> PartitionState:
    ids = tuple(map(BrokerId, replicas))
    synced = ids if in_sync is None else tuple(map(BrokerId, in_sync))
    return PartitionState(ids, BrokerId(leader), in_sync=synced, version=1)


def image(*states: PartitionState) -> ClusterImage:
    brokers = [Broker(BrokerId(one), BrokerEpoch(one), {"X": Address("h", one)}) for one in (1, 2)]
    made = ClusterImage("c").with_brokers(brokers, BrokerId(1))
    return made.with_topics([Topic("t", ZERO_UUID, states)])


def test_observation_of_an_image() -> None:
    copying = PartitionState(
        (BrokerId(1), BrokerId(2)), BrokerId(1), in_sync=(BrokerId(1),), version=1,
        adding=(BrokerId(2),),
    )  # fmt: skip
    never_led = PartitionState((BrokerId(1),))
    found = observe(image(state(1, 2), copying, never_led))
    epochs = {BrokerId(one): BrokerEpoch(one) for one in (1, 2)}
    assert found == Observation(epochs, True, frozenset({("t", 1)}))
    assert not observe(image(state(1, 2, in_sync=(1,)))).is_whole
    assert not observe(image(state(1, leader=NO_BROKER))).is_whole


def test_move_of_a_partition_that_has_changed_is_not_valid() -> None:
    moves = [move(0, (1, 2), (2, 1)), move(1, (1, 2), (2, 1)), move(2, (1, 2), (2, 1))]
    assert still_valid(image(state(1, 2), state(2, 1)), moves) == moves[:1]

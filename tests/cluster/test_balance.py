"""Plans for balanced brokers: what every plan keeps, and what it reaches."""

from collections import Counter
from collections.abc import Sequence
from math import ceil

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.cluster.balance import (
    GOAL,
    BalancePlan,
    BrokerPlace,
    CannotPlan,
    PartitionSize,
    plan_balance,
    plan_drain,
    plan_factor,
)
from ottla.ids import BrokerId


def brokers_of(count: int, racks: int = 0, leaving: Sequence[int] = ()) -> list[BrokerPlace]:
    return [
        BrokerPlace(BrokerId(one), f"r{one % racks}" if racks else None, one in leaving)
        for one in range(1, count + 1)
    ]


def partition(index: int, replicas: Sequence[int], size: int = 0) -> PartitionSize:
    return PartitionSize("t", index, tuple(map(BrokerId, replicas)), size)


def applied(partitions: Sequence[PartitionSize], plan: BalancePlan) -> list[PartitionSize]:
    after = {(one.topic, one.index): one.after for one in plan.moves}
    return [
        PartitionSize(
            one.topic, one.index, after.get((one.topic, one.index), one.replicas), one.size_bytes
        )
        for one in partitions
    ]


def excess(plan: BalancePlan, brokers: Sequence[BrokerPlace], *, after: bool) -> float:
    """Return the bytes above the goal, of the brokers that stay."""
    loads = plan.after if after else plan.before
    sizes = [loads[one.id].size_bytes for one in brokers if not one.is_leaving]
    limit = GOAL * sum(sizes) / len(sizes)
    return sum(max(0.0, one - limit) for one in sizes)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[BrokerPlace], list[PartitionSize]]:
    count = draw(st.integers(2, 7))
    brokers = brokers_of(count, draw(st.integers(0, 3)))
    ids = [one.id for one in brokers]
    # Brokers above `used` are new: they have no replicas yet.
    used = draw(st.integers(1, count))
    rows = draw(
        st.lists(
            st.tuples(st.integers(1, min(3, used)), st.randoms(), st.integers(0, 1000)), max_size=30
        )
    )
    partitions = [
        partition(index, random.sample(ids[:used], factor), size)
        for index, (factor, random, size) in enumerate(rows)
    ]
    return brokers, partitions


def racks_of(brokers: Sequence[BrokerPlace], replicas: Sequence[int]) -> int:
    racks = {one.id: one.rack for one in brokers}
    return len({racks[BrokerId(one)] for one in replicas})


@given(clusters(), st.floats(1, 2))
def test_plan_keeps_factors_and_racks(
    cluster: tuple[list[BrokerPlace], list[PartitionSize]], goal: float
) -> None:
    brokers, partitions = cluster
    plan = plan_balance(brokers, partitions, goal)
    known = {one.id for one in brokers}
    for move in plan.moves:
        assert len({*move.after}) == len(move.before)
        assert {*move.after} <= known
        assert move.after != move.before
        assert racks_of(brokers, move.after) >= racks_of(brokers, move.before)
    after = applied(partitions, plan)
    held = Counter(broker for one in after for broker in one.replicas)
    leaders = Counter(one.replicas[0] for one in after)
    for broker, load in plan.after.items():
        assert (load.replicas, load.leaders) == (held[broker], leaders[broker])
    assert plan.moved_bytes == sum(one.size_bytes * len(one.adding) for one in plan.moves)


# Leaders move with their replicas, which lets more bytes move.
LEADERS_THEN_BYTES = [
    partition(0, [1], 1),
    partition(1, [1], 61),
    partition(2, [1, 2], 252),
    partition(3, [2], 251),
    partition(4, [1, 2], 252),
    partition(5, [1, 2], 252),
]


@given(clusters())
@example((brokers_of(7), LEADERS_THEN_BYTES))
def test_plan_never_makes_it_worse_and_is_stable(
    cluster: tuple[list[BrokerPlace], list[PartitionSize]],
) -> None:
    brokers, partitions = cluster
    plan = plan_balance(brokers, partitions)
    assert excess(plan, brokers, after=True) <= excess(plan, brokers, after=False) + 1e-6
    most = max(one.leaders for one in plan.after.values())
    mean = len(partitions) / len(brokers)
    was = max(one.leaders for one in plan.before.values())
    if plan.moved_bytes == 0:  # a replica that moves for its bytes can take its leader along
        assert most <= max(was, ceil(mean), GOAL * mean)
    assert plan_balance(brokers, applied(partitions, plan)).moves == ()


@given(clusters(), st.data())
def test_drained_broker_keeps_nothing(
    cluster: tuple[list[BrokerPlace], list[PartitionSize]], data: st.DataObject
) -> None:
    brokers, partitions = cluster
    leaving = data.draw(st.sampled_from([one.id for one in brokers]))
    marked = [BrokerPlace(one.id, one.rack, one.id == leaving) for one in brokers]
    if any(len(one.replicas) >= len(brokers) for one in partitions if leaving in one.replicas):
        with pytest.raises(CannotPlan, match="add a broker"):
            plan_drain(marked, partitions)
        return
    plan = plan_drain(marked, partitions)
    assert plan.after[leaving].replicas == 0
    assert {(one.topic, one.index) for one in plan.moves} == {
        (one.topic, one.index) for one in partitions if leaving in one.replicas
    }
    assert all(one.removing == (leaving,) for one in plan.moves)


@pytest.mark.parametrize("factor", [1, 3])
def test_new_broker_gets_no_more_than_the_goal_needs(factor: int) -> None:
    brokers, size = brokers_of(4), 10
    partitions = [
        partition(index, [1 + (index + place) % 3 for place in range(factor)], size)
        for index in range(300)
    ]
    plan = plan_balance(brokers, partitions)
    assert excess(plan, brokers, after=True) == 0
    # What the three brokers have above the goal, and at most one partition more for each.
    assert plan.moved_bytes <= excess(plan, brokers, after=False) + 3 * size
    most = max(one.leaders for one in plan.after.values())
    assert most <= GOAL * len(partitions) / 4


def test_small_replicas_go_before_a_large_one() -> None:
    partitions = [partition(0, [1], 100), *(partition(one, [1], 5) for one in range(1, 5))]
    plan = plan_balance(brokers_of(2), partitions)
    assert plan.moved_bytes == 20
    assert plan.after[BrokerId(1)].size_bytes == 100


def test_leaders_change_without_moving_bytes() -> None:
    partitions = [partition(index, [1, 2, 3], 10) for index in range(9)]
    plan = plan_balance(brokers_of(3), partitions)
    assert plan.moved_bytes == 0
    assert [one.leaders for one in plan.after.values()] == [3, 3, 3]


def test_leader_goes_over_a_third_broker() -> None:
    # Broker 1 and broker 3 share no partition: 1 hands over to 2, and 2 to 3.
    partitions = [
        *(partition(index, [1, 2], 10) for index in range(3)),
        partition(3, [2, 3], 10),
        partition(4, [3, 2], 10),
    ]
    plan = plan_balance(brokers_of(3), partitions, goal=1.5)
    assert plan.moved_bytes == 0
    assert max(one.leaders for one in plan.after.values()) == 2


def test_replicas_of_a_drained_broker_go_to_another_rack() -> None:
    brokers = brokers_of(4, racks=2, leaving=[3])  # odd brokers are in r1, even ones in r0
    plan = plan_drain(brokers, [partition(0, [2, 3], 10)])
    assert [one.after for one in plan.moves] == [(2, 1)]


def test_factor_is_raised_over_racks_and_lowered_without_the_leader() -> None:
    brokers = brokers_of(4, racks=2)
    partitions = [partition(0, [2], 10), partition(1, [2, 4, 1], 10)]
    raised = plan_factor(brokers, partitions, [("t", 0)], 2)
    assert [one.after for one in raised.moves] == [(2, 3)]
    lowered = plan_factor(brokers, partitions, [("t", 1)], 2)
    assert [one.after for one in lowered.moves] == [(2, 1)]
    with pytest.raises(CannotPlan):
        plan_factor(brokers, partitions, [("t", 0)], 5)


def test_lower_goal_gives_a_new_broker_its_share() -> None:
    partitions = [partition(index, [1 + index % 10], 10) for index in range(1100)]
    brokers = brokers_of(11)
    assert plan_balance(brokers, partitions).moves == ()
    plan = plan_balance(brokers, partitions, goal=1.0)
    assert {one.size_bytes for one in plan.after.values()} == {1000}
    assert plan.moved_bytes == 1000

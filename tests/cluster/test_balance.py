"""Plans for balanced brokers: what every plan keeps, and what it reaches."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import permutations, product
from math import ceil, floor

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from ottla.cluster.balance import (
    GOAL,
    BalancePlan,
    BrokerPlace,
    CannotPlan,
    Measure,
    PartitionLoad,
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


def partition(
    index: int, replicas: Sequence[int], size: int = 0, bytes_in: int = 0, bytes_out: int = 0
) -> PartitionLoad:
    return PartitionLoad("t", index, tuple(map(BrokerId, replicas)), size, bytes_in, bytes_out)


def applied(partitions: Sequence[PartitionLoad], plan: BalancePlan) -> list[PartitionLoad]:
    after = {(one.topic, one.index): one.after for one in plan.moves}
    return [
        replace(one, replicas=after.get((one.topic, one.index), one.replicas)) for one in partitions
    ]


def excess(plan: BalancePlan, brokers: Sequence[BrokerPlace], *, after: bool) -> float:
    """Return the bytes above the goal, of the brokers that stay."""
    loads = plan.after if after else plan.before
    sizes = [loads[one.id].size_bytes for one in brokers if not one.is_leaving]
    limit = GOAL * sum(sizes) / len(sizes)
    return sum(max(0.0, one - limit) for one in sizes)


LOADS = st.integers(0, 1000)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[BrokerPlace], list[PartitionLoad]]:
    count = draw(st.integers(2, 7))
    brokers = brokers_of(count, draw(st.integers(0, 3)))
    ids = [one.id for one in brokers]
    # Brokers above `used` are new: they have no replicas yet.
    used = draw(st.integers(1, count))
    rows = draw(
        st.lists(
            st.tuples(st.integers(1, min(3, used)), st.randoms(), LOADS, LOADS, LOADS), max_size=30
        )
    )
    partitions = [
        partition(index, random.sample(ids[:used], factor), *loads)
        for index, (factor, random, *loads) in enumerate(rows)
    ]
    return brokers, partitions


def racks_of(brokers: Sequence[BrokerPlace], replicas: Sequence[int]) -> int:
    racks = {one.id: one.rack for one in brokers}
    return len({racks[BrokerId(one)] for one in replicas})


@given(clusters(), st.floats(1, 2))
def test_plan_keeps_factors_and_racks(
    cluster: tuple[list[BrokerPlace], list[PartitionLoad]], goal: float
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
    cluster: tuple[list[BrokerPlace], list[PartitionLoad]],
) -> None:
    brokers, partitions = cluster
    plan = plan_balance(brokers, partitions, traffic_min=0)
    before, after = plan.goals_missed
    assert after <= before
    if not any(one.bytes_in or one.bytes_out for one in partitions):
        assert excess(plan, brokers, after=True) <= excess(plan, brokers, after=False) + 1e-6
    if before == after == 0:  # a replica that moves for its bytes can take its leader along
        most = limits(len(brokers), partitions)[Measure.LEADERS]
        now, was = (
            sum(max(0, one.leaders - most) for one in loads.values())
            for loads in (plan.after, plan.before)
        )
        assert now <= was
    assert plan_balance(brokers, applied(partitions, plan), traffic_min=0).moves == ()


def limits(brokers: int, partitions: Sequence[PartitionLoad]) -> list[float]:
    """Return the highest loads that meet the goal, by measure."""
    sizes = sum(one.size_bytes * len(one.replicas) for one in partitions)
    bytes_in = sum(one.bytes_in * len(one.replicas) for one in partitions)
    bytes_out = sum(one.bytes_out + one.bytes_in * (len(one.replicas) - 1) for one in partitions)
    leaders = len(partitions) / brokers
    return [
        *(GOAL * total / brokers for total in (sizes, bytes_in, bytes_out)),
        max(ceil(leaders), floor(GOAL * leaders)),
    ]


def assignments(
    brokers: Sequence[BrokerPlace], partitions: Sequence[PartitionLoad]
) -> Iterator[tuple[tuple[BrokerId, ...], ...]]:
    """Return every assignment that keeps the factors and the racks."""
    ids = [one.id for one in brokers]
    return product(
        *(
            [
                some
                for some in permutations(ids, len(one.replicas))
                if racks_of(brokers, some) >= racks_of(brokers, one.replicas)
            ]
            for one in partitions
        )
    )


def meets_goal(
    limit: Sequence[float], partitions: Sequence[PartitionLoad], chosen: Sequence[Sequence[int]]
) -> bool:
    loads: dict[tuple[int, int], int] = Counter()
    for one, replicas in zip(partitions, chosen, strict=True):
        for broker in replicas:
            loads[broker, Measure.SIZE] += one.size_bytes
            loads[broker, Measure.IN] += one.bytes_in
        loads[replicas[0], Measure.OUT] += one.bytes_out + one.bytes_in * (len(replicas) - 1)
        loads[replicas[0], Measure.LEADERS] += 1
    return all(load <= limit[measure] + 1e-6 for (_, measure), load in loads.items())


@st.composite
def small_clusters(draw: st.DrawFn) -> tuple[list[BrokerPlace], list[PartitionLoad]]:
    brokers = brokers_of(3, draw(st.integers(0, 2)))
    used = draw(st.integers(1, 3))
    count = draw(st.integers(1, 4))
    few = st.integers(0, 6).map(lambda one: 10 * one)
    partitions = [
        partition(
            index,
            draw(st.permutations(range(1, used + 1)))[: draw(st.integers(1, min(2, used)))],
            draw(few),
            draw(few),
            draw(few),
        )
        for index in range(count)
    ]
    return brokers, partitions


@given(small_clusters())
def test_plan_of_a_small_cluster_copies_the_fewest_bytes(
    cluster: tuple[list[BrokerPlace], list[PartitionLoad]],
) -> None:
    brokers, partitions = cluster
    limit = limits(len(brokers), partitions)
    best = min(
        (
            sum(
                one.size_bytes * len({*replicas} - {*one.replicas})
                for one, replicas in zip(partitions, chosen, strict=True)
            )
            for chosen in assignments(brokers, partitions)
            if meets_goal(limit, partitions, chosen)
        ),
        default=None,
    )
    plan = plan_balance(brokers, partitions, traffic_min=0)
    after = [one.replicas for one in applied(partitions, plan)]
    assert (best is not None) == (not plan.above) == meets_goal(limit, partitions, after)
    if best is not None:
        assert plan.moved_bytes == best


def test_leaders_move_before_replicas_when_a_broker_sends_too_much() -> None:
    # Broker 1 leads the partitions with many consumers; every broker has the same replicas.
    partitions = [
        partition(index, [1 + (index + place) % 3 for place in range(3)], 10**9, 0, out)
        for index, out in enumerate([9, 1, 1] * 10)
    ]
    plan = plan_balance(brokers_of(3), partitions, traffic_min=0)
    assert plan.moves
    assert plan.moved_bytes == 0
    assert not plan.above
    assert max(one.bytes_out for one in plan.after.values()) <= GOAL * 110 / 3


def test_traffic_moves_on_the_smallest_replicas() -> None:
    # Each partition of broker 1 has the same traffic; two have few bytes.
    sizes = [900, 10, 900, 20, 900, 900]
    partitions = [
        *(partition(index, [1], size, 60) for index, size in enumerate(sizes)),
        *(partition(6 + index, [2], 900, 15) for index in range(4)),
    ]
    plan = plan_balance(brokers_of(2), partitions, traffic_min=0)
    assert [one.key for one in plan.moves if one.adding == (2,)] == [("t", 1), ("t", 3)]
    assert plan.moved_bytes == 30


def test_little_traffic_needs_no_balance() -> None:
    partitions = [partition(0, [1], 10, 90_000), partition(1, [2], 10, 0)]
    assert plan_balance(brokers_of(2), partitions).moves == ()


def test_plan_names_the_reason_of_a_load_above_the_goal() -> None:
    plan = plan_balance(brokers_of(2), [partition(0, [1], 100), partition(1, [2], 10)])
    (above,) = plan.above
    assert (above.broker, above.measure, above.load, above.limit) == (1, Measure.SIZE, 100, 66)
    assert above.reason == "t-0 alone exceeds the goal: add partitions to its topic"
    racks = [
        BrokerPlace(BrokerId(1), "a"),
        BrokerPlace(BrokerId(2), "b"),
        BrokerPlace(BrokerId(3), "b"),
    ]
    partitions = [partition(index, [1, 2 + index % 2], 10) for index in range(8)]
    plan = plan_balance(racks, partitions)
    assert [(one.broker, one.reason) for one in plan.above] == [
        (1, "no other broker of the same rack has room for one of its replicas")
    ]


def test_fixed_broker_keeps_its_replicas_and_counts_for_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    places = [BrokerPlace(BrokerId(one), rack, is_fixed=one == 3) for one, rack in racks.items()]
    partitions = [partition(index, [1, 3], 10) for index in range(6)]
    # In rack b, where broker 3 has them, the partitions must not get their other replica.
    only_rack_b = [one for one in places if one.id != 2]
    assert plan_balance(only_rack_b, partitions).moves == ()
    plan = plan_balance(places, partitions)
    assert [one.after for one in plan.moves] == [(2, 3)] * 3
    assert BrokerId(3) not in plan.after


def test_replicas_stay_on_different_machines() -> None:
    brokers = [BrokerPlace(BrokerId(one), None, machine=f"m{one % 2}") for one in range(1, 5)]
    partitions = [partition(index, [1, 2], 10) for index in range(40)]
    plan = plan_balance(brokers, partitions)
    assert plan.moves
    assert all(sum(one.after) % 2 for one in plan.moves), "one of them odd, the other even"


@given(clusters(), st.data())
def test_drained_broker_keeps_nothing(
    cluster: tuple[list[BrokerPlace], list[PartitionLoad]], data: st.DataObject
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

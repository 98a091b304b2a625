"""Reassignments: the steps, and that they can be resumed from the stored state."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cluster.election import change_in_sync, elect_after_departure, is_unclean
from ottla.cluster.image import PartitionState
from ottla.cluster.reassignment import (
    StepKind,
    begin_reassignment,
    can_join,
    cancel_reassignment,
    is_reassigning,
    next_step,
    original_of,
    target_of,
)
from ottla.errors import ErrorCode, RequestError
from ottla.ids import NO_BROKER, BrokerId, LeaderEpoch


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


ALL = ids(1, 2, 3, 4, 5, 6)


def stored(*replicas: int, leader: int | None = None, isr: Iterable[int] = ()) -> PartitionState:
    """Return a stored state; by default all replicas are in sync and the first leads."""
    return PartitionState(
        ids(*replicas),
        BrokerId(replicas[0] if leader is None else leader),
        LeaderEpoch(5),
        ids(*(isr or replicas)),
        7,
    )


def step(
    state: PartitionState, electable: Iterable[BrokerId] = ALL, min_isr: int = 1
) -> tuple[StepKind, PartitionState] | None:
    found = next_step(state, electable=tuple(electable), min_isr=min_isr)
    return None if found is None else (found.kind, found.after)


def joined(state: PartitionState, *brokers: int) -> PartitionState:
    return change_in_sync(state, state.in_sync + ids(*brokers), min_isr=1)


def test_a15_replicas_are_added_first() -> None:
    grown = begin_reassignment(stored(1, 2, 3), ids(4, 2, 5))
    assert grown.replicas == (4, 2, 5, 1, 3)
    assert (grown.adding, grown.removing) == ((4, 5), (1, 3))
    assert (grown.leader, grown.in_sync) == (1, (1, 2, 3))
    assert (grown.leader_epoch, grown.version) == (6, 8)
    assert (target_of(grown), original_of(grown)) == ((4, 2, 5), (2, 1, 3))


def test_a15_reassignment_waits_for_every_new_replica() -> None:
    grown = begin_reassignment(stored(1, 2), ids(3, 4))
    assert step(grown) is None
    assert step(joined(grown, 3)) is None
    assert step(joined(grown, 3, 4)) is not None


def test_a15_reassignment_waits_for_the_minimum_of_the_target() -> None:
    grown = joined(begin_reassignment(stored(1, 2, 3, isr=[1, 3]), ids(1, 2, 4)), 4)
    assert grown.in_sync == (1, 3, 4)  # broker 2 stays and is not in sync
    assert step(grown, min_isr=3) is None
    assert step(grown, min_isr=2) is not None
    # The minimum of the target: three replicas cannot have four members in sync.
    assert step(joined(grown, 2), min_isr=4) is not None


def test_a15_leader_moves_before_replicas_leave() -> None:
    one = joined(begin_reassignment(stored(1, 2), ids(3, 4)), 3, 4)
    kinds: list[StepKind] = []
    states = [one]
    while (found := next_step(states[-1], electable=ALL, min_isr=2)) is not None:
        kinds.append(found.kind)
        assert found.delete == ((1, 2) if found.kind is StepKind.FINISH else ())
        states.append(found.after)
    assert kinds == [StepKind.MOVE_LEADER, StepKind.SHRINK_ISR, StepKind.FINISH]
    assert [(s.leader, s.in_sync, s.replicas) for s in states[1:]] == [
        (3, (1, 2, 3, 4), (3, 4, 1, 2)),
        (3, (3, 4), (3, 4, 1, 2)),
        (3, (3, 4), (3, 4)),
    ]
    assert not is_reassigning(states[-1])
    assert [s.version - states[0].version for s in states] == [0, 1, 2, 3]
    assert [s.leader_epoch - states[0].leader_epoch for s in states] == [0, 1, 2, 3]


def test_a15_leader_moves_to_a_live_replica() -> None:
    one = joined(begin_reassignment(stored(1, 2), ids(3, 4)), 3, 4)
    found = step(one, electable=ids(1, 2, 4))
    assert found is not None
    assert found[1].leader == 4
    assert step(one, electable=ids(1, 2)) is None


def test_a15_leader_is_elected_among_those_that_stay() -> None:
    """The only ISR members were in a controlled shutdown, and one of them is back."""
    one = joined(begin_reassignment(stored(1, 2), ids(2, 3)), 3)
    leaderless = elect_after_departure(one, ids(1), electable=(), min_isr=1)
    assert (leaderless.in_sync, leaderless.last_known_elr) == ((2, 3), (1,))
    found = step(leaderless, electable=ids(3))
    assert found is not None
    assert (found[0], found[1].leader, found[1].last_known_elr) == (StepKind.MOVE_LEADER, 3, ())


def test_a15_replica_that_leaves_cannot_become_leader_again() -> None:
    """Its log may be deleted: it is in neither ISR nor ELR, and no unclean election takes it."""
    one = joined(begin_reassignment(stored(1, 2), ids(3)), 3)
    for _ in range(2):
        found = next_step(one, electable=ALL, min_isr=1)
        assert found is not None
        one = found.after
    assert (one.replicas, one.in_sync) == ((3, 1, 2), (3,))
    assert not can_join(one, BrokerId(1), min_isr=1)
    dead = elect_after_departure(one, ids(3), electable=ids(1, 2), min_isr=1, unclean=True)
    assert (dead.leader, dead.in_sync, dead.elr) == (NO_BROKER, (), (3,))


def test_a15_unclean_election_prefers_replicas_with_records() -> None:
    """A replica that was just added may be empty, so the old ones come first."""
    grown = begin_reassignment(stored(1, 2, 3, isr=[1]), ids(4, 2))
    assert grown.replicas == (4, 2, 1, 3)
    for electable, leader in ((ids(4, 3, 2), 2), (ids(4, 3), 3), (ids(4), 4)):
        one = elect_after_departure(grown, ids(1), electable=electable, min_isr=1, unclean=True)
        assert (one.leader, one.in_sync) == (leader, (leader,))


def test_replica_that_leaves_can_return_while_new_ones_catch_up() -> None:
    grown = begin_reassignment(stored(1, 2, 3, isr=[1, 3]), ids(4, 5, 6))
    assert can_join(grown, BrokerId(2), min_isr=2)


def test_replicas_are_reordered_at_once() -> None:
    after = begin_reassignment(stored(1, 2, 3), ids(3, 2, 1))
    assert (after.replicas, after.leader, is_reassigning(after)) == ((3, 2, 1), 1, False)
    same = stored(1, 2, 3)
    assert begin_reassignment(same, ids(1, 2, 3)) is same


def test_a15_new_target_replaces_the_one_in_progress() -> None:
    one = joined(begin_reassignment(stored(1, 2), ids(3, 4)), 3)
    assert begin_reassignment(one, ids(3, 4)) is one
    other = begin_reassignment(one, ids(3, 5))
    assert other.replicas == (3, 5, 4, 1, 2)
    assert (other.adding, other.removing) == ((3, 5), (4, 1, 2))
    back = begin_reassignment(one, ids(1, 2))
    assert (back.adding, back.removing) == ((), (3, 4))
    found = step(back)
    assert found is not None
    assert (found[0], found[1].in_sync) == (StepKind.SHRINK_ISR, (1, 2))


def test_cancelled_reassignment_returns_to_the_original_replicas() -> None:
    one = joined(begin_reassignment(stored(1, 2), ids(3, 2)), 3)
    after = cancel_reassignment(one, electable=ALL, min_isr=1)
    assert (after.replicas, after.leader, after.in_sync) == ((2, 1), 1, (1, 2))
    assert not is_reassigning(after)
    moved = next_step(one, electable=ALL, min_isr=1)
    assert moved is not None
    after = cancel_reassignment(moved.after, electable=ALL, min_isr=1)
    assert (after.leader, after.in_sync) == (2, (1, 2))
    assert after.leader_epoch == moved.after.leader_epoch + 1


def test_reassignment_is_not_cancelled_if_no_original_is_in_sync() -> None:
    one = joined(begin_reassignment(stored(1), ids(2)), 2)
    while (found := next_step(one, electable=ALL, min_isr=1)) is not None:
        if found.kind is StepKind.FINISH:
            break
        one = found.after
    offline = elect_after_departure(one, ids(2), electable=ids(1), min_isr=1)
    for state in (one, offline):
        with pytest.raises(RequestError) as refused:
            cancel_reassignment(state, electable=ALL, min_isr=1)
        assert refused.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    with pytest.raises(RequestError) as refused:
        cancel_reassignment(stored(1), electable=ALL, min_isr=1)
    assert refused.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_partition_that_never_had_a_leader_is_not_reassigned() -> None:
    with pytest.raises(RequestError) as refused:
        begin_reassignment(PartitionState(ids(1)), ids(2))
    assert refused.value.code is ErrorCode.LEADER_NOT_AVAILABLE


# What interrupts a reassignment. "step" is a step of a controller, "deleted" one of a controller
# that died after it had deleted logs and before it stored the final assignment.
EVENTS = st.one_of(
    st.just(("step", 0)),
    st.just(("deleted", 0)),
    st.tuples(st.sampled_from(["join", "lag", "die", "return", "lose"]), st.integers(1, 6)),
)


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True),
    st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True),
    st.integers(1, 3),
    st.booleans(),
    st.lists(EVENTS, max_size=30),
)
def test_a15_reassignment_ends_in_the_target_after_every_interruption(
    before: list[int],
    target: list[int],
    min_isr: int,
    unclean: bool,
    events: list[tuple[str, int]],
) -> None:
    """Every controller knows the stored state only; it dies at each step of the events."""
    one = begin_reassignment(stored(*before), ids(*target))
    alive, has_log = set(ALL), set(before)

    def elect(leaving: tuple[BrokerId, ...], lost: tuple[BrokerId, ...] = ()) -> None:
        nonlocal one
        earlier = one
        one = elect_after_departure(
            one, leaving, electable=alive, min_isr=min_isr, lost=lost, unclean=unclean
        )
        if is_unclean(earlier, one):
            assert unclean or earlier.last_known_elr == (one.leader,)
            has_log.add(one.leader)  # it leads with the records that it has

    def advance(*, dies: bool = False) -> bool:
        nonlocal one
        found = next_step(one, electable=alive, min_isr=min_isr)
        if found is None:
            return False
        has_log.difference_update(found.delete)
        if not (dies and found.kind is StepKind.FINISH):
            one = found.after
        return True

    def join(broker: BrokerId) -> None:
        nonlocal one
        if one.leader == NO_BROKER or broker in one.in_sync or broker not in one.replicas:
            return
        if broker in alive and can_join(one, broker, min_isr=min_isr):
            has_log.add(broker)  # it fetched all records of the leader
            one = change_in_sync(one, (*one.in_sync, broker), min_isr=min_isr)

    for event, number in events:
        broker, last = BrokerId(number), one
        if event == "step":
            advance()
        elif event == "deleted":
            advance(dies=True)
        elif event == "join":
            join(broker)
        elif event == "lag" and broker in one.in_sync and broker != one.leader != NO_BROKER:
            rest = tuple(member for member in one.in_sync if member != broker)
            one = change_in_sync(one, rest, min_isr=min_isr)
        elif event == "die":
            alive.discard(broker)
            elect((broker,))
        elif event in ("return", "lose"):
            alive.add(broker)
            elect((), (broker,) if event == "lose" else ())
        assert one.version >= last.version
        assert one.leader_epoch >= last.leader_epoch
        assert one.leader == NO_BROKER or one.leader in one.in_sync
        assert one.in_sync or one.elr or one.last_known_elr
        assert {*one.in_sync, *one.elr} <= has_log  # only brokers with records may lead
        assert set(one.replicas) >= {*one.in_sync, *one.elr, *one.adding, *one.removing}
    alive.update(ALL)
    elect(())
    assert one.leader != NO_BROKER
    for _ in range(10):
        for broker in one.replicas:
            join(broker)
        if not advance():
            break
    assert (one.replicas, is_reassigning(one)) == (tuple(target), False)
    assert set(one.in_sync) <= set(target)

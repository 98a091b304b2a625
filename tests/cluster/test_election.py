"""Elections: who leads a partition, and who is in its ISR and ELR."""

from itertools import permutations

from ottla.cluster.election import (
    change_in_sync,
    elect_after_departure,
    elect_first,
    elect_preferred,
    hand_over,
    is_unclean,
)
from ottla.cluster.image import PartitionState
from ottla.ids import NO_BROKER, BrokerId, LeaderEpoch


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(map(BrokerId, numbers))


def state(
    *replicas: int,
    leader: int | None = None,
    isr: tuple[int, ...] | None = None,
    elr: tuple[int, ...] = (),
    last: tuple[int, ...] = (),
) -> PartitionState:
    """Return a stored state; by default all replicas are in sync and the first leads."""
    return PartitionState(
        ids(*replicas),
        BrokerId(replicas[0] if leader is None else leader),
        LeaderEpoch(5),
        ids(*(replicas if isr is None else isr)),
        7,
        ids(*elr),
        ids(*last),
    )


def brief(one: PartitionState) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    return one.leader, one.in_sync, one.elr


def test_new_partition_has_all_live_replicas_in_sync() -> None:
    after = elect_first(PartitionState(ids(1, 2, 3)), ids(3, 2))
    assert (after.leader, after.in_sync, after.leader_epoch, after.version) == (2, (2, 3), 0, 0)
    waiting = PartitionState(ids(1, 2, 3))
    assert elect_first(waiting, ids(4)) is waiting


def test_b9_first_live_isr_member_in_assignment_order_leads() -> None:
    before = state(3, 1, 2, isr=(2, 1, 3))
    after = elect_after_departure(before, ids(3), electable=ids(1, 2), min_isr=1)
    assert brief(after) == (1, (2, 1), ())
    assert (after.leader_epoch, after.version) == (6, 8)


def test_b9_epoch_rises_when_the_controller_shrinks_the_isr() -> None:
    after = elect_after_departure(state(1, 2, 3), ids(2), electable=ids(1, 3), min_isr=1)
    assert brief(after) == (1, (1, 3), ())
    assert (after.leader_epoch, after.version) == (6, 8)


def test_b9_nothing_changes_without_a_reason() -> None:
    before = state(1, 2, 3)
    assert elect_after_departure(before, (), electable=ids(1, 2, 3), min_isr=2) is before
    offline = elect_after_departure(state(1), ids(1), electable=(), min_isr=1)
    assert elect_after_departure(offline, (), electable=(), min_isr=1) is offline


def test_b9_partition_survives_kills_and_restarts_in_all_orders() -> None:
    """The last ISR member is never forgotten: only it may lead again with min.insync.replicas=1."""
    for killed in permutations((1, 2, 3)):
        for returning in permutations((1, 2, 3)):
            alive, one = {1, 2, 3}, state(1, 2, 3)
            for broker in killed:
                alive.remove(broker)
                electable = ids(*alive)
                one = elect_after_departure(one, ids(broker), electable=electable, min_isr=1)
            last = killed[-1]
            assert brief(one) == (NO_BROKER, (), (last,)), (killed, returning)
            for broker in returning:
                alive.add(broker)
                one = elect_after_departure(one, (), electable=ids(*alive), min_isr=1)
                expected = last if last in alive else NO_BROKER
                assert one.leader == expected, (killed, returning)
            assert one.in_sync == (last,)
            assert one.elr == one.last_known_elr == ()


def test_a13_partition_is_offline_until_the_last_isr_member_returns() -> None:
    before = state(1, 2, 3, isr=(1,))
    after = elect_after_departure(before, ids(1), electable=ids(2, 3), min_isr=1)
    assert brief(after) == (NO_BROKER, (), (1,))
    again = elect_after_departure(after, (), electable=ids(1, 2, 3), min_isr=1)
    assert brief(again) == (1, (1,), ())
    assert not is_unclean(after, again)


def test_a13_unclean_leader_is_the_only_isr_member_in_a_new_epoch() -> None:
    before = state(1, 2, 3, isr=(1,))
    after = elect_after_departure(before, ids(1), electable=ids(3, 2), min_isr=1, unclean=True)
    assert brief(after) == (2, (2,), ())
    assert after.leader_epoch == 6
    assert is_unclean(before, after)


def test_a13_clean_candidates_come_before_an_unclean_election() -> None:
    isr = elect_after_departure(
        state(1, 2, 3, isr=(1, 3)), ids(1), electable=ids(2, 3), min_isr=1, unclean=True
    )
    assert brief(isr) == (3, (3,), ())
    elr = elect_after_departure(
        state(1, 2, 3, isr=(1,), elr=(3,)), ids(1), electable=ids(2, 3), min_isr=2, unclean=True
    )
    assert brief(elr) == (3, (3,), (1,))
    # An ISR member that shuts down is alive: its records are not given up.
    waiting = elect_after_departure(
        state(1, 2, 3, isr=(1, 3)), ids(1), electable=ids(2), min_isr=1, unclean=True
    )
    assert brief(waiting) == (NO_BROKER, (3,), ())


def test_a14_members_that_leave_a_small_isr_become_eligible() -> None:
    before = state(1, 2, 3)
    two = change_in_sync(before, ids(1, 2), min_isr=2)
    assert brief(two) == (1, (1, 2), ())
    one = change_in_sync(two, ids(1), min_isr=2)
    assert brief(one) == (1, (1,), (2,))
    both = change_in_sync(before, ids(1), min_isr=2)
    assert brief(both) == (1, (1,), (2, 3))
    assert {one.leader_epoch for one in (before, two, one, both)} == {5}


def test_a14_power_cut_of_the_last_isr_member_loses_nothing() -> None:
    """Two followers are cut off, then the leader loses power: a follower leads."""
    one = change_in_sync(state(1, 2, 3), ids(1), min_isr=2)
    offline = elect_after_departure(one, ids(1), electable=(), min_isr=2)
    assert brief(offline) == (NO_BROKER, (), (1, 2, 3))
    led = elect_after_departure(offline, (), electable=ids(3), min_isr=2)
    assert brief(led) == (3, (3,), (1, 2))
    assert not is_unclean(offline, led)
    back = elect_after_departure(led, (), electable=ids(1, 3), min_isr=2, lost=ids(1))
    assert brief(back) == (3, (3,), (2,))
    grown = change_in_sync(back, ids(3, 1), min_isr=2)
    assert brief(grown) == (3, (3, 1), ())


def test_a14_isr_member_leads_before_an_eligible_replica() -> None:
    before = state(1, 2, 3, leader=3, isr=(3, 2), elr=(1,))
    after = elect_after_departure(before, ids(3), electable=ids(1, 2), min_isr=3)
    assert brief(after) == (2, (2,), (1, 3))


def test_a14_unclean_restart_leaves_isr_and_elr() -> None:
    before = state(1, 2, 3, leader=2, isr=(2,), elr=(1, 3))
    eligible = elect_after_departure(before, (), electable=ids(1, 2), min_isr=2, lost=ids(1))
    assert brief(eligible) == (2, (2,), (3,))
    leading = elect_after_departure(before, (), electable=ids(1, 2), min_isr=2, lost=ids(2))
    assert brief(leading) == (1, (1,), (3,))
    follower = elect_after_departure(
        state(1, 2, 3), (), electable=ids(1, 2, 3), min_isr=2, lost=ids(3)
    )
    assert brief(follower) == (1, (1, 2), ())


def test_a14_last_known_leader_is_elected_when_it_returns() -> None:
    offline = elect_after_departure(
        state(1, 2, 3, leader=2, isr=(2,)), ids(2), electable=ids(1, 3), min_isr=1
    )
    assert (brief(offline), offline.last_known_elr) == ((NO_BROKER, (), (2,)), (2,))
    back = elect_after_departure(offline, (), electable=ids(1, 2, 3), min_isr=1, lost=ids(2))
    assert (brief(back), back.last_known_elr) == ((2, (2,), ()), ())
    assert is_unclean(offline, back, lost=ids(2))


def test_a14_last_known_leader_is_not_elected_while_it_is_dead() -> None:
    offline = elect_after_departure(
        state(1, 2, isr=(1,)), (), electable=ids(2), min_isr=1, lost=ids(1)
    )
    assert (brief(offline), offline.last_known_elr) == ((NO_BROKER, (), ()), (1,))
    assert elect_after_departure(offline, (), electable=ids(2), min_isr=1) is offline
    back = elect_after_departure(offline, (), electable=ids(1), min_isr=1)
    assert brief(back) == (1, (1,), ())


def test_a14_only_replica_leads_again_after_kill_9() -> None:
    before = state(1)
    after = elect_after_departure(before, (), electable=ids(1), min_isr=1, lost=ids(1))
    assert brief(after) == (1, (1,), ())
    assert (after.leader_epoch, after.version) == (6, 8)
    # Kafka with ZooKeeper stores the last ISR member without a leader.
    stored = state(1, leader=NO_BROKER, isr=(1,))
    after = elect_after_departure(stored, (), electable=ids(1), min_isr=1, lost=ids(1))
    assert brief(after) == (1, (1,), ())


def test_a14_elr_is_not_used_when_the_isr_was_large_enough() -> None:
    """The leader moved the high watermark without the ELR after its minimum was lowered."""
    before = state(1, 2, isr=(1,), elr=(2,))
    after = elect_after_departure(before, ids(1), electable=ids(2), min_isr=1)
    assert brief(after) == (NO_BROKER, (), (1,))


def test_restarted_leader_gets_a_new_epoch() -> None:
    before = state(1)
    after = elect_after_departure(before, (), electable=ids(1), min_isr=1, restarted=ids(1))
    assert brief(after) == (1, (1,), ())
    assert after.leader_epoch == 6
    followers = state(1, 2)
    assert (
        elect_after_departure(followers, (), electable=ids(1, 2), min_isr=1, restarted=ids(2))
        is followers
    )


def test_preferred_leader_must_be_alive_and_in_sync() -> None:
    before = state(1, 2, 3, leader=2)
    after = elect_preferred(before, ids(1, 2, 3))
    assert brief(after) == (1, (1, 2, 3), ())
    assert after.leader_epoch == 6
    assert elect_preferred(before, ids(2, 3)) is before
    lagging = state(1, 2, 3, leader=2, isr=(2, 3))
    assert elect_preferred(lagging, ids(1, 2, 3)) is lagging
    assert elect_preferred(after, ids(1, 2, 3)) is after


def test_leadership_is_handed_over_inside_the_isr_only() -> None:
    moved = hand_over(state(1, 2, 3, isr=(1, 3)), BrokerId(1), electable=ids(1, 2, 3), min_isr=2)
    assert brief(moved) == (3, (3,), (1,))
    follower = hand_over(state(1, 2, 3), BrokerId(2), electable=ids(1, 3), min_isr=1)
    assert brief(follower) == (1, (1, 3), ())
    # The eligible replica has the acknowledged records, but not those of acks=1.
    alone = state(1, 2, 3, isr=(1,), elr=(2,))
    assert hand_over(alone, BrokerId(1), electable=ids(1, 2, 3), min_isr=2) is alone
    outside = state(1, 2, 3, isr=(1,))
    assert hand_over(outside, BrokerId(2), electable=ids(1, 2, 3), min_isr=1) is outside

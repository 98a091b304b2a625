"""From joining to syncing: the initial delay, generations, assignments and their timers."""

import pytest

from groups.stage import DELAY_MS, REBALANCE_MS, SESSION_MS, Stage
from ottla.errors import ErrorCode
from ottla.groups.config import GroupConfig
from ottla.groups.effects import EmptyGenerationStored
from ottla.groups.events import TimerFired
from ottla.groups.responses import SyncResult
from ottla.groups.types import AssignmentStored, Timer, TimerKind

JOIN = Timer(TimerKind.JOIN, "billing")
SYNC = Timer(TimerKind.SYNC, "billing")


# The initial delay.


def test_an_empty_group_waits_the_delay_though_all_have_joined() -> None:
    stage = Stage()
    _, token = stage.join_twice()
    stage.advance(DELAY_MS - 1)
    assert stage.waits(token)
    stage.advance(1)
    assert not stage.waits(token)


def test_the_delay_goes_on_while_members_come() -> None:
    stage = Stage()
    _, token = stage.join_twice()
    for _ in range(3):
        stage.advance(DELAY_MS - 1)
        stage.join_twice()
        stage.advance(1)
        assert stage.waits(token)
    stage.advance(DELAY_MS)
    assert len(stage.joined(token).members) == 4


def test_the_delay_ends_with_the_rebalance_timeout() -> None:
    stage = Stage()
    _, token = stage.join_twice(rebalance_ms=2 * DELAY_MS + 1_000)
    began_ms = stage.now_ms
    while stage.waits(token):
        stage.join_twice(rebalance_ms=2 * DELAY_MS + 1_000)
        stage.advance(500)
    assert stage.now_ms - began_ms == 2 * DELAY_MS + 1_000


def test_without_a_delay_the_first_member_begins_at_once() -> None:
    stage = Stage(GroupConfig(initial_rebalance_delay_ms=0))
    _, token = stage.join_twice()
    stage.advance(0)
    assert stage.joined(token).generation == 1


def test_a_first_generation_that_all_left_is_empty() -> None:
    stage = Stage()
    member_id, _ = stage.join_twice()
    stage.leave(member_id)
    assert stage.state == "PreparingRebalance"
    stage.advance(DELAY_MS)
    assert (stage.state, stage.generation) == ("Empty", 1)
    assert len(stage.log) == 1


# Joining.


def test_a_generation_begins_when_all_have_joined() -> None:
    stage = Stage()
    leader, follower = stage.stable(2)
    _, third = stage.join_twice()
    assert stage.state == "PreparingRebalance"
    stage.join(leader)
    stage.join(follower)
    assert stage.joined(third).generation == 2
    assert JOIN not in stage.timers


def test_who_does_not_join_in_time_is_no_member_any_more() -> None:
    stage = Stage()
    leader, follower = stage.stable(2, session_ms=90_000)
    _, third = stage.join_twice()
    rejoin = stage.join(follower)
    stage.advance(REBALANCE_MS - 1)
    assert stage.waits(third)
    stage.advance(1)
    assert stage.joined(third).generation == 2
    assert stage.joined(rejoin).leader == follower, "the leader did not come: another leads"
    assert leader not in stage.members()


def test_if_nobody_comes_the_group_is_empty() -> None:
    stage = Stage()
    leader, follower = stage.stable(2, session_ms=90_000)
    stage.leave(leader)
    stage.advance(REBALANCE_MS)
    assert (stage.state, stage.generation) == ("Empty", 2)
    assert follower not in stage.members()


def test_while_only_static_members_are_away_the_group_waits_for_their_sessions() -> None:
    stage = Stage()
    token = stage.join(instance_id="a", session_ms=100_000)
    member_id, _ = stage.join_twice()
    stage.advance(2 * DELAY_MS)
    stage.sync_all([stage.joined(token).member_id, member_id])
    stage.leave(member_id)
    stage.advance(REBALANCE_MS)
    assert stage.state == "PreparingRebalance"
    assert JOIN in stage.timers
    stage.advance(100_000)
    assert (stage.state, stage.generation) == ("Empty", 2)


def test_an_empty_generation_is_written() -> None:
    stage = Stage(auto=False)
    (member_id,) = stage.completing(1)
    stage.leave(member_id)
    (append,) = stage.appends
    assert isinstance(append.then, EmptyGenerationStored)
    stage.fail_append()
    assert (stage.state, stage.generation) == ("Empty", 2)


# Syncing.


def test_followers_wait_for_the_leader() -> None:
    stage = Stage()
    leader, follower = stage.completing(2)
    waiting = stage.sync(follower, 1)
    assert stage.waits(waiting)
    first = stage.sync(leader, 1, {leader: b"one", follower: b"two", "ghost": b"three"})
    assert stage.synced(first) == SyncResult(ErrorCode.NONE, "consumer", "range", b"one")
    assert stage.synced(waiting).assignment == b"two"
    assert stage.state == "Stable"


def test_who_is_not_assigned_anything_gets_nothing() -> None:
    stage = Stage()
    leader, follower = stage.completing(2)
    stage.sync(leader, 1, {leader: b"one"})
    assert stage.synced(stage.sync(follower, 1)) == SyncResult(
        ErrorCode.NONE, "consumer", "range", b""
    )


def test_in_a_stable_group_the_assignment_is_told_again() -> None:
    stage = Stage()
    leader, follower = stage.stable(2)
    assert stage.synced(stage.sync(follower, 1)).assignment == f"share of {follower}".encode()
    again = stage.sync(leader, 1, {follower: b"other"})
    assert stage.synced(again).assignment == f"share of {leader}".encode()
    assert stage.synced(stage.sync(follower, 1)).assignment == f"share of {follower}".encode()


def test_a_repeat_of_the_leader_is_not_written_twice() -> None:
    stage = Stage(auto=False)
    (leader,) = stage.completing(1)
    first = stage.sync(leader, 1, {leader: b"one"})
    second = stage.sync(leader, 1, {leader: b"two"})
    assert len(stage.appends) == 1
    assert stage.synced(first) == SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    stage.commit_append()
    assert stage.synced(second).assignment == b"one"


def test_an_assignment_that_cannot_be_stored_is_nobodys() -> None:
    stage = Stage(auto=False)
    leader, follower = stage.completing(2)
    tokens = [stage.sync(follower, 1), stage.sync(leader, 1, {leader: b"1", follower: b"2"})]
    stage.fail_append(ErrorCode.NOT_ENOUGH_REPLICAS)
    for token in tokens:
        assert stage.synced(token) == SyncResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert stage.state == "PreparingRebalance"
    assert [member.assignment for member in stage.group.roster] == [b"", b""]


@pytest.mark.parametrize("committed", [True, False])
def test_the_outcome_of_a_generation_that_is_over_changes_nothing(committed: bool) -> None:
    stage = Stage(auto=False)
    leader, follower = stage.completing(2)
    stage.sync(leader, 1, {leader: b"old"})
    stage.join(follower, protocols=(stage.group.roster[follower].protocols[0],) * 2)
    stage.join(leader)
    assert (stage.state, stage.generation) == ("CompletingRebalance", 2)
    waiting = stage.sync(follower, 2)
    stage.commit_append() if committed else stage.fail_append()
    assert stage.waits(waiting)
    assert (stage.state, stage.generation) == ("CompletingRebalance", 2)


@pytest.mark.parametrize("committed", [True, False])
def test_an_assignment_of_a_deleted_group_does_not_reach_its_successor(committed: bool) -> None:
    stage = Stage(auto=False)
    (old,) = stage.completing(1)
    stage.sync(old, 1, {old: b"old"})
    stage.leave(old)
    stage.delete_groups("billing")
    (new,) = stage.completing(1)
    waiting = stage.sync(new, 1, {new: b"new"})
    # The same generation of another group of the same name.
    stage.commit_append() if committed else stage.fail_append()
    assert stage.waits(waiting)
    while stage.appends:
        stage.commit_append()
    assert stage.synced(waiting).assignment == b"new"


def test_who_never_syncs_is_dropped_after_the_rebalance_timeout() -> None:
    stage = Stage()
    leader, follower = stage.completing(2, session_ms=90_000)
    assert SYNC in stage.timers
    stage.sync(leader, 1, {leader: b"1"})
    assert SYNC in stage.timers
    stage.advance(REBALANCE_MS)
    assert stage.members() == [leader]
    assert stage.state == "PreparingRebalance"
    assert stage.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_when_all_have_synced_nobody_is_dropped() -> None:
    stage = Stage()
    stage.stable(2, session_ms=90_000)
    assert SYNC not in stage.timers


def test_a_leader_that_never_syncs_is_dropped_and_the_others_go_on() -> None:
    stage = Stage()
    _leader, follower = stage.completing(2, session_ms=90_000)
    waiting = stage.sync(follower, 1)
    stage.advance(REBALANCE_MS)
    assert stage.synced(waiting) == SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    rejoin = stage.join(follower)
    assert stage.joined(rejoin).leader == follower


# Sessions.


def test_a_member_that_falls_silent_is_dropped() -> None:
    stage = Stage()
    leader, follower = stage.stable(2)
    stage.advance(SESSION_MS - 1)
    assert stage.heartbeat(leader, 1) is ErrorCode.NONE
    stage.advance(1)
    assert stage.members() == [leader]
    assert stage.state == "PreparingRebalance"
    assert stage.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_waits_for_a_generation_need_not_send_heartbeats() -> None:
    stage = Stage()
    leader, follower = stage.stable(2)
    rejoin = stage.join(leader)
    for _ in range(5):
        stage.heartbeat(follower, 1)
        stage.advance(SESSION_MS - 1)
    assert stage.waits(rejoin)
    assert leader in stage.members()


def test_who_waits_for_its_assignment_need_not_send_heartbeats() -> None:
    stage = Stage()
    leader, follower = stage.completing(2)
    waiting = stage.sync(follower, 1)
    for _ in range(3):
        stage.heartbeat(leader, 1)
        stage.advance(SESSION_MS - 1)
    assert stage.members() == [leader, follower]
    stage.sync(leader, 1, {})
    assert not stage.waits(waiting)
    assert stage.timers[Timer(TimerKind.SESSION, "billing", follower)].at_ms == (
        stage.now_ms + SESSION_MS
    )


def test_who_waited_in_vain_for_its_assignment_has_a_session_again() -> None:
    stage = Stage()
    leader, follower = stage.completing(2)
    waiting = stage.sync(follower, 1)
    stage.advance(SESSION_MS - 1)
    stage.heartbeat(leader, 1)
    stage.advance(1)
    session = Timer(TimerKind.SESSION, "billing", follower)
    assert session not in stage.timers
    stage.leave(leader)
    assert stage.synced(waiting) == SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    assert stage.timers[session].at_ms == stage.now_ms + SESSION_MS
    assert SYNC not in stage.timers


def test_a_stale_timer_does_nothing() -> None:
    stage = Stage()
    (leader,) = stage.stable(1)
    stale = stage.timers[Timer(TimerKind.SESSION, "billing", leader)]
    stage.advance(1)
    stage.heartbeat(leader, 1)
    assert stage.timers[stale.timer].version != stale.version
    assert stage.coordinator.step(TimerFired(stale.timer, stale.version), stage.now_ms) == []
    assert stage.members() == [leader]


def test_the_assignment_is_in_the_log_with_its_generation() -> None:
    stage = Stage(auto=False)
    (leader,) = stage.completing(1)
    stage.sync(leader, 1, {leader: b"one"})
    (append,) = stage.appends
    assert append.then == AssignmentStored("billing", 1, {leader: b"one"})
    assert append.leader_epoch == stage.epoch
    assert append.atomic

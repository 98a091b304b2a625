"""Join and sync phases: the initial delay, generations, assignments and their timers."""

import pytest

from groups.harness import DELAY_MS, REBALANCE_MS, SESSION_MS, Harness
from ottla.errors import ErrorCode
from ottla.groups.config import GroupConfig
from ottla.groups.effects import EmptyGenerationStored
from ottla.groups.events import TimerFired
from ottla.groups.responses import SyncResult
from ottla.groups.types import AssignmentStored, Timer, TimerKind

JOIN = Timer(TimerKind.JOIN, "billing")
SYNC = Timer(TimerKind.SYNC, "billing")


# The initial delay.


def test_empty_group_waits_for_the_initial_delay() -> None:
    harness = Harness()
    _, token = harness.join_twice()
    harness.advance(DELAY_MS - 1)
    assert harness.waits(token)
    harness.advance(1)
    assert not harness.waits(token)


def test_initial_delay_is_extended_while_members_join() -> None:
    harness = Harness()
    _, token = harness.join_twice()
    for _ in range(3):
        harness.advance(DELAY_MS - 1)
        harness.join_twice()
        harness.advance(1)
        assert harness.waits(token)
    harness.advance(DELAY_MS)
    assert len(harness.joined(token).members) == 4


def test_initial_delay_is_limited_by_the_rebalance_timeout() -> None:
    harness = Harness()
    _, token = harness.join_twice(rebalance_ms=2 * DELAY_MS + 1_000)
    began_ms = harness.now_ms
    while harness.waits(token):
        harness.join_twice(rebalance_ms=2 * DELAY_MS + 1_000)
        harness.advance(500)
    assert harness.now_ms - began_ms == 2 * DELAY_MS + 1_000


def test_without_initial_delay_the_first_member_starts_at_once() -> None:
    harness = Harness(GroupConfig(initial_rebalance_delay_ms=0))
    _, token = harness.join_twice()
    harness.advance(0)
    assert harness.joined(token).generation == 1


def test_first_generation_without_members_is_empty() -> None:
    harness = Harness()
    member_id, _ = harness.join_twice()
    harness.leave(member_id)
    assert harness.state == "PreparingRebalance"
    harness.advance(DELAY_MS)
    assert (harness.state, harness.generation) == ("Empty", 1)
    assert len(harness.log) == 1


# Join phase.


def test_generation_starts_when_all_have_joined() -> None:
    harness = Harness()
    leader, follower = harness.stable(2)
    _, third = harness.join_twice()
    assert harness.state == "PreparingRebalance"
    harness.join(leader)
    harness.join(follower)
    assert harness.joined(third).generation == 2
    assert JOIN not in harness.timers


def test_member_that_does_not_rejoin_in_time_is_removed() -> None:
    harness = Harness()
    leader, follower = harness.stable(2, session_ms=90_000)
    _, third = harness.join_twice()
    rejoin = harness.join(follower)
    harness.advance(REBALANCE_MS - 1)
    assert harness.waits(third)
    harness.advance(1)
    assert harness.joined(third).generation == 2
    assert harness.joined(rejoin).leader == follower, "the leader did not come: another leads"
    assert leader not in harness.members()


def test_group_is_empty_if_no_member_rejoins() -> None:
    harness = Harness()
    leader, follower = harness.stable(2, session_ms=90_000)
    harness.leave(leader)
    harness.advance(REBALANCE_MS)
    assert (harness.state, harness.generation) == ("Empty", 2)
    assert follower not in harness.members()


def test_group_waits_for_the_sessions_of_absent_static_members() -> None:
    harness = Harness()
    token = harness.join(instance_id="a", session_ms=100_000)
    member_id, _ = harness.join_twice()
    harness.advance(2 * DELAY_MS)
    harness.sync_all([harness.joined(token).member_id, member_id])
    harness.leave(member_id)
    harness.advance(REBALANCE_MS)
    assert harness.state == "PreparingRebalance"
    assert JOIN in harness.timers
    harness.advance(100_000)
    assert (harness.state, harness.generation) == ("Empty", 2)


def test_empty_generation_is_appended() -> None:
    harness = Harness(auto=False)
    (member_id,) = harness.completing(1)
    harness.leave(member_id)
    (append,) = harness.appends
    assert isinstance(append.then, EmptyGenerationStored)
    harness.fail_append()
    assert (harness.state, harness.generation) == ("Empty", 2)


# Sync phase.


def test_followers_wait_for_the_leader() -> None:
    harness = Harness()
    leader, follower = harness.completing(2)
    waiting = harness.sync(follower, 1)
    assert harness.waits(waiting)
    first = harness.sync(leader, 1, {leader: b"one", follower: b"two", "ghost": b"three"})
    assert harness.synced(first) == SyncResult(ErrorCode.NONE, "consumer", "range", b"one")
    assert harness.synced(waiting).assignment == b"two"
    assert harness.state == "Stable"


def test_member_without_an_assignment_gets_an_empty_one() -> None:
    harness = Harness()
    leader, follower = harness.completing(2)
    harness.sync(leader, 1, {leader: b"one"})
    assert harness.synced(harness.sync(follower, 1)) == SyncResult(
        ErrorCode.NONE, "consumer", "range", b""
    )


def test_repeated_sync_of_a_stable_group_gets_the_assignment() -> None:
    harness = Harness()
    leader, follower = harness.stable(2)
    assert harness.synced(harness.sync(follower, 1)).assignment == f"share of {follower}".encode()
    again = harness.sync(leader, 1, {follower: b"other"})
    assert harness.synced(again).assignment == f"share of {leader}".encode()
    assert harness.synced(harness.sync(follower, 1)).assignment == f"share of {follower}".encode()


def test_repeated_sync_of_the_leader_is_not_appended_twice() -> None:
    harness = Harness(auto=False)
    (leader,) = harness.completing(1)
    first = harness.sync(leader, 1, {leader: b"one"})
    second = harness.sync(leader, 1, {leader: b"two"})
    assert len(harness.appends) == 1
    assert harness.synced(first) == SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    harness.commit_append()
    assert harness.synced(second).assignment == b"one"


@pytest.mark.parametrize(
    "error", [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
)
def test_assignment_of_a_failed_append_is_not_sent(error: ErrorCode) -> None:
    """Members get an error that they repeat: the Java consumer ends at any other one."""
    harness = Harness(auto=False)
    leader, follower = harness.completing(2)
    tokens = [harness.sync(follower, 1), harness.sync(leader, 1, {leader: b"1", follower: b"2"})]
    harness.fail_append(error)
    for token in tokens:
        assert harness.synced(token) == SyncResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert harness.state == "PreparingRebalance"
    assert [member.assignment for member in harness.group.roster] == [b"", b""]


@pytest.mark.parametrize("committed", [True, False])
def test_append_result_of_an_old_generation_changes_nothing(committed: bool) -> None:
    harness = Harness(auto=False)
    leader, follower = harness.completing(2)
    harness.sync(leader, 1, {leader: b"old"})
    harness.join(follower, protocols=(harness.group.roster[follower].protocols[0],) * 2)
    harness.join(leader)
    assert (harness.state, harness.generation) == ("CompletingRebalance", 2)
    waiting = harness.sync(follower, 2)
    harness.commit_append() if committed else harness.fail_append()
    assert harness.waits(waiting)
    assert (harness.state, harness.generation) == ("CompletingRebalance", 2)


@pytest.mark.parametrize("committed", [True, False])
def test_assignment_of_a_deleted_group_does_not_reach_a_new_one(committed: bool) -> None:
    harness = Harness(auto=False)
    (old,) = harness.completing(1)
    harness.sync(old, 1, {old: b"old"})
    harness.leave(old)
    harness.delete_groups("billing")
    (new,) = harness.completing(1)
    waiting = harness.sync(new, 1, {new: b"new"})
    # The same generation of another group with the same name.
    harness.commit_append() if committed else harness.fail_append()
    assert harness.waits(waiting)
    while harness.appends:
        harness.commit_append()
    assert harness.synced(waiting).assignment == b"new"


def test_member_that_does_not_sync_in_time_is_removed() -> None:
    harness = Harness()
    leader, follower = harness.completing(2, session_ms=90_000)
    assert SYNC in harness.timers
    harness.sync(leader, 1, {leader: b"1"})
    assert SYNC in harness.timers
    harness.advance(REBALANCE_MS)
    assert harness.members() == [leader]
    assert harness.state == "PreparingRebalance"
    assert harness.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_no_member_is_removed_when_all_have_synced() -> None:
    harness = Harness()
    harness.stable(2, session_ms=90_000)
    assert SYNC not in harness.timers


def test_leader_that_never_syncs_is_removed() -> None:
    harness = Harness()
    _leader, follower = harness.completing(2, session_ms=90_000)
    waiting = harness.sync(follower, 1)
    harness.advance(REBALANCE_MS)
    assert harness.synced(waiting) == SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    rejoin = harness.join(follower)
    assert harness.joined(rejoin).leader == follower


# Sessions.


def test_member_without_heartbeats_is_removed() -> None:
    harness = Harness()
    leader, follower = harness.stable(2)
    harness.advance(SESSION_MS - 1)
    assert harness.heartbeat(leader, 1) is ErrorCode.NONE
    harness.advance(1)
    assert harness.members() == [leader]
    assert harness.state == "PreparingRebalance"
    assert harness.heartbeat(follower, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_member_waiting_for_a_generation_needs_no_heartbeats() -> None:
    harness = Harness()
    leader, follower = harness.stable(2)
    rejoin = harness.join(leader)
    for _ in range(5):
        harness.heartbeat(follower, 1)
        harness.advance(SESSION_MS - 1)
    assert harness.waits(rejoin)
    assert leader in harness.members()


def test_member_waiting_for_its_assignment_needs_no_heartbeats() -> None:
    harness = Harness()
    leader, follower = harness.completing(2)
    waiting = harness.sync(follower, 1)
    for _ in range(3):
        harness.heartbeat(leader, 1)
        harness.advance(SESSION_MS - 1)
    assert harness.members() == [leader, follower]
    harness.sync(leader, 1, {})
    assert not harness.waits(waiting)
    assert harness.timers[Timer(TimerKind.SESSION, "billing", follower)].at_ms == (
        harness.now_ms + SESSION_MS
    )


def test_interrupted_sync_restarts_the_session() -> None:
    harness = Harness()
    leader, follower = harness.completing(2)
    waiting = harness.sync(follower, 1)
    harness.advance(SESSION_MS - 1)
    harness.heartbeat(leader, 1)
    harness.advance(1)
    session = Timer(TimerKind.SESSION, "billing", follower)
    assert session not in harness.timers
    harness.leave(leader)
    assert harness.synced(waiting) == SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    assert harness.timers[session].at_ms == harness.now_ms + SESSION_MS
    assert SYNC not in harness.timers


def test_stale_timer_does_nothing() -> None:
    harness = Harness()
    (leader,) = harness.stable(1)
    stale = harness.timers[Timer(TimerKind.SESSION, "billing", leader)]
    harness.advance(1)
    harness.heartbeat(leader, 1)
    assert harness.timers[stale.timer].version != stale.version
    assert harness.coordinator.step(TimerFired(stale.timer, stale.version), harness.now_ms) == []
    assert harness.members() == [leader]


def test_assignment_is_in_the_log_with_its_generation() -> None:
    harness = Harness(auto=False)
    (leader,) = harness.completing(1)
    harness.sync(leader, 1, {leader: b"one"})
    (append,) = harness.appends
    assert append.then == AssignmentStored("billing", 1, {leader: b"one"})
    assert append.leader_epoch == harness.epoch
    assert append.atomic

"""JoinGroup: new, known, static and refused members."""

from collections.abc import Iterator

import pytest

from groups.harness import (
    DELAY_MS,
    GROUP,
    RANGE,
    REBALANCE_MS,
    ROUND_ROBIN,
    SESSION_MS,
    Harness,
    subscription,
)
from ottla.errors import ErrorCode
from ottla.groups.config import (
    METADATA_BYTES_MAX,
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    PENDING_MEMBERS_MAX,
    GroupConfig,
)
from ottla.groups.events import Leaver, RequestDropped
from ottla.groups.member import Member
from ottla.groups.responses import JoinedMember, JoinResult, SyncResult
from ottla.groups.roster import Roster
from ottla.groups.types import Protocol, RequestToken, Timer, TimerKind

OLD = {"member_id_required": False}


def session(harness: Harness, member_id: str) -> int | None:
    """Return the milliseconds until a session expires."""
    timer = harness.timers.get(Timer(TimerKind.SESSION, "billing", member_id))
    return None if timer is None else timer.at_ms - harness.now_ms


# New members.


def test_first_join_gets_a_member_id_but_no_membership() -> None:
    harness = Harness()
    token = harness.join()
    assert harness.joined(token) == JoinResult(ErrorCode.MEMBER_ID_REQUIRED, "client-1")
    assert harness.state == "Empty"
    assert harness.members() == []
    assert session(harness, "client-1") == SESSION_MS


def test_join_with_member_id_waits_for_the_generation() -> None:
    harness = Harness()
    member_id, token = harness.join_twice()
    assert harness.waits(token)
    assert harness.state == "PreparingRebalance"
    assert harness.group.roster.pending == {}
    assert session(harness, member_id) == NEW_MEMBER_JOIN_TIMEOUT_MS
    harness.advance(DELAY_MS)
    assert harness.joined(token) == JoinResult(
        member_id=member_id,
        generation=1,
        protocol_type="consumer",
        protocol_name="range",
        leader=member_id,
        members=(JoinedMember(member_id, None, subscription("orders")),),
    )
    assert session(harness, member_id) == SESSION_MS


def test_old_client_becomes_a_member_at_once() -> None:
    harness = Harness()
    token = harness.join(but=OLD)
    assert harness.waits(token)
    assert harness.members() == ["client-1"]


def test_version_0_uses_its_session_as_rebalance_timeout() -> None:
    harness = Harness()
    harness.join(but=OLD, rebalance_ms=-1)
    assert harness.group.roster.rebalance_timeout_ms == SESSION_MS


def test_only_the_leader_receives_the_members() -> None:
    harness = Harness()
    (leader, first), (follower, second) = harness.join_twice(), harness.join_twice()
    harness.advance(2 * DELAY_MS)
    assert [m.member_id for m in harness.joined(first).members] == [leader, follower]
    assert harness.joined(second).members == ()
    assert harness.joined(second).leader == leader


def test_new_member_that_waits_too_long_is_removed() -> None:
    harness = Harness(GroupConfig(initial_rebalance_delay_ms=400_000))
    member_id, token = harness.join_twice()
    harness.advance(NEW_MEMBER_JOIN_TIMEOUT_MS - 1)
    assert harness.members() == [member_id]
    harness.advance(1)
    assert harness.members() == []
    assert harness.joined(token) == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "")


def test_join_with_a_member_id_creates_no_group() -> None:
    harness = Harness()
    assert harness.joined(harness.join("ghost")) == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "ghost")
    assert harness.coordinator.ledger.groups == {}


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", (RANGE,)), ("consumer", ())])
def test_join_without_a_protocol_leaves_no_group(
    protocol_type: str, protocols: tuple[Protocol, ...]
) -> None:
    harness = Harness()
    token = harness.join(protocol_type=protocol_type, protocols=protocols)
    assert harness.joined(token) == JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    assert harness.coordinator.ledger.groups == {}


@pytest.mark.parametrize("state", ["preparing", "completing", "stable"])
def test_member_without_a_common_protocol_is_refused(state: str) -> None:
    harness = Harness()
    ids = getattr(harness, state)(2)
    before = harness.told.copy()
    other_type = harness.join(protocol_type="connect")
    other_name = harness.join(protocols=(ROUND_ROBIN,))
    known = harness.join(ids[1], protocols=(ROUND_ROBIN,))
    for token, member_id in ((other_type, ""), (other_name, ""), (known, ids[1])):
        expected = JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        assert harness.joined(token) == expected
    assert len(harness.told) == len(before) + 3
    assert harness.members() == ids


# Assigned member ids.


def test_unused_member_id_expires_and_leaves_no_group() -> None:
    harness = Harness()
    harness.join()
    harness.advance(SESSION_MS - 1)
    assert "client-1" in harness.group.roster.pending
    harness.advance(1)
    assert harness.coordinator.ledger.groups == {}
    assert harness.log == []


def test_rebalance_waits_for_assigned_member_ids() -> None:
    harness = Harness()
    (member,) = harness.stable(1)
    late = harness.joined(harness.join()).member_id
    rejoin = harness.join(member)
    assert harness.waits(rejoin)
    other = harness.join(late)
    assert harness.joined(rejoin).generation == 2
    assert harness.joined(other).generation == 2


def test_rebalance_proceeds_when_an_assigned_id_expires() -> None:
    harness = Harness()
    (member,) = harness.stable(1, session_ms=20_000)
    harness.join()
    rejoin = harness.join(member, session_ms=20_000)
    harness.advance(SESSION_MS)
    assert harness.joined(rejoin).generation == 2


def test_assigned_ids_are_bounded_and_the_oldest_is_dropped() -> None:
    harness = Harness()
    for _ in range(PENDING_MEMBERS_MAX + 1):
        harness.join()
    assert len(harness.group.roster.pending) == PENDING_MEMBERS_MAX
    assert harness.joined(harness.join("client-1")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert harness.waits(harness.join("client-2"))


def test_assigned_id_cannot_be_used_by_a_static_member() -> None:
    harness = Harness()
    harness.join()
    token = harness.join("client-1", instance_id="i")
    assert harness.joined(token) == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "client-1")
    assert "client-1" in harness.group.roster.pending


# The limit.


def test_full_group_refuses_new_members() -> None:
    harness = Harness(GroupConfig(members_max=2))
    ids = harness.stable(2)
    token = harness.join()
    assert harness.joined(token) == JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert harness.members() == ids
    assert harness.state == "Stable"


def test_size_limit_counts_joined_members_in_a_rebalance() -> None:
    harness = Harness(GroupConfig(members_max=2))
    late = [harness.joined(harness.join()).member_id for _ in range(3)]
    tokens = [harness.join(member_id) for member_id in late]
    assert [harness.waits(token) for token in tokens] == [True, True, False]
    assert harness.joined(tokens[2]) == JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert harness.group.roster.pending == {}


def test_static_member_can_return_to_a_full_group() -> None:
    harness = Harness(GroupConfig(members_max=1))
    token = harness.join(instance_id="i")
    harness.advance(DELAY_MS)
    harness.sync_all([harness.joined(token).member_id])
    assert harness.joined(harness.join(instance_id="i")).error is ErrorCode.NONE


def test_lowered_limit_removes_the_last_to_join_after_a_load() -> None:
    harness = Harness()
    ids = harness.stable(3)
    harness.rules = GroupConfig(members_max=2)
    harness.crash()
    assert harness.state == "PreparingRebalance"
    tokens = [harness.join(member_id) for member_id in ids]
    assert harness.joined(tokens[2]) == JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    # There is nobody left to wait for.
    assert harness.joined(tokens[0]).generation == harness.joined(tokens[1]).generation == 2
    assert harness.members() == ids[:2]


def test_group_whose_members_send_too_much_metadata_is_full() -> None:
    harness = Harness()
    half = Protocol("range", bytes(METADATA_BYTES_MAX // 2 - len("range")))
    first, second = (harness.join_twice(protocols=(half,)) for _ in range(2))
    assert harness.group.roster.metadata_bytes == METADATA_BYTES_MAX
    assert harness.joined(harness.join(protocols=(Protocol("range", b""),))) == JoinResult(
        ErrorCode.GROUP_MAX_SIZE_REACHED, ""
    )
    assert harness.members() == [first[0], second[0]]
    harness.join(first[0], protocols=(half,))  # a member may join again
    assert harness.members() == [first[0], second[0]]
    harness.join(first[0], protocols=(RANGE,))
    assert harness.waits(harness.join_twice()[1])


def test_metadata_of_removed_members_does_not_count() -> None:
    harness = Harness()
    ids = harness.stable(3)
    each = len(RANGE.name) + len(RANGE.metadata)
    assert harness.group.roster.metadata_bytes == 3 * each
    harness.crash()
    assert harness.group.roster.metadata_bytes == 3 * each
    harness.leave(ids[0])
    assert harness.group.roster.metadata_bytes == 2 * each


# Members that join again.


def test_repeated_join_replaces_the_pending_one() -> None:
    harness = Harness()
    member_id, first = harness.join_twice()
    second = harness.join(member_id)
    assert harness.joined(first) == JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member_id)
    assert harness.waits(second)
    harness.advance(DELAY_MS)
    assert harness.joined(second).generation == 1


def test_repeated_join_in_sync_phase_gets_the_same_response() -> None:
    harness = Harness()
    leader, follower = harness.completing(2)
    assert [m.member_id for m in harness.joined(harness.join(leader)).members] == [leader, follower]
    again = harness.joined(harness.join(follower))
    assert (again.generation, again.members) == (1, ())
    assert harness.state == "CompletingRebalance"


def test_changed_metadata_in_sync_phase_causes_a_rebalance() -> None:
    harness = Harness()
    leader, follower = harness.completing(2)
    waiting = harness.sync(follower, 1)
    changed = harness.join(follower, protocols=(Protocol("range", subscription("bills")),))
    assert harness.state == "PreparingRebalance"
    assert harness.synced(waiting) == SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    assert harness.waits(changed)
    harness.join(leader)
    assert harness.joined(changed).generation == 2


def test_follower_of_a_stable_group_gets_a_missed_response() -> None:
    harness = Harness()
    leader, follower = harness.stable(2)
    answer = harness.joined(harness.join(follower))
    assert (answer.generation, answer.leader, answer.members) == (1, leader, ())
    assert harness.state == "Stable"


def test_rejoining_leader_of_a_stable_group_rebalances() -> None:
    harness = Harness()
    leader, follower = harness.stable(2)
    assert harness.waits(harness.join(leader))
    assert harness.state == "PreparingRebalance"
    assert harness.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_follower_with_changed_metadata_causes_a_rebalance() -> None:
    harness = Harness()
    leader, follower = harness.stable(2)
    assert harness.waits(harness.join(follower, protocols=(RANGE, ROUND_ROBIN)))
    assert harness.state == "PreparingRebalance"
    harness.join(leader)
    assert harness.generation == 2


def test_rejoining_member_can_change_timeouts() -> None:
    harness = Harness()
    (leader,) = harness.stable(1)
    harness.join(leader, session_ms=7_000, rebalance_ms=8_000)
    assert session(harness, leader) == 7_000
    assert harness.group.roster.rebalance_timeout_ms == 8_000


# Protocols.


def test_common_protocol_with_most_votes_is_chosen() -> None:
    harness = Harness()
    both = (ROUND_ROBIN, RANGE)
    token = harness.join(but=OLD, protocols=(Protocol("mine", b""), *reversed(both)))
    harness.join(but=OLD, protocols=both)
    harness.join(but=OLD, protocols=both)
    harness.advance(3 * DELAY_MS)
    assert harness.joined(token).protocol_name == "roundrobin"


def test_protocol_support_is_removed_with_the_member() -> None:
    harness = Harness()
    first = harness.join_twice(protocols=(RANGE,))[0]
    second = harness.join_twice(protocols=(RANGE, ROUND_ROBIN))[0]
    harness.leave(first)
    assert harness.waits(harness.join(second, protocols=(ROUND_ROBIN,)))


# Static members.


def static_group(harness: Harness) -> list[str]:
    """Return two static members, a and b; a leads."""
    tokens = [harness.join(instance_id=name) for name in "ab"]
    harness.advance(2 * DELAY_MS)
    ids = [harness.joined(token).member_id for token in tokens]
    harness.sync_all(ids)
    assert harness.state == "Stable"
    return ids


def test_static_member_is_a_member_at_once() -> None:
    harness = Harness()
    assert harness.waits(harness.join(instance_id="a"))
    assert harness.members() == ["a-1"]


def test_static_follower_returns_without_a_rebalance() -> None:
    harness = Harness()
    leader, follower = static_group(harness)
    answer = harness.joined(harness.join(instance_id="b"))
    assert answer.error is ErrorCode.NONE
    assert answer.member_id not in (leader, follower)
    assert (answer.generation, answer.leader, answer.skip_assignment) == (1, leader, False)
    assert harness.state == "Stable"
    assert harness.members() == [leader, answer.member_id]
    share = harness.synced(harness.sync(answer.member_id, 1, instance_id="b")).assignment
    assert share == f"share of {follower}".encode()
    harness.crash()
    assert harness.members() == [leader, answer.member_id]


def test_returning_static_leader_skips_the_assignment() -> None:
    harness = Harness()
    leader, follower = static_group(harness)
    answer = harness.joined(harness.join(instance_id="a"))
    assert answer.skip_assignment
    assert answer.leader == answer.member_id != leader
    assert {m.member_id for m in answer.members} == {answer.member_id, follower}
    assert harness.group.roster.leader == answer.member_id


def test_older_returning_static_leader_gets_another_leader() -> None:
    harness = Harness()
    leader, _ = static_group(harness)
    token = harness.join(instance_id="a", but={"skips_assignment": False})
    answer = harness.joined(token)
    assert (answer.leader, answer.skip_assignment, answer.members) == (leader, False, ())


def test_static_member_with_a_new_protocol_rebalances() -> None:
    harness = Harness()
    both = (RANGE, ROUND_ROBIN)
    token = harness.join(instance_id="a", protocols=both)
    harness.advance(DELAY_MS)
    harness.sync_all([harness.joined(token).member_id])
    again = harness.join(instance_id="a", protocols=(ROUND_ROBIN,))
    # It is the only member, so the generation starts at once.
    assert harness.joined(again).generation == 2
    assert harness.joined(again).protocol_name == "roundrobin"


def test_static_member_returning_in_sync_phase_rebalances() -> None:
    harness = Harness()
    tokens = [harness.join(instance_id=name) for name in "ab"]
    harness.advance(2 * DELAY_MS)
    leader, follower = (harness.joined(token).member_id for token in tokens)
    old_sync = harness.sync(follower, 1, instance_id="b")
    again = harness.join(instance_id="b")
    assert harness.synced(old_sync).error is ErrorCode.FENCED_INSTANCE_ID
    assert harness.waits(again)
    assert harness.state == "PreparingRebalance"
    harness.join(leader, instance_id="a")
    assert harness.joined(again).generation == 2


def test_static_member_rejoining_replaces_its_pending_join() -> None:
    harness = Harness()
    first = harness.join(instance_id="a")
    second = harness.join(instance_id="a")
    assert harness.joined(first) == JoinResult(ErrorCode.FENCED_INSTANCE_ID, "a-1")
    harness.advance(DELAY_MS)
    assert harness.joined(second).member_id == "a-2"
    assert harness.members() == ["a-2"]


def test_old_id_of_a_static_member_is_always_fenced() -> None:
    harness = Harness()
    _, old = static_group(harness)
    harness.join(instance_id="b")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert harness.heartbeat(old, 1, "b") is fenced
    assert harness.joined(harness.join(old, instance_id="b")) == JoinResult(fenced, old)
    assert harness.synced(harness.sync(old, 1, instance_id="b")) == SyncResult(fenced)
    assert harness.commit(member_id=old, generation=1, instance_id="b") is fenced
    assert [leaver.error for leaver in harness.leave(Leaver(old, "b")).leavers] == [fenced]
    # Without the instance id the member is unknown.
    assert harness.heartbeat(old, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_failed_append_restores_the_static_member() -> None:
    harness = Harness()
    leader, follower = static_group(harness)
    harness.auto = False
    token = harness.join(instance_id="a", protocols=(Protocol("range", subscription("bills")),))
    assert harness.waits(token)
    assert harness.group.is_subscribed("bills")
    harness.fail_append()
    assert harness.joined(token) == JoinResult(
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        "",
        generation=1,
        protocol_type="consumer",
        protocol_name="range",
        leader=leader,
    )
    assert set(harness.members()) == {leader, follower}
    assert harness.group.roster.leader == leader
    assert not harness.group.is_subscribed("bills")
    assert harness.heartbeat(leader, 1, "a") is ErrorCode.NONE


def test_static_member_returning_before_sync_is_expected_to_sync() -> None:
    harness = Harness()
    tokens = [harness.join(instance_id=name) for name in "ab"]
    harness.advance(2 * DELAY_MS)
    leader, follower = (harness.joined(token).member_id for token in tokens)
    harness.sync(leader, 1, {}, instance_id="a")
    harness.auto = False
    harness.join(instance_id="b")
    assert harness.group.unsynced == {"b-3"}
    harness.fail_append()
    assert harness.group.unsynced == {follower}
    assert session(harness, "b-3") is None
    assert session(harness, follower) == SESSION_MS
    harness.sync(follower, 1, instance_id="b")
    assert Timer(TimerKind.SYNC, "billing") not in harness.timers


def test_rebalance_answers_a_static_member_being_stored() -> None:
    harness = Harness()
    leader, _ = static_group(harness)
    harness.auto = False
    back = harness.join(instance_id="b")
    harness.join(leader, instance_id="a")
    assert harness.joined(back).generation == 2
    harness.commit_append()
    assert harness.state == "CompletingRebalance"
    assert harness.generation == 2


def test_slow_append_restarts_the_session_with_the_response() -> None:
    harness = Harness()
    static_group(harness)
    harness.auto = False
    token = harness.join(instance_id="b")
    harness.advance(SESSION_MS // 2)
    harness.heartbeat("a-1", 1, "a")
    harness.advance(SESSION_MS // 2)
    assert session(harness, "b-3") is None
    assert harness.waits(token)
    harness.commit_append()
    assert session(harness, "b-3") == SESSION_MS


def test_static_member_may_be_away_during_a_rebalance() -> None:
    harness = Harness()
    leader, follower = static_group(harness)
    harness.join(follower, instance_id="b", protocols=(RANGE, ROUND_ROBIN))
    for _ in range(REBALANCE_MS // 5_000):
        harness.advance(5_000)
        if harness.state == "PreparingRebalance":
            harness.heartbeat(leader, 1, "a")
    assert harness.generation == 2
    assert set(harness.members()) == {leader, follower}
    assert harness.group.roster.leader == follower


def test_strings_too_long_for_a_record_are_refused() -> None:
    harness = Harness()
    long = "x" * 0x8000
    for but in (
        {"client_id": long},
        {"instance_id": long},
        {"protocol_type": long},
        {"protocols": (Protocol(long, b""),)},
        {"new_member_id": long},
        {"client_host": "ä" * 0x4000},
    ):
        token = harness.join(but=but)
        assert harness.joined(token).error is ErrorCode.INVALID_REQUEST
    token = harness.join(group_id=long)
    assert harness.joined(token).error is ErrorCode.INVALID_GROUP_ID
    assert harness.coordinator.ledger.groups == {}


# Clients that disconnect while they wait.


def test_new_member_is_removed_when_its_client_disconnects() -> None:
    harness = Harness()
    member_id, token = harness.join_twice()
    harness.do(RequestDropped(token, GROUP))
    assert harness.members() == []
    assert session(harness, member_id) is None
    harness.advance(DELAY_MS)
    assert harness.state == "Empty"


def test_generation_starts_without_a_disconnected_new_member() -> None:
    harness = Harness()
    gone, token = harness.join_twice()
    stays, waiting = harness.join_twice()
    harness.do(RequestDropped(token, GROUP))
    harness.advance(2 * DELAY_MS)  # the second member extends the delay
    result = harness.joined(waiting)
    assert [member.member_id for member in result.members] == [stays]
    assert gone not in harness.group.roster


def test_disconnected_member_has_its_session_to_return() -> None:
    harness = Harness()
    member_id, token = harness.join_twice()
    harness.advance(DELAY_MS)
    generation = harness.joined(token).generation
    second, _ = harness.join_twice()
    rejoin = harness.join(member_id)
    harness.do(RequestDropped(rejoin, GROUP))
    assert session(harness, member_id) == SESSION_MS
    assert member_id in harness.group.roster
    again = harness.join(member_id)
    assert harness.joined(again).generation == generation + 1
    assert second in harness.group.roster


def test_disconnected_member_that_waits_to_sync_can_expire() -> None:
    harness = Harness()
    leader, first = harness.join_twice()
    follower, second = harness.join_twice()
    harness.advance(2 * DELAY_MS)
    generation = harness.joined(second).generation
    assert harness.joined(first).leader == leader
    token = harness.sync(follower, generation)
    assert harness.waits(token)
    harness.do(RequestDropped(token, GROUP))
    assert session(harness, follower) == SESSION_MS
    harness.advance(SESSION_MS)
    assert follower not in harness.group.roster


def test_departure_does_not_scan_the_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a large group that leaves at once blocks the broker: each departure scans all."""
    harness = Harness()
    leader, first = harness.join_twice()
    follower, _ = harness.join_twice()
    harness.advance(2 * DELAY_MS)
    scans: list[Roster] = []

    def scan(roster: Roster) -> Iterator[Member]:
        scans.append(roster)
        return iter(())

    def drop(token: RequestToken) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Roster, "__iter__", scan)
            harness.do(RequestDropped(token, GROUP))

    drop(harness.sync(follower, harness.joined(first).generation))
    new_member, join = harness.join_twice()
    drop(join)
    drop(harness.join(leader))
    assert not scans
    roster = harness.group.roster
    assert new_member not in roster
    assert [(one.join_token, one.sync_token) for one in roster] == [(None, None)] * 2


def test_dropped_request_of_another_group_changes_nothing() -> None:
    harness = Harness()
    member_id, token = harness.join_twice()
    harness.do(RequestDropped(token, "other"))
    harness.do(RequestDropped(RequestToken(10**9), GROUP))
    assert harness.members() != []
    assert session(harness, member_id) == NEW_MEMBER_JOIN_TIMEOUT_MS

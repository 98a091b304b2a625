"""What becomes of JoinGroup: new members, known ones, static ones, refused ones."""

import pytest

from groups.stage import (
    DELAY_MS,
    RANGE,
    REBALANCE_MS,
    ROUND_ROBIN,
    SESSION_MS,
    Stage,
    subscription,
)
from ottla.errors import ErrorCode
from ottla.groups.config import NEW_MEMBER_JOIN_TIMEOUT_MS, PENDING_MEMBERS_MAX, GroupConfig
from ottla.groups.events import Leaver
from ottla.groups.responses import JoinedMember, JoinResult, SyncResult
from ottla.groups.types import Protocol, Timer, TimerKind

OLD = {"member_id_required": False}


def session(stage: Stage, member_id: str) -> int | None:
    """Milliseconds until a session ends."""
    timer = stage.timers.get(Timer(TimerKind.SESSION, "billing", member_id))
    return None if timer is None else timer.at_ms - stage.now_ms


# New members.


def test_a_first_join_gets_an_id_and_is_no_member_yet() -> None:
    stage = Stage()
    token = stage.join()
    assert stage.joined(token) == JoinResult(ErrorCode.MEMBER_ID_REQUIRED, "client-1")
    assert stage.state == "Empty"
    assert stage.members() == []
    assert session(stage, "client-1") == SESSION_MS


def test_with_its_id_it_waits_for_the_first_generation() -> None:
    stage = Stage()
    member_id, token = stage.join_twice()
    assert stage.waits(token)
    assert stage.state == "PreparingRebalance"
    assert stage.group.roster.pending == {}
    assert session(stage, member_id) == NEW_MEMBER_JOIN_TIMEOUT_MS
    stage.advance(DELAY_MS)
    assert stage.joined(token) == JoinResult(
        member_id=member_id,
        generation=1,
        protocol_type="consumer",
        protocol_name="range",
        leader=member_id,
        members=(JoinedMember(member_id, None, subscription("orders")),),
    )
    assert session(stage, member_id) == SESSION_MS


def test_an_old_client_is_a_member_at_once() -> None:
    stage = Stage()
    token = stage.join(but=OLD)
    assert stage.waits(token)
    assert stage.members() == ["client-1"]


def test_version_0_has_no_rebalance_timeout_but_its_session() -> None:
    stage = Stage()
    stage.join(but=OLD, rebalance_ms=-1)
    assert stage.group.roster.rebalance_timeout_ms == SESSION_MS


def test_only_the_leader_learns_of_the_members() -> None:
    stage = Stage()
    (leader, first), (follower, second) = stage.join_twice(), stage.join_twice()
    stage.advance(2 * DELAY_MS)
    assert [m.member_id for m in stage.joined(first).members] == [leader, follower]
    assert stage.joined(second).members == ()
    assert stage.joined(second).leader == leader


def test_a_new_member_that_waits_too_long_is_dropped_and_told() -> None:
    stage = Stage(GroupConfig(initial_rebalance_delay_ms=400_000))
    member_id, token = stage.join_twice()
    stage.advance(NEW_MEMBER_JOIN_TIMEOUT_MS - 1)
    assert stage.members() == [member_id]
    stage.advance(1)
    assert stage.members() == []
    assert stage.joined(token) == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "")


def test_a_join_with_an_id_makes_no_group() -> None:
    stage = Stage()
    assert stage.joined(stage.join("ghost")) == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "ghost")
    assert stage.coordinator.ledger.groups == {}


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", (RANGE,)), ("consumer", ())])
def test_without_a_protocol_nobody_joins_and_no_group_stays(
    protocol_type: str, protocols: tuple[Protocol, ...]
) -> None:
    stage = Stage()
    token = stage.join(protocol_type=protocol_type, protocols=protocols)
    assert stage.joined(token) == JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    assert stage.coordinator.ledger.groups == {}


@pytest.mark.parametrize("state", ["preparing", "completing", "stable"])
def test_whoever_shares_no_protocol_with_the_group_is_refused(state: str) -> None:
    stage = Stage()
    ids = getattr(stage, state)(2)
    before = stage.told.copy()
    other_type = stage.join(protocol_type="connect")
    other_name = stage.join(protocols=(ROUND_ROBIN,))
    known = stage.join(ids[1], protocols=(ROUND_ROBIN,))
    for token, member_id in ((other_type, ""), (other_name, ""), (known, ids[1])):
        expected = JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        assert stage.joined(token) == expected
    assert len(stage.told) == len(before) + 3
    assert stage.members() == ids


# Handed-out ids.


def test_an_id_that_nobody_uses_expires_and_leaves_no_group() -> None:
    stage = Stage()
    stage.join()
    stage.advance(SESSION_MS - 1)
    assert "client-1" in stage.group.roster.pending
    stage.advance(1)
    assert stage.coordinator.ledger.groups == {}
    assert stage.log == []


def test_a_rebalance_waits_for_ids_that_were_handed_out() -> None:
    stage = Stage()
    (member,) = stage.stable(1)
    late = stage.joined(stage.join()).member_id
    rejoin = stage.join(member)
    assert stage.waits(rejoin)
    other = stage.join(late)
    assert stage.joined(rejoin).generation == 2
    assert stage.joined(other).generation == 2


def test_a_rebalance_goes_on_when_a_handed_out_id_expires() -> None:
    stage = Stage()
    (member,) = stage.stable(1, session_ms=20_000)
    stage.join()
    rejoin = stage.join(member, session_ms=20_000)
    stage.advance(SESSION_MS)
    assert stage.joined(rejoin).generation == 2


def test_ids_handed_out_are_bounded_and_the_oldest_goes() -> None:
    stage = Stage()
    for _ in range(PENDING_MEMBERS_MAX + 1):
        stage.join()
    assert len(stage.group.roster.pending) == PENDING_MEMBERS_MAX
    assert stage.joined(stage.join("client-1")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert stage.waits(stage.join("client-2"))


def test_a_handed_out_id_is_not_a_static_members() -> None:
    stage = Stage()
    stage.join()
    token = stage.join("client-1", instance_id="i")
    assert stage.joined(token) == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "client-1")
    assert "client-1" in stage.group.roster.pending


# The limit.


def test_a_full_group_takes_nobody() -> None:
    stage = Stage(GroupConfig(members_max=2))
    ids = stage.stable(2)
    token = stage.join()
    assert stage.joined(token) == JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert stage.members() == ids
    assert stage.state == "Stable"


def test_while_a_group_forms_those_who_joined_count() -> None:
    stage = Stage(GroupConfig(members_max=2))
    late = [stage.joined(stage.join()).member_id for _ in range(3)]
    tokens = [stage.join(member_id) for member_id in late]
    assert [stage.waits(token) for token in tokens] == [True, True, False]
    assert stage.joined(tokens[2]) == JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert stage.group.roster.pending == {}


def test_a_static_member_comes_back_into_a_full_group() -> None:
    stage = Stage(GroupConfig(members_max=1))
    token = stage.join(instance_id="i")
    stage.advance(DELAY_MS)
    stage.sync_all([stage.joined(token).member_id])
    assert stage.joined(stage.join(instance_id="i")).error is ErrorCode.NONE


def test_a_lowered_limit_sends_the_last_to_join_away_after_a_load() -> None:
    stage = Stage()
    ids = stage.stable(3)
    stage.rules = GroupConfig(members_max=2)
    stage.crash()
    assert stage.state == "PreparingRebalance"
    tokens = [stage.join(member_id) for member_id in ids]
    assert stage.joined(tokens[2]) == JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    # Nobody is left to wait for.
    assert stage.joined(tokens[0]).generation == stage.joined(tokens[1]).generation == 2
    assert stage.members() == ids[:2]


# Members that join again.


def test_while_the_group_prepares_a_repeat_waits_instead_of_the_first() -> None:
    stage = Stage()
    member_id, first = stage.join_twice()
    second = stage.join(member_id)
    assert stage.joined(first) == JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member_id)
    assert stage.waits(second)
    stage.advance(DELAY_MS)
    assert stage.joined(second).generation == 1


def test_while_the_leader_assigns_a_repeat_hears_the_same_again() -> None:
    stage = Stage()
    leader, follower = stage.completing(2)
    assert [m.member_id for m in stage.joined(stage.join(leader)).members] == [leader, follower]
    again = stage.joined(stage.join(follower))
    assert (again.generation, again.members) == (1, ())
    assert stage.state == "CompletingRebalance"


def test_while_the_leader_assigns_other_metadata_begin_anew() -> None:
    stage = Stage()
    leader, follower = stage.completing(2)
    waiting = stage.sync(follower, 1)
    changed = stage.join(follower, protocols=(Protocol("range", subscription("bills")),))
    assert stage.state == "PreparingRebalance"
    assert stage.synced(waiting) == SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    assert stage.waits(changed)
    stage.join(leader)
    assert stage.joined(changed).generation == 2


def test_a_follower_of_a_stable_group_hears_what_it_missed() -> None:
    stage = Stage()
    leader, follower = stage.stable(2)
    answer = stage.joined(stage.join(follower))
    assert (answer.generation, answer.leader, answer.members) == (1, leader, ())
    assert stage.state == "Stable"


def test_the_leader_of_a_stable_group_begins_a_rebalance() -> None:
    stage = Stage()
    leader, follower = stage.stable(2)
    assert stage.waits(stage.join(leader))
    assert stage.state == "PreparingRebalance"
    assert stage.heartbeat(follower, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_follower_with_other_metadata_begins_a_rebalance() -> None:
    stage = Stage()
    leader, follower = stage.stable(2)
    assert stage.waits(stage.join(follower, protocols=(RANGE, ROUND_ROBIN)))
    assert stage.state == "PreparingRebalance"
    stage.join(leader)
    assert stage.generation == 2


def test_new_timeouts_count() -> None:
    stage = Stage()
    (leader,) = stage.stable(1)
    stage.join(leader, session_ms=7_000, rebalance_ms=8_000)
    assert session(stage, leader) == 7_000
    assert stage.group.roster.rebalance_timeout_ms == 8_000


# Protocols.


def test_the_protocol_with_most_votes_is_chosen_among_those_all_know() -> None:
    stage = Stage()
    both = (ROUND_ROBIN, RANGE)
    token = stage.join(but=OLD, protocols=(Protocol("mine", b""), *reversed(both)))
    stage.join(but=OLD, protocols=both)
    stage.join(but=OLD, protocols=both)
    stage.advance(3 * DELAY_MS)
    assert stage.joined(token).protocol_name == "roundrobin"


def test_support_goes_with_the_member() -> None:
    stage = Stage()
    first = stage.join_twice(protocols=(RANGE,))[0]
    second = stage.join_twice(protocols=(RANGE, ROUND_ROBIN))[0]
    stage.leave(first)
    assert stage.waits(stage.join(second, protocols=(ROUND_ROBIN,)))


# Static members.


def static_group(stage: Stage) -> list[str]:
    """Two static members, a and b; a leads."""
    tokens = [stage.join(instance_id=name) for name in "ab"]
    stage.advance(2 * DELAY_MS)
    ids = [stage.joined(token).member_id for token in tokens]
    stage.sync_all(ids)
    assert stage.state == "Stable"
    return ids


def test_a_static_member_is_a_member_at_once() -> None:
    stage = Stage()
    assert stage.waits(stage.join(instance_id="a"))
    assert stage.members() == ["a-1"]


def test_a_static_follower_comes_back_under_a_new_id_without_a_rebalance() -> None:
    stage = Stage()
    leader, follower = static_group(stage)
    answer = stage.joined(stage.join(instance_id="b"))
    assert answer.error is ErrorCode.NONE
    assert answer.member_id not in (leader, follower)
    assert (answer.generation, answer.leader, answer.skip_assignment) == (1, leader, False)
    assert stage.state == "Stable"
    assert stage.members() == [leader, answer.member_id]
    share = stage.synced(stage.sync(answer.member_id, 1, instance_id="b")).assignment
    assert share == f"share of {follower}".encode()
    stage.crash()
    assert stage.members() == [leader, answer.member_id]


def test_a_static_leader_that_comes_back_skips_the_assignment() -> None:
    stage = Stage()
    leader, follower = static_group(stage)
    answer = stage.joined(stage.join(instance_id="a"))
    assert answer.skip_assignment
    assert answer.leader == answer.member_id != leader
    assert {m.member_id for m in answer.members} == {answer.member_id, follower}
    assert stage.group.roster.leader == answer.member_id


def test_an_older_static_leader_is_told_that_another_leads() -> None:
    stage = Stage()
    leader, _ = static_group(stage)
    token = stage.join(instance_id="a", but={"skips_assignment": False})
    answer = stage.joined(token)
    assert (answer.leader, answer.skip_assignment, answer.members) == (leader, False, ())


def test_a_static_member_that_changes_the_protocol_begins_a_rebalance() -> None:
    stage = Stage()
    both = (RANGE, ROUND_ROBIN)
    token = stage.join(instance_id="a", protocols=both)
    stage.advance(DELAY_MS)
    stage.sync_all([stage.joined(token).member_id])
    again = stage.join(instance_id="a", protocols=(ROUND_ROBIN,))
    # It is alone, so that the generation begins at once.
    assert stage.joined(again).generation == 2
    assert stage.joined(again).protocol_name == "roundrobin"


def test_a_static_member_that_comes_back_while_the_leader_assigns_begins_anew() -> None:
    stage = Stage()
    tokens = [stage.join(instance_id=name) for name in "ab"]
    stage.advance(2 * DELAY_MS)
    leader, follower = (stage.joined(token).member_id for token in tokens)
    old_sync = stage.sync(follower, 1, instance_id="b")
    again = stage.join(instance_id="b")
    assert stage.synced(old_sync).error is ErrorCode.FENCED_INSTANCE_ID
    assert stage.waits(again)
    assert stage.state == "PreparingRebalance"
    stage.join(leader, instance_id="a")
    assert stage.joined(again).generation == 2


def test_a_static_member_that_comes_back_while_members_join_takes_its_place() -> None:
    stage = Stage()
    first = stage.join(instance_id="a")
    second = stage.join(instance_id="a")
    assert stage.joined(first) == JoinResult(ErrorCode.FENCED_INSTANCE_ID, "a-1")
    stage.advance(DELAY_MS)
    assert stage.joined(second).member_id == "a-2"
    assert stage.members() == ["a-2"]


def test_the_old_id_of_a_static_member_is_fenced_everywhere() -> None:
    stage = Stage()
    _, old = static_group(stage)
    stage.join(instance_id="b")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert stage.heartbeat(old, 1, "b") is fenced
    assert stage.joined(stage.join(old, instance_id="b")) == JoinResult(fenced, old)
    assert stage.synced(stage.sync(old, 1, instance_id="b")) == SyncResult(fenced)
    assert stage.commit(member_id=old, generation=1, instance_id="b") is fenced
    assert [leaver.error for leaver in stage.leave(Leaver(old, "b")).leavers] == [fenced]
    # Without the instance id nobody knows it.
    assert stage.heartbeat(old, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_is_again_who_it_was_when_the_log_fails() -> None:
    stage = Stage()
    leader, follower = static_group(stage)
    stage.auto = False
    token = stage.join(instance_id="a", protocols=(Protocol("range", subscription("bills")),))
    assert stage.waits(token)
    assert stage.group.is_subscribed("bills")
    stage.fail_append()
    assert stage.joined(token) == JoinResult(
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        "",
        generation=1,
        protocol_type="consumer",
        protocol_name="range",
        leader=leader,
    )
    assert set(stage.members()) == {leader, follower}
    assert stage.group.roster.leader == leader
    assert not stage.group.is_subscribed("bills")
    assert stage.heartbeat(leader, 1, "a") is ErrorCode.NONE


def test_a_static_member_that_comes_back_before_it_synced_is_still_expected() -> None:
    stage = Stage()
    tokens = [stage.join(instance_id=name) for name in "ab"]
    stage.advance(2 * DELAY_MS)
    leader, follower = (stage.joined(token).member_id for token in tokens)
    stage.sync(leader, 1, {}, instance_id="a")
    stage.auto = False
    stage.join(instance_id="b")
    assert stage.group.unsynced == {"b-3"}
    stage.fail_append()
    assert stage.group.unsynced == {follower}
    assert session(stage, "b-3") is None
    assert session(stage, follower) == SESSION_MS
    stage.sync(follower, 1, instance_id="b")
    assert Timer(TimerKind.SYNC, "billing") not in stage.timers


def test_a_static_member_in_flight_gets_its_answer_from_a_rebalance_in_between() -> None:
    stage = Stage()
    leader, _ = static_group(stage)
    stage.auto = False
    back = stage.join(instance_id="b")
    stage.join(leader, instance_id="a")
    assert stage.joined(back).generation == 2
    stage.commit_append()
    assert stage.state == "CompletingRebalance"
    assert stage.generation == 2


def test_a_session_that_ends_while_the_log_is_slow_begins_anew_with_the_answer() -> None:
    stage = Stage()
    static_group(stage)
    stage.auto = False
    token = stage.join(instance_id="b")
    stage.advance(SESSION_MS // 2)
    stage.heartbeat("a-1", 1, "a")
    stage.advance(SESSION_MS // 2)
    assert session(stage, "b-3") is None
    assert stage.waits(token)
    stage.commit_append()
    assert session(stage, "b-3") == SESSION_MS


def test_a_static_member_may_be_away_while_others_rebalance() -> None:
    stage = Stage()
    leader, follower = static_group(stage)
    stage.join(follower, instance_id="b", protocols=(RANGE, ROUND_ROBIN))
    for _ in range(REBALANCE_MS // 5_000):
        stage.advance(5_000)
        if stage.state == "PreparingRebalance":
            stage.heartbeat(leader, 1, "a")
    assert stage.generation == 2
    assert set(stage.members()) == {leader, follower}
    assert stage.group.roster.leader == follower


def test_texts_that_no_record_can_hold_are_refused() -> None:
    stage = Stage()
    long = "x" * 0x8000
    for but in (
        {"client_id": long},
        {"instance_id": long},
        {"protocol_type": long},
        {"protocols": (Protocol(long, b""),)},
        {"new_member_id": long},
        {"client_host": "ä" * 0x4000},
    ):
        token = stage.join(but=but)
        assert stage.joined(token).error is ErrorCode.INVALID_REQUEST
    token = stage.join(group_id=long)
    assert stage.joined(token).error is ErrorCode.INVALID_GROUP_ID
    assert stage.coordinator.ledger.groups == {}

"""State by event: which error each request gets, as Kafka's coordinator answers it."""

import pytest

from cases import each_case
from groups.situations import CASES, NON_EMPTY, NONE, REQUESTS, TABLE, UNKNOWN
from groups.stage import DELAY_MS, ORDERS, SESSION_MS, Stage
from ottla.errors import ErrorCode
from ottla.groups.events import Leaver
from ottla.groups.responses import LeaveResult, LeaverResult
from ottla.groups.types import Timer, TimerKind


class OurSituation:
    """A group of our coordinator's."""

    def __init__(self, state: str) -> None:
        self.stage = stage = Stage()
        self.member = "nobody"
        if state == "simple":
            stage.commit(1)
        elif state == "empty":
            stage.leave(*stage.stable(2))
        elif state == "preparing":
            self.member = stage.stable(2)[1]
            stage.join_twice()
        elif state == "completing":
            self.member = stage.completing(2)[1]
        elif state == "stable":
            self.member = stage.stable(2)[1]
        known = stage.coordinator.ledger.groups.get("billing")
        self.generation = known.generation if known else 0

    def join(self, member_id: str) -> ErrorCode | None:
        token = self.stage.join(member_id)
        return None if self.stage.waits(token) else self.stage.joined(token).error

    def sync(
        self,
        member_id: str | None = None,
        *,
        ahead: int = 0,
        protocol_type: str = "consumer",
        protocol_name: str = "range",
    ) -> ErrorCode | None:
        token = self.stage.sync(
            member_id or self.member,
            self.generation + ahead,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
        )
        return None if self.stage.waits(token) else self.stage.synced(token).error

    def heartbeat(self, member_id: str | None = None, *, ahead: int = 0) -> ErrorCode:
        return self.stage.heartbeat(member_id or self.member, self.generation + ahead)

    def leave(self, member_id: str | None = None) -> ErrorCode:
        answer = self.stage.leave(member_id or self.member)
        assert answer.error is NONE
        return answer.leavers[0].error

    def commit(
        self, member_id: str | None = None, *, ahead: int = 0, producer_id: int | None = None
    ) -> ErrorCode:
        return self.stage.commit(
            member_id=member_id or self.member,
            generation=self.generation + ahead,
            producer_id=producer_id,
        )

    def commit_alone(self, member_id: str = "", *, producer_id: int | None = None) -> ErrorCode:
        return self.stage.commit(member_id=member_id, producer_id=producer_id)

    def delete(self) -> ErrorCode:
        return self.stage.deleted("billing")[0]

    def delete_offsets(self) -> ErrorCode:
        return self.stage.delete_offsets(ORDERS).error


@each_case(("name", "state", "expected"), CASES)
def test_a_request_in_a_state(name: str, state: str, expected: ErrorCode | None) -> None:
    assert REQUESTS[name](OurSituation(state)) == expected


def test_every_request_is_in_the_table() -> None:
    assert TABLE.keys() == REQUESTS.keys()


# Heartbeats.


@pytest.mark.parametrize("state", ["preparing", "completing", "stable"])
def test_a_heartbeat_begins_a_new_session(state: str) -> None:
    situation = OurSituation(state)
    stage = situation.stage
    stage.advance(1_000)
    situation.heartbeat()
    timer = stage.timers[Timer(TimerKind.SESSION, "billing", situation.member)]
    assert timer.at_ms == stage.now_ms + SESSION_MS


@pytest.mark.parametrize("state", ["preparing", "stable"])
def test_a_commit_begins_a_new_session(state: str) -> None:
    situation = OurSituation(state)
    stage = situation.stage
    stage.advance(1_000)
    situation.commit()
    timer = stage.timers[Timer(TimerKind.SESSION, "billing", situation.member)]
    assert timer.at_ms == stage.now_ms + SESSION_MS


# Leaving.


def test_members_leave_together_and_each_is_answered() -> None:
    stage = Stage()
    leader, follower, third = stage.stable(3)
    answer = stage.leave(leader, "ghost", follower)
    assert answer == LeaveResult(
        leavers=(
            LeaverResult(leader, None, NONE),
            LeaverResult("ghost", None, UNKNOWN),
            LeaverResult(follower, None, NONE),
        )
    )
    assert stage.members() == [third]
    assert stage.group.roster.leader == third
    assert stage.state == "PreparingRebalance"


def test_the_last_to_leave_empties_the_group_at_once() -> None:
    stage = Stage()
    ids = stage.stable(2)
    stage.leave(*ids)
    assert (stage.state, stage.generation) == ("Empty", 2)
    assert stage.group.roster.leader is None
    assert {timer.kind for timer in stage.timers} == {TimerKind.EXPIRY}


def test_who_leaves_while_it_waits_is_told() -> None:
    stage = Stage()
    leader, follower = stage.completing(2)
    waiting = stage.sync(follower, 1)
    stage.leave(follower)
    assert stage.synced(waiting).error is UNKNOWN
    rejoin = stage.join(leader)
    stage.join_twice()
    stage.leave(leader)
    assert stage.joined(rejoin).generation == 2


def test_leaving_completes_a_generation_that_waits_for_nobody_else() -> None:
    stage = Stage()
    leader, follower = stage.stable(2)
    rejoin = stage.join(leader)
    stage.leave(follower)
    assert stage.joined(rejoin).generation == 2


def test_an_id_that_was_handed_out_is_given_up_without_a_rebalance() -> None:
    stage = Stage()
    (leader,) = stage.stable(1)
    late = stage.joined(stage.join()).member_id
    assert stage.leave(late).leavers == (LeaverResult(late, None, NONE),)
    assert stage.state == "Stable"
    assert stage.group.roster.pending == {}
    late = stage.joined(stage.join()).member_id
    rejoin = stage.join(leader)
    assert stage.waits(rejoin)
    stage.leave(late)
    assert stage.joined(rejoin).generation == 2


def test_an_administrator_removes_a_static_member_by_its_instance() -> None:
    stage = Stage()
    token = stage.join(instance_id="a")
    stage.advance(DELAY_MS)
    stage.sync_all([stage.joined(token).member_id])
    answer = stage.leave(Leaver("", "a"), Leaver("", "b"), Leaver("", None))
    assert [leaver.error for leaver in answer.leavers] == [NONE, UNKNOWN, UNKNOWN]
    assert stage.state == "Empty"


def test_other_types_of_members_keep_their_offsets_while_they_are_there() -> None:
    stage = Stage()
    stage.stable(1, protocol_type="connect")
    assert stage.delete_offsets().error is NON_EMPTY

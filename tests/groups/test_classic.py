"""The error of each request in each state, as in Kafka's coordinator."""

import pytest

from cases import each_case
from groups.error_table import CASES, NON_EMPTY, NONE, REQUESTS, TABLE, UNKNOWN
from groups.harness import DELAY_MS, ORDERS, SESSION_MS, Harness
from ottla.errors import ErrorCode
from ottla.groups.events import Leaver
from ottla.groups.responses import LeaveResult, LeaverResult
from ottla.groups.types import Timer, TimerKind


class OurSituation:
    """A group of our coordinator."""

    def __init__(self, state: str) -> None:
        self.harness = harness = Harness()
        self.member = "nobody"
        if state == "simple":
            harness.commit(1)
        elif state == "empty":
            harness.leave(*harness.stable(2))
        elif state == "preparing":
            self.member = harness.stable(2)[1]
            harness.join_twice()
        elif state == "completing":
            self.member = harness.completing(2)[1]
        elif state == "stable":
            self.member = harness.stable(2)[1]
        known = harness.coordinator.ledger.groups.get("billing")
        self.generation = known.generation if known else 0

    def join(self, member_id: str) -> ErrorCode | None:
        token = self.harness.join(member_id)
        return None if self.harness.waits(token) else self.harness.joined(token).error

    def sync(
        self,
        member_id: str | None = None,
        *,
        ahead: int = 0,
        protocol_type: str = "consumer",
        protocol_name: str = "range",
    ) -> ErrorCode | None:
        token = self.harness.sync(
            member_id or self.member,
            self.generation + ahead,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
        )
        return None if self.harness.waits(token) else self.harness.synced(token).error

    def heartbeat(self, member_id: str | None = None, *, ahead: int = 0) -> ErrorCode:
        return self.harness.heartbeat(member_id or self.member, self.generation + ahead)

    def leave(self, member_id: str | None = None) -> ErrorCode:
        answer = self.harness.leave(member_id or self.member)
        assert answer.error is NONE
        return answer.leavers[0].error

    def commit(
        self, member_id: str | None = None, *, ahead: int = 0, producer_id: int | None = None
    ) -> ErrorCode:
        return self.harness.commit(
            member_id=member_id or self.member,
            generation=self.generation + ahead,
            producer_id=producer_id,
        )

    def commit_alone(self, member_id: str = "", *, producer_id: int | None = None) -> ErrorCode:
        return self.harness.commit(member_id=member_id, producer_id=producer_id)

    def delete(self) -> ErrorCode:
        return self.harness.deleted("billing")[0]

    def delete_offsets(self) -> ErrorCode:
        return self.harness.delete_offsets(ORDERS).error


@each_case(("name", "state", "expected"), CASES)
def test_error_of_each_request_in_each_state(
    name: str, state: str, expected: ErrorCode | None
) -> None:
    assert REQUESTS[name](OurSituation(state)) == expected


def test_table_covers_every_request() -> None:
    assert TABLE.keys() == REQUESTS.keys()


# Heartbeats.


@pytest.mark.parametrize("state", ["preparing", "completing", "stable"])
def test_heartbeat_restarts_the_session(state: str) -> None:
    situation = OurSituation(state)
    harness = situation.harness
    harness.advance(1_000)
    situation.heartbeat()
    timer = harness.timers[Timer(TimerKind.SESSION, "billing", situation.member)]
    assert timer.at_ms == harness.now_ms + SESSION_MS


@pytest.mark.parametrize("state", ["preparing", "stable"])
def test_commit_restarts_the_session(state: str) -> None:
    situation = OurSituation(state)
    harness = situation.harness
    harness.advance(1_000)
    situation.commit()
    timer = harness.timers[Timer(TimerKind.SESSION, "billing", situation.member)]
    assert timer.at_ms == harness.now_ms + SESSION_MS


# Leave.


def test_each_leaving_member_gets_a_result() -> None:
    harness = Harness()
    leader, follower, third = harness.stable(3)
    answer = harness.leave(leader, "ghost", follower)
    assert answer == LeaveResult(
        leavers=(
            LeaverResult(leader, None, NONE),
            LeaverResult("ghost", None, UNKNOWN),
            LeaverResult(follower, None, NONE),
        )
    )
    assert harness.members() == [third]
    assert harness.group.roster.leader == third
    assert harness.state == "PreparingRebalance"


def test_last_member_to_leave_empties_the_group() -> None:
    harness = Harness()
    ids = harness.stable(2)
    harness.leave(*ids)
    assert (harness.state, harness.generation) == ("Empty", 2)
    assert harness.group.roster.leader is None
    assert {timer.kind for timer in harness.timers} == {TimerKind.EXPIRY}


def test_leaving_answers_the_pending_request() -> None:
    harness = Harness()
    leader, follower = harness.completing(2)
    waiting = harness.sync(follower, 1)
    harness.leave(follower)
    assert harness.synced(waiting).error is UNKNOWN
    rejoin = harness.join(leader)
    harness.join_twice()
    harness.leave(leader)
    assert harness.joined(rejoin).generation == 2


def test_leaving_completes_a_rebalance_that_waits_for_no_other() -> None:
    harness = Harness()
    leader, follower = harness.stable(2)
    rejoin = harness.join(leader)
    harness.leave(follower)
    assert harness.joined(rejoin).generation == 2


def test_leaving_with_an_assigned_id_causes_no_rebalance() -> None:
    harness = Harness()
    (leader,) = harness.stable(1)
    late = harness.joined(harness.join()).member_id
    assert harness.leave(late).leavers == (LeaverResult(late, None, NONE),)
    assert harness.state == "Stable"
    assert harness.group.roster.pending == {}
    late = harness.joined(harness.join()).member_id
    rejoin = harness.join(leader)
    assert harness.waits(rejoin)
    harness.leave(late)
    assert harness.joined(rejoin).generation == 2


def test_admin_removes_a_static_member_by_instance_id() -> None:
    harness = Harness()
    token = harness.join(instance_id="a")
    harness.advance(DELAY_MS)
    harness.sync_all([harness.joined(token).member_id])
    answer = harness.leave(Leaver("", "a"), Leaver("", "b"), Leaver("", None))
    assert [leaver.error for leaver in answer.leavers] == [NONE, UNKNOWN, UNKNOWN]
    assert harness.state == "Empty"


def test_offsets_of_an_active_connect_group_are_not_deleted() -> None:
    harness = Harness()
    harness.stable(1, protocol_type="connect")
    assert harness.delete_offsets().error is NON_EMPTY

"""State by event: which error each request gets, as Kafka's coordinator answers it."""

from collections.abc import Callable
from typing import Any

import pytest

from groups.stage import DELAY_MS, SESSION_MS, Stage
from ottla.errors import ErrorCode
from ottla.groups.answers import LeaveAnswer, LeaverAnswer
from ottla.groups.effects import Timer, TimerKind
from ottla.groups.events import Leaver

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
ILLEGAL = ErrorCode.ILLEGAL_GENERATION
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
NON_EMPTY = ErrorCode.NON_EMPTY_GROUP
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
WAITS = None

STATES = ("none", "simple", "empty", "preparing", "completing", "stable")


class Situation:
    """A group in a state, with a member that follows."""

    def __init__(self, state: str) -> None:
        self.stage = stage = Stage()
        self.member = "nobody"
        if state == "simple":
            stage.commit(1)
        elif state == "empty":
            ids = stage.stable(2)
            stage.leave(*ids)
        elif state == "preparing":
            self.member = stage.stable(2)[1]
            stage.join_twice()
        elif state == "completing":
            self.member = stage.completing(2)[1]
        elif state == "stable":
            self.member = stage.stable(2)[1]
        known = stage.coordinator.ledger.groups.get("billing")
        self.generation = known.generation if known else 0

    def heartbeat(self, member: str | None = None, ahead: int = 0) -> ErrorCode:
        return self.stage.heartbeat(member or self.member, self.generation + ahead)

    def sync(self, member: str | None = None, ahead: int = 0, **how: Any) -> ErrorCode | None:
        token = self.stage.sync(member or self.member, self.generation + ahead, **how)
        return None if self.stage.waits(token) else self.stage.synced(token).error

    def join(self, member: str) -> ErrorCode | None:
        token = self.stage.join(member)
        return None if self.stage.waits(token) else self.stage.joined(token).error

    def leave(self, member: str | None = None) -> ErrorCode:
        answer = self.stage.leave(member or self.member)
        assert answer.error is NONE
        return answer.leavers[0].error

    def commit(self, member: str | None = None, ahead: int = 0, **how: int) -> ErrorCode:
        return self.stage.commit(
            member_id=self.member if member is None else member,
            generation=self.generation + ahead,
            **how,
        )


REQUESTS: dict[str, Callable[[Situation], ErrorCode | None]] = {
    "join as new": lambda s: s.join(""),
    "join as a stranger": lambda s: s.join("stranger"),
    "join again": lambda s: s.join(s.member),
    "sync": lambda s: s.sync(),
    "sync as a stranger": lambda s: s.sync("stranger"),
    "sync of the last generation": lambda s: s.sync(ahead=-1),
    "sync of the next generation": lambda s: s.sync(ahead=1),
    "sync with another type": lambda s: s.sync(protocol_type="connect"),
    "sync with another protocol": lambda s: s.sync(protocol_name="mine"),
    "heartbeat": lambda s: s.heartbeat(),
    "heartbeat of a stranger": lambda s: s.heartbeat("stranger"),
    "heartbeat of the last generation": lambda s: s.heartbeat(ahead=-1),
    "leave": lambda s: s.leave(),
    "leave as a stranger": lambda s: s.leave("stranger"),
    "commit": lambda s: s.commit(),
    "commit of a stranger": lambda s: s.commit("stranger"),
    "commit of the last generation": lambda s: s.commit(ahead=-1),
    "commit by nobody": lambda s: s.stage.commit(),
    "commit by a member without generation": lambda s: s.stage.commit(member_id=s.member),
    "commit in a transaction": lambda s: s.commit(producer_id=1),
    "commit in a transaction, last generation": lambda s: s.commit(ahead=-1, producer_id=1),
    "commit in a transaction by nobody": lambda s: s.stage.commit(producer_id=1),
    "delete": lambda s: s.stage.deleted("billing")[0],
    "delete offsets": lambda s: s.stage.delete_offsets().error,
}

REQUIRED = ErrorCode.MEMBER_ID_REQUIRED

# For each request, what it gets in each of STATES. The generation of a commit to a group that is
# not there is 0, which version 9 and later are told with GROUP_ID_NOT_FOUND.
TABLE: dict[str, tuple[ErrorCode | None, ...]] = {
    "join as new": (REQUIRED,) * 6,
    "join as a stranger": (UNKNOWN,) * 6,
    "join again": (UNKNOWN, UNKNOWN, UNKNOWN, WAITS, NONE, NONE),
    "sync": (UNKNOWN, UNKNOWN, UNKNOWN, REBALANCE, WAITS, NONE),
    "sync as a stranger": (UNKNOWN,) * 6,
    "sync of the last generation": (UNKNOWN, UNKNOWN, UNKNOWN, ILLEGAL, ILLEGAL, ILLEGAL),
    "sync of the next generation": (UNKNOWN, UNKNOWN, UNKNOWN, ILLEGAL, ILLEGAL, ILLEGAL),
    "sync with another type": (UNKNOWN,) * 3 + (INCONSISTENT,) * 3,
    "sync with another protocol": (UNKNOWN,) * 3 + (INCONSISTENT,) * 3,
    "heartbeat": (UNKNOWN, UNKNOWN, UNKNOWN, REBALANCE, NONE, NONE),
    "heartbeat of a stranger": (UNKNOWN,) * 6,
    "heartbeat of the last generation": (UNKNOWN, UNKNOWN, UNKNOWN, ILLEGAL, ILLEGAL, ILLEGAL),
    "leave": (UNKNOWN, UNKNOWN, UNKNOWN, NONE, NONE, NONE),
    "leave as a stranger": (UNKNOWN,) * 6,
    "commit": (NOT_FOUND, UNKNOWN, UNKNOWN, NONE, REBALANCE, NONE),
    "commit of a stranger": (NOT_FOUND,) + (UNKNOWN,) * 5,
    "commit of the last generation": (NONE, NONE, UNKNOWN, ILLEGAL, ILLEGAL, ILLEGAL),
    "commit by nobody": (NONE, NONE, NONE, UNKNOWN, UNKNOWN, UNKNOWN),
    "commit by a member without generation": (NONE, NONE, NONE, ILLEGAL, ILLEGAL, ILLEGAL),
    "commit in a transaction": (ILLEGAL, UNKNOWN, UNKNOWN, NONE, NONE, NONE),
    "commit in a transaction, last generation": (NONE, NONE, UNKNOWN) + (ILLEGAL,) * 3,
    "commit in a transaction by nobody": (NONE,) * 6,
    "delete": (NOT_FOUND, NONE, NONE, NON_EMPTY, NON_EMPTY, NON_EMPTY),
    "delete offsets": (NOT_FOUND, NONE, NONE, NONE, NONE, NONE),
}


@pytest.mark.parametrize(
    ("request_name", "state", "expected"),
    [
        (name, state, expected)
        for name, row in TABLE.items()
        for state, expected in zip(STATES, row, strict=True)
    ],
)
def test_a_request_in_a_state(request_name: str, state: str, expected: ErrorCode | None) -> None:
    situation = Situation(state)
    assert REQUESTS[request_name](situation) == expected


def test_every_request_is_in_the_table() -> None:
    assert TABLE.keys() == REQUESTS.keys()


# Heartbeats.


@pytest.mark.parametrize("state", ["preparing", "completing", "stable"])
def test_a_heartbeat_begins_a_new_session(state: str) -> None:
    situation = Situation(state)
    stage = situation.stage
    stage.advance(1_000)
    situation.heartbeat()
    timer = stage.timers[Timer(TimerKind.SESSION, "billing", situation.member)]
    assert timer.at_ms == stage.now_ms + SESSION_MS


@pytest.mark.parametrize("state", ["preparing", "stable"])
def test_a_commit_begins_a_new_session(state: str) -> None:
    situation = Situation(state)
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
    assert answer == LeaveAnswer(
        leavers=(
            LeaverAnswer(leader, None, NONE),
            LeaverAnswer("ghost", None, UNKNOWN),
            LeaverAnswer(follower, None, NONE),
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
    assert stage.leave(late).leavers == (LeaverAnswer(late, None, NONE),)
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

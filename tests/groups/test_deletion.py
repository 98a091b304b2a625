"""Groups and offsets go: on request, and when their time has come (KIP-211)."""

import pytest

from groups.stage import (
    GROUP,
    ORDERS,
    RANGE,
    SESSION_MS,
    Stage,
    partition,
    subscription,
)
from groups.test_offset_commit import end
from ottla.errors import ErrorCode
from ottla.groups.config import GroupConfig
from ottla.groups.responses import GroupErrors
from ottla.groups.types import Protocol, Timer, TimerKind

BILLS = partition("bills")
RETENTION_MS = 7 * 86_400_000
CHECK_MS = 600_000


# On request.


def test_a_group_is_deleted_with_its_offsets() -> None:
    stage = Stage()
    ids = stage.stable(1)
    stage.commit(5, member_id=ids[0], generation=1)
    stage.leave(*ids)
    assert stage.deleted(GROUP, "ghost", GROUP) == [
        ErrorCode.NONE,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]
    assert stage.state == "Dead"
    assert stage.offset() == -1
    stage.crash()
    assert stage.state == "Dead"
    assert stage.offset() == -1


def test_what_was_sent_before_the_deletion_goes_too() -> None:
    stage = Stage(auto=False)
    stage.send_commit(4)
    stage.commit_append()
    stage.send_commit(5, at=BILLS)
    stage.delete_groups(GROUP)
    stage.commit_append()
    stage.commit_append()
    assert stage.coordinator.list_groups().groups == ()
    stage.crash()
    assert stage.coordinator.list_groups().groups == ()


def test_what_is_sent_after_the_deletion_stays() -> None:
    stage = Stage(auto=False)
    stage.send_commit(4)
    stage.commit_append()
    stage.delete_groups(GROUP)
    stage.send_commit(5)
    stage.commit_append()
    stage.commit_append()
    assert stage.offset() == 5
    stage.crash()
    assert stage.offset() == 5


def test_whoever_joins_behind_the_deletion_is_in_a_new_group() -> None:
    stage = Stage()
    stage.leave(*stage.stable(1))
    stage.auto = False
    stage.delete_groups(GROUP)
    _, token = stage.join_twice()
    stage.commit_append()
    stage.advance(3_000)
    assert stage.joined(token).generation == 1


def test_a_deletion_that_cannot_be_stored_leaves_all_as_it_was() -> None:
    stage = Stage()
    stage.commit(5)
    stage.leave(*stage.stable(1))
    stage.auto = False
    token = stage.delete_groups(GROUP, "ghost")
    stage.fail_append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    told = ErrorCode.NOT_COORDINATOR
    assert stage.answer(token, GroupErrors).groups == ((GROUP, told), ("ghost", told))
    assert (stage.state, stage.generation, stage.offset()) == ("Empty", 2, 5)


def test_ids_handed_out_do_not_come_back_with_a_group_whose_deletion_failed() -> None:
    stage = Stage()
    stage.leave(*stage.stable(1))
    late = stage.joined(stage.join()).member_id
    stage.auto = False
    stage.delete_groups(GROUP)
    stage.fail_append()
    assert stage.joined(stage.join(late)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_group_is_not_replaced_by_one_whose_deletion_failed() -> None:
    stage = Stage()
    stage.leave(*stage.stable(1))
    stage.auto = False
    stage.delete_groups(GROUP)
    member_id, _ = stage.join_twice()
    stage.fail_append()
    assert stage.members() == [member_id]


def test_ids_handed_out_go_with_their_group() -> None:
    stage = Stage()
    stage.commit(5)
    stage.join()
    assert stage.deleted(GROUP) == [ErrorCode.NONE]
    assert stage.timers.keys() == {Timer(TimerKind.EXPIRY)}
    assert stage.joined(stage.join("client-1")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_deletion_may_be_written_in_pieces() -> None:
    stage = Stage(auto=False)
    stage.send_commit()
    stage.commit_append()
    stage.delete_groups(GROUP)
    assert not stage.appends[0].atomic


def test_offsets_are_deleted_one_by_one() -> None:
    stage = Stage()
    stage.commit(5)
    stage.commit(6, at=BILLS)
    answer = stage.delete_offsets(ORDERS, partition("never"))
    assert answer.partitions == (
        (ORDERS, ErrorCode.NONE),
        (partition("never"), ErrorCode.NONE),
    )
    assert (stage.offset(), stage.offset(BILLS)) == (-1, 6)
    assert len(stage.log) == 3


def test_offsets_of_topics_that_members_read_stay() -> None:
    stage = Stage()
    (member,) = stage.stable(1)
    stage.commit(5, member_id=member, generation=1)
    stage.commit(6, member_id=member, generation=1, at=BILLS)
    answer = stage.delete_offsets(ORDERS, BILLS)
    assert answer.partitions == (
        (ORDERS, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
        (BILLS, ErrorCode.NONE),
    )
    assert (stage.offset(), stage.offset(BILLS)) == (5, -1)


def test_when_it_is_not_known_what_members_read_all_offsets_stay() -> None:
    stage = Stage()
    (member,) = stage.stable(1, protocols=(Protocol("range", b"?"),))
    stage.commit(5, member_id=member, generation=1)
    answer = stage.delete_offsets(ORDERS)
    assert answer.partitions == ((ORDERS, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),)
    stage.leave(member)
    assert stage.delete_offsets(ORDERS).partitions == ((ORDERS, ErrorCode.NONE),)


def test_a_subscription_of_a_client_that_forgets_fields_is_read() -> None:
    stage = Stage()
    half = b"\0\1" + subscription("bills")[2:-4]  # version 1 without its owned partitions
    stage.stable(1, protocols=(Protocol("range", half),))
    assert stage.group.subscribed == {"bills"}


# When their time has come.


def idle(stage: Stage, milliseconds: int) -> None:
    """Let time pass while members that are there stay alive."""
    end_ms = stage.now_ms + milliseconds
    while stage.now_ms < end_ms:
        for member in list(stage.group.roster) if GROUP in stage.coordinator.ledger.groups else []:
            stage.heartbeat(member.member_id, stage.generation)
        stage.advance(min(SESSION_MS // 2, end_ms - stage.now_ms))


SHORT = GroupConfig(offsets_retention_ms=60_000, offsets_retention_check_interval_ms=1_000)


def test_a_week_after_its_last_member_left_a_group_has_no_offsets() -> None:
    stage = Stage()
    (member,) = stage.stable(1)
    stage.commit(5, member_id=member, generation=1)
    stage.advance(5_000)
    stage.leave(member)
    left_ms = stage.now_ms
    stage.advance(RETENTION_MS - CHECK_MS)
    assert stage.offset() == 5
    stage.advance(2 * CHECK_MS)
    assert stage.offset() == -1
    assert stage.state == "Dead"
    stage.crash()
    assert stage.coordinator.list_groups().groups == ()
    assert stage.now_ms >= left_ms + RETENTION_MS


def test_the_time_since_empty_survives_a_restart() -> None:
    stage = Stage(SHORT)
    (member,) = stage.stable(1)
    stage.commit(5, member_id=member, generation=1)
    stage.advance(9_000)
    stage.leave(member)
    stage.advance(30_000)
    stage.crash()
    stage.advance(29_000)
    assert stage.offset() == 5
    stage.advance(2_000)
    assert stage.offset() == -1


def test_a_simple_groups_offsets_go_by_the_time_of_their_commit() -> None:
    stage = Stage(SHORT)
    stage.commit(5)
    stage.advance(30_000)
    stage.commit(6, at=BILLS)
    stage.advance(30_000)
    assert (stage.offset(), stage.offset(BILLS)) == (-1, 6)
    stage.advance(30_000)
    assert stage.state == "Dead"


def test_in_a_stable_group_only_topics_without_a_reader_expire() -> None:
    stage = Stage(SHORT)
    (member,) = stage.stable(1)
    stage.commit(5, member_id=member, generation=1)
    stage.commit(6, member_id=member, generation=1, at=BILLS)
    idle(stage, 59_000)
    assert stage.offset(BILLS) == 6
    idle(stage, 2_000)
    assert (stage.offset(), stage.offset(BILLS)) == (5, -1)
    assert stage.state == "Stable"


@pytest.mark.parametrize(
    "how",
    [{"protocol_type": "connect"}, {"protocols": (Protocol("range", b"?"),)}],
    ids=["of another type", "of whom nobody knows what they read"],
)
def test_while_members_are_there_nothing_of_theirs_expires(how: dict[str, object]) -> None:
    stage = Stage(SHORT)
    (member,) = stage.stable(1, **how)
    stage.commit(5, member_id=member, generation=1)
    idle(stage, 120_000)
    assert stage.offset() == 5


def test_while_a_group_rebalances_nothing_expires() -> None:
    stage = Stage(SHORT)
    leader, follower = stage.stable(2, rebalance_ms=200_000)
    stage.commit(5, member_id=leader, generation=1, at=BILLS)
    stage.join(leader, rebalance_ms=200_000)
    for _ in range(20):
        stage.heartbeat(follower, 1)
        stage.advance(5_000)
    assert stage.state == "PreparingRebalance"
    assert stage.offset(BILLS) == 5


@pytest.mark.parametrize("reload", [False, True])
def test_a_time_that_an_old_client_gave_counts_before_all(reload: bool) -> None:
    stage = Stage(SHORT)
    stage.commit(5, but={"retention_ms": 5_000})
    stage.commit(6, at=BILLS, but={"retention_ms": 100_000})
    if reload:
        stage.crash()
    stage.advance(4_000)
    assert stage.offset() == 5
    stage.advance(1_000)
    assert (stage.offset(), stage.offset(BILLS)) == (-1, 6)
    stage.advance(94_000)
    assert stage.offset(BILLS) == 6
    stage.advance(1_000)
    assert stage.offset(BILLS) == -1


def test_a_retention_beyond_all_time_is_for_ever() -> None:
    stage = Stage(SHORT)
    assert stage.commit(5, but={"retention_ms": 2**63 - 1}) is ErrorCode.NONE
    stage.crash()
    stage.advance(100_000)
    assert stage.offset() == 5


def test_nothing_expires_while_a_commit_for_it_is_pending() -> None:
    stage = Stage(SHORT)
    stage.commit(5)
    stage.commit(6, producer_id=1)
    stage.advance(100_000)
    assert stage.offset() == 5
    end(stage, 1, committed=False)
    stage.advance(1_000)
    assert stage.offset() == -1


def test_a_group_without_offsets_goes_at_the_next_check() -> None:
    stage = Stage(SHORT)
    stage.leave(*stage.stable(1))
    stage.advance(1_000)
    assert stage.state == "Dead"
    stage.crash()
    assert stage.state == "Dead"


def test_a_group_with_ids_handed_out_stays() -> None:
    stage = Stage(SHORT)
    stage.leave(*stage.stable(1))
    member_id = stage.joined(stage.join()).member_id
    stage.advance(5_000)
    assert stage.waits(stage.join(member_id))


def test_a_commit_behind_the_expiry_stays() -> None:
    stage = Stage(SHORT)
    stage.commit(5)
    stage.auto = False
    stage.advance(60_000)
    assert stage.appends
    stage.send_commit(7)
    while stage.appends:
        stage.commit_append()
    assert stage.offset() == 7
    stage.crash()
    assert stage.offset() == 7


def test_an_expiry_that_cannot_be_stored_is_tried_again() -> None:
    stage = Stage(SHORT)
    stage.commit(5)
    stage.auto = False
    stage.advance(60_000)
    stage.fail_append()
    assert stage.offset() == 5
    stage.auto = True
    stage.advance(1_000)
    assert stage.offset() == -1


def test_a_member_of_a_group_without_known_time_of_emptiness() -> None:
    # Logs of old releases do not say since when a group is empty.
    stage = Stage(SHORT)
    (member,) = stage.stable(1, protocols=(RANGE,))
    stage.commit(5, member_id=member, generation=1)
    stage.leave(member)
    stage.group.state_since_ms = None
    assert stage.group.idle_since_ms(77) == 77

"""Groups and offsets go: on request, and when their time has come (KIP-211)."""

import pytest

from groups.harness import (
    GROUP,
    ORDERS,
    RANGE,
    SESSION_MS,
    Harness,
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
    harness = Harness()
    ids = harness.stable(1)
    harness.commit(5, member_id=ids[0], generation=1)
    harness.leave(*ids)
    assert harness.deleted(GROUP, "ghost", GROUP) == [
        ErrorCode.NONE,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ]
    assert harness.state == "Dead"
    assert harness.offset() == -1
    harness.crash()
    assert harness.state == "Dead"
    assert harness.offset() == -1


def test_what_was_sent_before_the_deletion_goes_too() -> None:
    harness = Harness(auto=False)
    harness.send_commit(4)
    harness.commit_append()
    harness.send_commit(5, at=BILLS)
    harness.delete_groups(GROUP)
    harness.commit_append()
    harness.commit_append()
    assert harness.coordinator.list_groups().groups == ()
    harness.crash()
    assert harness.coordinator.list_groups().groups == ()


def test_what_is_sent_after_the_deletion_stays() -> None:
    harness = Harness(auto=False)
    harness.send_commit(4)
    harness.commit_append()
    harness.delete_groups(GROUP)
    harness.send_commit(5)
    harness.commit_append()
    harness.commit_append()
    assert harness.offset() == 5
    harness.crash()
    assert harness.offset() == 5


def test_whoever_joins_behind_the_deletion_is_in_a_new_group() -> None:
    harness = Harness()
    harness.leave(*harness.stable(1))
    harness.auto = False
    harness.delete_groups(GROUP)
    _, token = harness.join_twice()
    harness.commit_append()
    harness.advance(3_000)
    assert harness.joined(token).generation == 1


def test_a_deletion_that_cannot_be_stored_leaves_all_as_it_was() -> None:
    harness = Harness()
    harness.commit(5)
    harness.leave(*harness.stable(1))
    harness.auto = False
    token = harness.delete_groups(GROUP, "ghost")
    harness.fail_append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    told = ErrorCode.NOT_COORDINATOR
    assert harness.answer(token, GroupErrors).groups == ((GROUP, told), ("ghost", told))
    assert (harness.state, harness.generation, harness.offset()) == ("Empty", 2, 5)


def test_ids_handed_out_do_not_come_back_with_a_group_whose_deletion_failed() -> None:
    harness = Harness()
    harness.leave(*harness.stable(1))
    late = harness.joined(harness.join()).member_id
    harness.auto = False
    harness.delete_groups(GROUP)
    harness.fail_append()
    assert harness.joined(harness.join(late)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_group_is_not_replaced_by_one_whose_deletion_failed() -> None:
    harness = Harness()
    harness.leave(*harness.stable(1))
    harness.auto = False
    harness.delete_groups(GROUP)
    member_id, _ = harness.join_twice()
    harness.fail_append()
    assert harness.members() == [member_id]


def test_ids_handed_out_go_with_their_group() -> None:
    harness = Harness()
    harness.commit(5)
    harness.join()
    assert harness.deleted(GROUP) == [ErrorCode.NONE]
    assert harness.timers.keys() == {Timer(TimerKind.EXPIRY)}
    assert harness.joined(harness.join("client-1")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_deletion_may_be_written_in_pieces() -> None:
    harness = Harness(auto=False)
    harness.send_commit()
    harness.commit_append()
    harness.delete_groups(GROUP)
    assert not harness.appends[0].atomic


def test_offsets_are_deleted_one_by_one() -> None:
    harness = Harness()
    harness.commit(5)
    harness.commit(6, at=BILLS)
    answer = harness.delete_offsets(ORDERS, partition("never"))
    assert answer.partitions == (
        (ORDERS, ErrorCode.NONE),
        (partition("never"), ErrorCode.NONE),
    )
    assert (harness.offset(), harness.offset(BILLS)) == (-1, 6)
    assert len(harness.log) == 3


def test_offsets_of_topics_that_members_read_stay() -> None:
    harness = Harness()
    (member,) = harness.stable(1)
    harness.commit(5, member_id=member, generation=1)
    harness.commit(6, member_id=member, generation=1, at=BILLS)
    answer = harness.delete_offsets(ORDERS, BILLS)
    assert answer.partitions == (
        (ORDERS, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),
        (BILLS, ErrorCode.NONE),
    )
    assert (harness.offset(), harness.offset(BILLS)) == (5, -1)


def test_when_it_is_not_known_what_members_read_all_offsets_stay() -> None:
    harness = Harness()
    (member,) = harness.stable(1, protocols=(Protocol("range", b"?"),))
    harness.commit(5, member_id=member, generation=1)
    answer = harness.delete_offsets(ORDERS)
    assert answer.partitions == ((ORDERS, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),)
    harness.leave(member)
    assert harness.delete_offsets(ORDERS).partitions == ((ORDERS, ErrorCode.NONE),)


def test_a_subscription_of_a_client_that_forgets_fields_is_read() -> None:
    harness = Harness()
    half = b"\0\1" + subscription("bills")[2:-4]  # version 1 without its owned partitions
    harness.stable(1, protocols=(Protocol("range", half),))
    assert harness.group.subscribed == {"bills"}


# When their time has come.


def idle(harness: Harness, milliseconds: int) -> None:
    """Let time pass while members that are there stay alive."""
    end_ms = harness.now_ms + milliseconds
    while harness.now_ms < end_ms:
        for member in (
            list(harness.group.roster) if GROUP in harness.coordinator.ledger.groups else []
        ):
            harness.heartbeat(member.member_id, harness.generation)
        harness.advance(min(SESSION_MS // 2, end_ms - harness.now_ms))


SHORT = GroupConfig(offsets_retention_ms=60_000, offsets_retention_check_interval_ms=1_000)


def test_a_week_after_its_last_member_left_a_group_has_no_offsets() -> None:
    harness = Harness()
    (member,) = harness.stable(1)
    harness.commit(5, member_id=member, generation=1)
    harness.advance(5_000)
    harness.leave(member)
    left_ms = harness.now_ms
    harness.advance(RETENTION_MS - CHECK_MS)
    assert harness.offset() == 5
    harness.advance(2 * CHECK_MS)
    assert harness.offset() == -1
    assert harness.state == "Dead"
    harness.crash()
    assert harness.coordinator.list_groups().groups == ()
    assert harness.now_ms >= left_ms + RETENTION_MS


def test_the_time_since_empty_survives_a_restart() -> None:
    harness = Harness(SHORT)
    (member,) = harness.stable(1)
    harness.commit(5, member_id=member, generation=1)
    harness.advance(9_000)
    harness.leave(member)
    harness.advance(30_000)
    harness.crash()
    harness.advance(29_000)
    assert harness.offset() == 5
    harness.advance(2_000)
    assert harness.offset() == -1


def test_a_simple_groups_offsets_go_by_the_time_of_their_commit() -> None:
    harness = Harness(SHORT)
    harness.commit(5)
    harness.advance(30_000)
    harness.commit(6, at=BILLS)
    harness.advance(30_000)
    assert (harness.offset(), harness.offset(BILLS)) == (-1, 6)
    harness.advance(30_000)
    assert harness.state == "Dead"


def test_in_a_stable_group_only_topics_without_a_reader_expire() -> None:
    harness = Harness(SHORT)
    (member,) = harness.stable(1)
    harness.commit(5, member_id=member, generation=1)
    harness.commit(6, member_id=member, generation=1, at=BILLS)
    idle(harness, 59_000)
    assert harness.offset(BILLS) == 6
    idle(harness, 2_000)
    assert (harness.offset(), harness.offset(BILLS)) == (5, -1)
    assert harness.state == "Stable"


@pytest.mark.parametrize(
    "how",
    [{"protocol_type": "connect"}, {"protocols": (Protocol("range", b"?"),)}],
    ids=["of another type", "of whom nobody knows what they read"],
)
def test_while_members_are_there_nothing_of_theirs_expires(how: dict[str, object]) -> None:
    harness = Harness(SHORT)
    (member,) = harness.stable(1, **how)
    harness.commit(5, member_id=member, generation=1)
    idle(harness, 120_000)
    assert harness.offset() == 5


def test_while_a_group_rebalances_nothing_expires() -> None:
    harness = Harness(SHORT)
    leader, follower = harness.stable(2, rebalance_ms=200_000)
    harness.commit(5, member_id=leader, generation=1, at=BILLS)
    harness.join(leader, rebalance_ms=200_000)
    for _ in range(20):
        harness.heartbeat(follower, 1)
        harness.advance(5_000)
    assert harness.state == "PreparingRebalance"
    assert harness.offset(BILLS) == 5


@pytest.mark.parametrize("reload", [False, True])
def test_a_time_that_an_old_client_gave_counts_before_all(reload: bool) -> None:
    harness = Harness(SHORT)
    harness.commit(5, but={"retention_ms": 5_000})
    harness.commit(6, at=BILLS, but={"retention_ms": 100_000})
    if reload:
        harness.crash()
    harness.advance(4_000)
    assert harness.offset() == 5
    harness.advance(1_000)
    assert (harness.offset(), harness.offset(BILLS)) == (-1, 6)
    harness.advance(94_000)
    assert harness.offset(BILLS) == 6
    harness.advance(1_000)
    assert harness.offset(BILLS) == -1


def test_a_retention_beyond_all_time_is_for_ever() -> None:
    harness = Harness(SHORT)
    assert harness.commit(5, but={"retention_ms": 2**63 - 1}) is ErrorCode.NONE
    harness.crash()
    harness.advance(100_000)
    assert harness.offset() == 5


def test_nothing_expires_while_a_commit_for_it_is_pending() -> None:
    harness = Harness(SHORT)
    harness.commit(5)
    harness.commit(6, producer_id=1)
    harness.advance(100_000)
    assert harness.offset() == 5
    end(harness, 1, committed=False)
    harness.advance(1_000)
    assert harness.offset() == -1


def test_a_group_without_offsets_goes_at_the_next_check() -> None:
    harness = Harness(SHORT)
    harness.leave(*harness.stable(1))
    harness.advance(1_000)
    assert harness.state == "Dead"
    harness.crash()
    assert harness.state == "Dead"


def test_a_group_with_ids_handed_out_stays() -> None:
    harness = Harness(SHORT)
    harness.leave(*harness.stable(1))
    member_id = harness.joined(harness.join()).member_id
    harness.advance(5_000)
    assert harness.waits(harness.join(member_id))


def test_a_commit_behind_the_expiry_stays() -> None:
    harness = Harness(SHORT)
    harness.commit(5)
    harness.auto = False
    harness.advance(60_000)
    assert harness.appends
    harness.send_commit(7)
    while harness.appends:
        harness.commit_append()
    assert harness.offset() == 7
    harness.crash()
    assert harness.offset() == 7


def test_an_expiry_that_cannot_be_stored_is_tried_again() -> None:
    harness = Harness(SHORT)
    harness.commit(5)
    harness.auto = False
    harness.advance(60_000)
    harness.fail_append()
    assert harness.offset() == 5
    harness.auto = True
    harness.advance(1_000)
    assert harness.offset() == -1


def test_a_member_of_a_group_without_known_time_of_emptiness() -> None:
    # Logs of old releases do not say since when a group is empty.
    harness = Harness(SHORT)
    (member,) = harness.stable(1, protocols=(RANGE,))
    harness.commit(5, member_id=member, generation=1)
    harness.leave(member)
    harness.group.state_since_ms = None
    assert harness.group.idle_since_ms(77) == 77

"""Deletion of groups and offsets: on request and by expiry (KIP-211)."""

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


def test_group_is_deleted_with_its_offsets() -> None:
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


def test_commit_in_flight_before_the_deletion_is_deleted() -> None:
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


def test_commit_after_the_deletion_survives() -> None:
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


def test_join_after_the_deletion_creates_a_new_group() -> None:
    harness = Harness()
    harness.leave(*harness.stable(1))
    harness.auto = False
    harness.delete_groups(GROUP)
    _, token = harness.join_twice()
    harness.commit_append()
    harness.advance(3_000)
    assert harness.joined(token).generation == 1


def test_failed_deletion_changes_nothing() -> None:
    harness = Harness()
    harness.commit(5)
    harness.leave(*harness.stable(1))
    harness.auto = False
    token = harness.delete_groups(GROUP, "ghost")
    harness.fail_append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    told = ErrorCode.NOT_COORDINATOR
    assert harness.answer(token, GroupErrors).groups == ((GROUP, told), ("ghost", told))
    assert (harness.state, harness.generation, harness.offset()) == ("Empty", 2, 5)


def test_failed_deletion_does_not_restore_assigned_ids() -> None:
    harness = Harness()
    harness.leave(*harness.stable(1))
    late = harness.joined(harness.join()).member_id
    harness.auto = False
    harness.delete_groups(GROUP)
    harness.fail_append()
    assert harness.joined(harness.join(late)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_failed_deletion_does_not_replace_a_new_group() -> None:
    harness = Harness()
    harness.leave(*harness.stable(1))
    harness.auto = False
    harness.delete_groups(GROUP)
    member_id, _ = harness.join_twice()
    harness.fail_append()
    assert harness.members() == [member_id]


def test_assigned_ids_are_deleted_with_their_group() -> None:
    harness = Harness()
    harness.commit(5)
    harness.join()
    assert harness.deleted(GROUP) == [ErrorCode.NONE]
    assert harness.timers.keys() == {Timer(TimerKind.EXPIRY)}
    assert harness.joined(harness.join("client-1")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_deletion_may_be_split_into_batches() -> None:
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


def test_offsets_of_subscribed_topics_are_not_deleted() -> None:
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


def test_unknown_subscription_protects_all_offsets() -> None:
    harness = Harness()
    (member,) = harness.stable(1, protocols=(Protocol("range", b"?"),))
    harness.commit(5, member_id=member, generation=1)
    answer = harness.delete_offsets(ORDERS)
    assert answer.partitions == ((ORDERS, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC),)
    harness.leave(member)
    assert harness.delete_offsets(ORDERS).partitions == ((ORDERS, ErrorCode.NONE),)


def test_subscription_with_missing_fields_is_read() -> None:
    harness = Harness()
    half = b"\0\1" + subscription("bills")[2:-4]  # version 1 without owned partitions
    harness.stable(1, protocols=(Protocol("range", half),))
    assert harness.group.subscribed == {"bills"}


# Expiry.


def idle(harness: Harness, milliseconds: int) -> None:
    """Advance time while members stay alive."""
    end_ms = harness.now_ms + milliseconds
    while harness.now_ms < end_ms:
        for member in (
            list(harness.group.roster) if GROUP in harness.coordinator.ledger.groups else []
        ):
            harness.heartbeat(member.member_id, harness.generation)
        harness.advance(min(SESSION_MS // 2, end_ms - harness.now_ms))


SHORT = GroupConfig(offsets_retention_ms=60_000, offsets_retention_check_interval_ms=1_000)


def test_offsets_expire_a_week_after_the_group_is_empty() -> None:
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


def test_time_since_empty_survives_a_restart() -> None:
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


def test_simple_group_offsets_expire_by_commit_time() -> None:
    harness = Harness(SHORT)
    harness.commit(5)
    harness.advance(30_000)
    harness.commit(6, at=BILLS)
    harness.advance(30_000)
    assert (harness.offset(), harness.offset(BILLS)) == (-1, 6)
    harness.advance(30_000)
    assert harness.state == "Dead"


def test_only_unsubscribed_topics_expire_in_a_stable_group() -> None:
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
def test_subscribed_offsets_of_active_members_do_not_expire(how: dict[str, object]) -> None:
    harness = Harness(SHORT)
    (member,) = harness.stable(1, **how)
    harness.commit(5, member_id=member, generation=1)
    idle(harness, 120_000)
    assert harness.offset() == 5


def test_nothing_expires_during_a_rebalance() -> None:
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
def test_expiry_given_by_an_old_client_takes_precedence(reload: bool) -> None:
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


def test_overflowing_retention_never_expires() -> None:
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


def test_group_without_offsets_is_deleted_at_the_next_check() -> None:
    harness = Harness(SHORT)
    harness.leave(*harness.stable(1))
    harness.advance(1_000)
    assert harness.state == "Dead"
    harness.crash()
    assert harness.state == "Dead"


def test_group_with_assigned_ids_is_kept() -> None:
    harness = Harness(SHORT)
    harness.leave(*harness.stable(1))
    member_id = harness.joined(harness.join()).member_id
    harness.advance(5_000)
    assert harness.waits(harness.join(member_id))


def test_commit_after_the_expiry_survives() -> None:
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


def test_failed_expiry_is_retried() -> None:
    harness = Harness(SHORT)
    harness.commit(5)
    harness.auto = False
    harness.advance(60_000)
    harness.fail_append()
    assert harness.offset() == 5
    harness.auto = True
    harness.advance(1_000)
    assert harness.offset() == -1


def test_unknown_empty_time_falls_back_to_commit_time() -> None:
    # Logs of old releases do not record since when a group is empty.
    harness = Harness(SHORT)
    (member,) = harness.stable(1, protocols=(RANGE,))
    harness.commit(5, member_id=member, generation=1)
    harness.leave(member)
    harness.group.state_since_ms = None
    assert harness.group.idle_since_ms(77) == 77

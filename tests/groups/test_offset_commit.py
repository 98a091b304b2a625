"""Commits and fetches of offsets."""

import pytest

from cases import each_case
from groups.harness import ORDERS, Entry, Harness, partition
from ottla.errors import ErrorCode
from ottla.groups.config import GroupConfig
from ottla.groups.effects import OffsetsStored
from ottla.groups.events import PartitionsDeleted, TransactionEnded
from ottla.groups.responses import FetchedOffset, PartitionErrors
from ottla.groups.types import OffsetToCommit
from ottla.ids import ZERO_UUID, ProducerId, Uuid

BILLS = partition("bills", 3)
ONE = Uuid(bytes(15) + b"\1")
TWO = Uuid(bytes(15) + b"\2")
UNSTABLE = FetchedOffset(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)


def end(harness: Harness, producer_id: int, *, committed: bool) -> None:
    """Write a transaction marker to the log and notify the coordinator."""
    producer = ProducerId(producer_id)
    harness.log.append(Entry(None, producer, committed))
    harness.do(TransactionEnded(producer, committed))


def test_committed_offset_is_fetched_with_epoch_and_metadata() -> None:
    harness = Harness()
    assert harness.commit(5) is ErrorCode.NONE
    assert harness.fetch() == FetchedOffset(5, 2, "note")
    assert harness.fetch(BILLS) == FetchedOffset(-1, -1, "")


def test_all_offsets_of_a_group_are_fetched() -> None:
    harness = Harness()
    harness.commit(5)
    harness.commit(6, at=BILLS)
    harness.commit(7, group_id="other")
    offsets = harness.coordinator.fetch_offsets("billing", None).offsets
    assert {at: fetched.offset for at, fetched in offsets.items()} == {ORDERS: 5, BILLS: 6}
    assert harness.coordinator.fetch_offsets("nobody", None).offsets == {}


def test_null_metadata_is_stored_as_empty() -> None:
    harness = Harness()
    harness.commit(but={"offsets": (OffsetToCommit(ORDERS, 1),)})
    assert harness.fetch() == FetchedOffset(1, -1, "")


@each_case(
    ("note", "fits"),
    [("x" * 8, True), ("x" * 9, False), ("ä" * 8, True), ("😀" * 4, True), ("😀" * 5, False)],
)
def test_metadata_length_is_counted_in_utf16_units(note: str, fits: bool) -> None:
    harness = Harness(GroupConfig(offset_metadata_length_max=8))
    error = harness.commit(but={"offsets": (OffsetToCommit(ORDERS, 1, 1, note),)})
    assert error is (ErrorCode.NONE if fits else ErrorCode.OFFSET_METADATA_TOO_LARGE)
    assert harness.offset() == (1 if fits else -1)


def test_refused_partition_does_not_block_the_others() -> None:
    harness = Harness()
    asked = (
        OffsetToCommit(ORDERS, 1, 1, "x" * 5_000),
        OffsetToCommit(BILLS, 2),
        OffsetToCommit(partition("t" * 250), 3),
    )
    token = harness.send_commit(but={"offsets": asked})
    assert harness.answer(token, PartitionErrors).partitions == (
        (ORDERS, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        (BILLS, ErrorCode.NONE),
        (partition("t" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
    )
    assert (harness.offset(), harness.offset(BILLS)) == (-1, 2)


def test_last_duplicate_partition_of_a_commit_wins() -> None:
    harness = Harness()
    asked = (OffsetToCommit(ORDERS, 8), OffsetToCommit(ORDERS, 7))
    harness.send_commit(but={"offsets": asked})
    assert harness.offset() == 7
    harness.crash()
    assert harness.offset() == 7


def test_offset_is_committed_when_it_is_in_the_log() -> None:
    harness = Harness(auto=False)
    token = harness.send_commit(5)
    (append,) = harness.appends
    assert isinstance(append.then, OffsetsStored)
    assert harness.waits(token)
    assert harness.offset() == -1
    assert harness.fetch(stable=True) == UNSTABLE
    harness.commit_append()
    assert harness.answer(token, PartitionErrors).partitions == ((ORDERS, ErrorCode.NONE),)
    assert harness.fetch(stable=True) == harness.fetch() == FetchedOffset(5, 2, "note")


@each_case(
    ("error", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_failed_append_commits_nothing(error: ErrorCode, told: ErrorCode) -> None:
    harness = Harness()
    harness.commit(4)
    harness.auto = False
    token = harness.send_commit(5)
    harness.fail_append(error)
    assert harness.answer(token, PartitionErrors).partitions == ((ORDERS, told),)
    assert harness.fetch(stable=True).offset == 4


def test_failed_commit_leaves_no_simple_group() -> None:
    harness = Harness(auto=False)
    harness.send_commit(5)
    harness.fail_append()
    assert harness.coordinator.list_groups().groups == ()


def test_failed_commit_and_refused_join_leave_no_group() -> None:
    harness = Harness(auto=False)
    harness.send_commit(5)
    assert harness.joined(harness.join(protocols=())).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    harness.fail_append()
    assert harness.coordinator.ledger.groups == {}


def test_commit_without_offsets_gets_a_response() -> None:
    harness = Harness()
    token = harness.send_commit(but={"offsets": ()})
    assert harness.answer(token, PartitionErrors) == PartitionErrors()
    assert harness.log == []


def test_missing_group_is_illegal_generation_before_version_9() -> None:
    harness = Harness()
    old = {"knows_group_id_not_found": False}
    error = harness.commit(member_id="m", generation=3, but=old)
    assert error is ErrorCode.ILLEGAL_GENERATION
    assert harness.commit(member_id="m", generation=3) is ErrorCode.GROUP_ID_NOT_FOUND


def test_empty_group_id_can_only_have_offsets() -> None:
    harness = Harness()
    assert harness.commit(5, group_id="") is ErrorCode.NONE
    assert harness.offset(group_id="") == 5
    invalid = ErrorCode.INVALID_GROUP_ID
    assert harness.commit(5, group_id="", producer_id=1) is invalid
    assert harness.joined(harness.join(group_id="")).error is invalid
    assert harness.synced(harness.sync("m", 1, group_id="")).error is invalid
    assert harness.leave("m", group_id="").error is invalid
    assert harness.delete_offsets(group_id="").error is invalid
    assert harness.deleted("") == [ErrorCode.NONE]


@each_case(
    ("committed_for", "asked_for", "offset"),
    [(ONE, ONE, 5), (ONE, TWO, -1), (ONE, ZERO_UUID, 5), (ZERO_UUID, TWO, 5)],
)
def test_recreated_topic_has_no_committed_offset(
    committed_for: Uuid, asked_for: Uuid, offset: int
) -> None:
    harness = Harness()
    asked = (OffsetToCommit(ORDERS, 5, topic_id=committed_for),)
    harness.commit(but={"offsets": asked})
    harness.crash()
    answer = harness.coordinator.fetch_offsets("billing", [ORDERS], topic_ids={"orders": asked_for})
    assert answer.offsets[ORDERS].offset == offset


# Transactions (rule E9).


@each_case("reload", [False, True])
@each_case(("committed", "offset"), [(True, 9), (False, 4)])
def test_transactional_offset_waits_for_the_end_marker(
    reload: bool, committed: bool, offset: int
) -> None:
    harness = Harness()
    harness.commit(4)
    harness.commit(9, producer_id=1)
    if reload:
        harness.crash()
    assert harness.offset() == 4
    assert harness.fetch(stable=True) == UNSTABLE
    end(harness, 2, committed=True)
    assert harness.fetch(stable=True) == UNSTABLE
    end(harness, 1, committed=committed)
    assert harness.fetch(stable=True).offset == offset
    harness.crash()
    assert harness.fetch(stable=True).offset == offset


@pytest.mark.parametrize("reload", [False, True])
def test_later_commit_survives_the_end_of_a_transaction(reload: bool) -> None:
    harness = Harness()
    harness.commit(9, producer_id=1)
    harness.commit(4)
    if reload:
        harness.crash()
    end(harness, 1, committed=True)
    assert harness.fetch(stable=True).offset == 4


def test_fetching_all_offsets_reports_unstable_ones() -> None:
    harness = Harness()
    harness.commit(9, producer_id=1)
    fetch = harness.coordinator.fetch_offsets
    assert fetch("billing", None).offsets == {}
    assert fetch("billing", None, require_stable=True).offsets == {ORDERS: UNSTABLE}


def test_aborted_transaction_leaves_no_group() -> None:
    harness = Harness()
    harness.commit(9, producer_id=1)
    assert len(harness.coordinator.list_groups().groups) == 1
    end(harness, 1, committed=False)
    assert harness.coordinator.list_groups().groups == ()


def test_two_transactions_can_be_pending_for_one_partition() -> None:
    harness = Harness()
    harness.commit(8, producer_id=1)
    harness.commit(9, producer_id=2)
    end(harness, 2, committed=True)
    assert harness.fetch(stable=True) == UNSTABLE
    end(harness, 1, committed=True)
    assert harness.fetch(stable=True).offset == 9, "the later record counts, not the later end"


def test_transactional_append_has_its_producer_id() -> None:
    harness = Harness(auto=False)
    harness.send_commit(producer_id=7)
    (append,) = harness.appends
    assert append.transaction is not None
    assert append.transaction.producer_id == 7
    harness.fail_append()
    assert harness.fetch(stable=True) == FetchedOffset()


def test_offsets_of_deleted_partitions_are_deleted() -> None:
    harness = Harness()
    harness.commit(5)
    harness.commit(5, group_id="other")
    harness.commit(6, at=BILLS)
    harness.commit(7, at=BILLS, producer_id=1)
    harness.do(PartitionsDeleted(frozenset({ORDERS})))
    assert [harness.offset(), harness.offset(group_id="other"), harness.offset(BILLS)] == [
        -1,
        -1,
        6,
    ]
    harness.do(PartitionsDeleted(frozenset({BILLS})))
    end(harness, 1, committed=True)
    assert harness.offset(BILLS) == -1
    harness.crash()
    assert harness.coordinator.list_groups().groups == ()
    told = len(harness.log)
    harness.do(PartitionsDeleted(frozenset({ORDERS})))
    assert len(harness.log) == told

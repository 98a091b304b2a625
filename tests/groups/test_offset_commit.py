"""Commits and fetches of offsets."""

import pytest

from cases import each_case
from groups.stage import ORDERS, Entry, Stage, partition
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


def end(stage: Stage, producer_id: int, *, committed: bool) -> None:
    """A marker gets into the log and its news to the coordinator."""
    producer = ProducerId(producer_id)
    stage.log.append(Entry(None, producer, committed))
    stage.do(TransactionEnded(producer, committed))


def test_what_is_committed_is_fetched_with_epoch_and_note() -> None:
    stage = Stage()
    assert stage.commit(5) is ErrorCode.NONE
    assert stage.fetch() == FetchedOffset(5, 2, "note")
    assert stage.fetch(BILLS) == FetchedOffset(-1, -1, "")


def test_all_offsets_of_a_group_are_fetched() -> None:
    stage = Stage()
    stage.commit(5)
    stage.commit(6, at=BILLS)
    stage.commit(7, group_id="other")
    offsets = stage.coordinator.fetch_offsets("billing", None).offsets
    assert {at: fetched.offset for at, fetched in offsets.items()} == {ORDERS: 5, BILLS: 6}
    assert stage.coordinator.fetch_offsets("nobody", None).offsets == {}


def test_a_note_that_is_null_is_empty() -> None:
    stage = Stage()
    stage.commit(but={"offsets": (OffsetToCommit(ORDERS, 1),)})
    assert stage.fetch() == FetchedOffset(1, -1, "")


@each_case(
    ("note", "fits"),
    [("x" * 8, True), ("x" * 9, False), ("ä" * 8, True), ("😀" * 4, True), ("😀" * 5, False)],
)
def test_a_note_is_as_long_as_kafka_counts(note: str, fits: bool) -> None:
    stage = Stage(GroupConfig(offset_metadata_length_max=8))
    error = stage.commit(but={"offsets": (OffsetToCommit(ORDERS, 1, 1, note),)})
    assert error is (ErrorCode.NONE if fits else ErrorCode.OFFSET_METADATA_TOO_LARGE)
    assert stage.offset() == (1 if fits else -1)


def test_a_partition_that_is_refused_does_not_hold_up_the_others() -> None:
    stage = Stage()
    asked = (
        OffsetToCommit(ORDERS, 1, 1, "x" * 5_000),
        OffsetToCommit(BILLS, 2),
        OffsetToCommit(partition("t" * 250), 3),
    )
    token = stage.send_commit(but={"offsets": asked})
    assert stage.answer(token, PartitionErrors).partitions == (
        (ORDERS, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        (BILLS, ErrorCode.NONE),
        (partition("t" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
    )
    assert (stage.offset(), stage.offset(BILLS)) == (-1, 2)


def test_of_one_partition_twice_in_a_request_the_last_counts() -> None:
    stage = Stage()
    asked = (OffsetToCommit(ORDERS, 8), OffsetToCommit(ORDERS, 7))
    stage.send_commit(but={"offsets": asked})
    assert stage.offset() == 7
    stage.crash()
    assert stage.offset() == 7


def test_an_offset_counts_when_the_log_has_it() -> None:
    stage = Stage(auto=False)
    token = stage.send_commit(5)
    (append,) = stage.appends
    assert isinstance(append.then, OffsetsStored)
    assert stage.waits(token)
    assert stage.offset() == -1
    assert stage.fetch(stable=True) == UNSTABLE
    stage.commit_append()
    assert stage.answer(token, PartitionErrors).partitions == ((ORDERS, ErrorCode.NONE),)
    assert stage.fetch(stable=True) == stage.fetch() == FetchedOffset(5, 2, "note")


@each_case(
    ("error", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_what_the_log_refuses_is_not_committed(error: ErrorCode, told: ErrorCode) -> None:
    stage = Stage()
    stage.commit(4)
    stage.auto = False
    token = stage.send_commit(5)
    stage.fail_append(error)
    assert stage.answer(token, PartitionErrors).partitions == ((ORDERS, told),)
    assert stage.fetch(stable=True).offset == 4


def test_a_simple_group_that_could_not_commit_is_none() -> None:
    stage = Stage(auto=False)
    stage.send_commit(5)
    stage.fail_append()
    assert stage.coordinator.list_groups().groups == ()


def test_a_group_that_was_only_looked_at_goes_when_its_commit_fails() -> None:
    stage = Stage(auto=False)
    stage.send_commit(5)
    assert stage.joined(stage.join(protocols=())).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    stage.fail_append()
    assert stage.coordinator.ledger.groups == {}


def test_a_request_without_offsets_is_answered() -> None:
    stage = Stage()
    token = stage.send_commit(but={"offsets": ()})
    assert stage.answer(token, PartitionErrors) == PartitionErrors()
    assert stage.log == []


def test_before_version_9_a_group_that_is_not_there_has_another_generation() -> None:
    stage = Stage()
    old = {"knows_group_id_not_found": False}
    error = stage.commit(member_id="m", generation=3, but=old)
    assert error is ErrorCode.ILLEGAL_GENERATION
    assert stage.commit(member_id="m", generation=3) is ErrorCode.GROUP_ID_NOT_FOUND


def test_the_group_without_a_name_has_offsets_and_nothing_else() -> None:
    stage = Stage()
    assert stage.commit(5, group_id="") is ErrorCode.NONE
    assert stage.offset(group_id="") == 5
    invalid = ErrorCode.INVALID_GROUP_ID
    assert stage.commit(5, group_id="", producer_id=1) is invalid
    assert stage.joined(stage.join(group_id="")).error is invalid
    assert stage.synced(stage.sync("m", 1, group_id="")).error is invalid
    assert stage.leave("m", group_id="").error is invalid
    assert stage.delete_offsets(group_id="").error is invalid
    assert stage.deleted("") == [ErrorCode.NONE]


@each_case(
    ("committed_for", "asked_for", "offset"),
    [(ONE, ONE, 5), (ONE, TWO, -1), (ONE, ZERO_UUID, 5), (ZERO_UUID, TWO, 5)],
)
def test_a_topic_made_anew_has_no_offset(committed_for: Uuid, asked_for: Uuid, offset: int) -> None:
    stage = Stage()
    asked = (OffsetToCommit(ORDERS, 5, topic_id=committed_for),)
    stage.commit(but={"offsets": asked})
    stage.crash()
    answer = stage.coordinator.fetch_offsets("billing", [ORDERS], topic_ids={"orders": asked_for})
    assert answer.offsets[ORDERS].offset == offset


# Transactions (rule E9).


@each_case("reload", [False, True])
@each_case(("committed", "offset"), [(True, 9), (False, 4)])
def test_an_offset_in_a_transaction_waits_for_its_end(
    reload: bool, committed: bool, offset: int
) -> None:
    stage = Stage()
    stage.commit(4)
    stage.commit(9, producer_id=1)
    if reload:
        stage.crash()
    assert stage.offset() == 4
    assert stage.fetch(stable=True) == UNSTABLE
    end(stage, 2, committed=True)
    assert stage.fetch(stable=True) == UNSTABLE
    end(stage, 1, committed=committed)
    assert stage.fetch(stable=True).offset == offset
    stage.crash()
    assert stage.fetch(stable=True).offset == offset


@pytest.mark.parametrize("reload", [False, True])
def test_a_later_commit_stands_when_an_earlier_transaction_ends(reload: bool) -> None:
    stage = Stage()
    stage.commit(9, producer_id=1)
    stage.commit(4)
    if reload:
        stage.crash()
    end(stage, 1, committed=True)
    assert stage.fetch(stable=True).offset == 4


def test_all_offsets_include_those_that_are_not_stable_when_that_is_asked() -> None:
    stage = Stage()
    stage.commit(9, producer_id=1)
    fetch = stage.coordinator.fetch_offsets
    assert fetch("billing", None).offsets == {}
    assert fetch("billing", None, require_stable=True).offsets == {ORDERS: UNSTABLE}


def test_an_aborted_transaction_leaves_no_group() -> None:
    stage = Stage()
    stage.commit(9, producer_id=1)
    assert len(stage.coordinator.list_groups().groups) == 1
    end(stage, 1, committed=False)
    assert stage.coordinator.list_groups().groups == ()


def test_two_transactions_may_wait_for_one_partition() -> None:
    stage = Stage()
    stage.commit(8, producer_id=1)
    stage.commit(9, producer_id=2)
    end(stage, 2, committed=True)
    assert stage.fetch(stable=True) == UNSTABLE
    end(stage, 1, committed=True)
    assert stage.fetch(stable=True).offset == 9, "the later record counts, not the later end"


def test_a_transactional_append_says_whose_it_is() -> None:
    stage = Stage(auto=False)
    stage.send_commit(producer_id=7)
    (append,) = stage.appends
    assert append.transaction is not None
    assert append.transaction.producer_id == 7
    stage.fail_append()
    assert stage.fetch(stable=True) == FetchedOffset()


def test_offsets_of_deleted_partitions_go() -> None:
    stage = Stage()
    stage.commit(5)
    stage.commit(5, group_id="other")
    stage.commit(6, at=BILLS)
    stage.commit(7, at=BILLS, producer_id=1)
    stage.do(PartitionsDeleted(frozenset({ORDERS})))
    assert [stage.offset(), stage.offset(group_id="other"), stage.offset(BILLS)] == [-1, -1, 6]
    stage.do(PartitionsDeleted(frozenset({BILLS})))
    end(stage, 1, committed=True)
    assert stage.offset(BILLS) == -1
    stage.crash()
    assert stage.coordinator.list_groups().groups == ()
    told = len(stage.log)
    stage.do(PartitionsDeleted(frozenset({ORDERS})))
    assert len(stage.log) == told

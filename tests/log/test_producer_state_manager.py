"""Producer state of a partition: duplicates, gaps, zombies, transactions, last stable offset."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each_case
from log.producer_batches import Leader, header
from ottla.errors import ErrorCode, RequestError
from ottla.ids import NO_SEQUENCE, Offset, ProducerEpoch, ProducerId
from ottla.log.producer_state_manager import ProducerStateManager
from ottla.records.batch import Batch, batches, empty_batch
from ottla.records.builder import BatchBuilder
from ottla.records.control import EndTxnMarker, marker_batch

SEQUENCE_MAX = 2**31 - 1
DAY_MS = 24 * 3600 * 1000

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
FENCED = ErrorCode.INVALID_PRODUCER_EPOCH


def refused(leader: Leader, epoch: int = 0, sequence: int = 0, count: int = 1) -> ErrorCode:
    """The error for a batch of producer 1; checks that the state is unchanged."""
    before = describe(leader.producers)
    with pytest.raises(RequestError) as raised:
        leader.produce(header(1, epoch, sequence, count))
    assert describe(leader.producers) == before
    return raised.value.code


def describe(producers: ProducerStateManager) -> list[tuple[object, ...]]:
    return [
        (
            producer.producer_id,
            producer.epoch,
            producer.coordinator_epoch,
            producer.last_timestamp,
            producer.transaction_first_offset,
            producer.next_sequence,
            tuple(producer.batches),
        )
        for producer in producers
    ]


def stable(leader: Leader, high_watermark: int | None = None) -> int:
    at = leader.end if high_watermark is None else high_watermark
    return leader.producers.last_stable_offset(Offset(at))


# D1, D2: sequences


def test_d1_duplicate_of_the_last_five_batches_is_found() -> None:
    sent = [header(sequence=3 * n, count=3, timestamp=1000 + n) for n in range(5)]
    for lost_replies in permutations(range(5)):
        leader = Leader()
        leader.end = 50
        for batch in sent:
            assert leader.produce(batch) is None
        for n in lost_replies:
            assert leader.produce(sent[n]) == (50 + 3 * n, 52 + 3 * n, 1000 + n)
        assert leader.end == 65


def test_d1_sixth_batch_back_is_no_longer_known() -> None:
    leader = Leader()
    for n in range(6):
        leader.produce(header(sequence=n))
    assert refused(leader, sequence=0) is OUT_OF_ORDER
    assert leader.produce(header(sequence=1)) == (1, 1, 0)


@each_case(("sequence", "count"), [(0, 2), (1, 2), (0, 1), (3, 3), (0, 6)])
def test_d1_duplicate_with_other_bounds_is_rejected(sequence: int, count: int) -> None:
    leader = Leader()
    leader.produce(header(sequence=0, count=3))
    leader.produce(header(sequence=3, count=2))
    assert refused(leader, sequence=sequence, count=count) is OUT_OF_ORDER


def test_d1_new_leader_detects_duplicates() -> None:
    leader, follower = Leader(), Leader()
    for n in range(5):
        batch = header(sequence=n, timestamp=n)
        leader.produce(batch)
        follower.produce(batch, from_client=False)
    for n in range(5):
        assert follower.produce(header(sequence=n)) == leader.produce(header(sequence=n))


def test_d2_sequence_gap_is_rejected() -> None:
    leader = Leader()
    leader.produce(header(sequence=0, count=10))
    assert refused(leader, sequence=11) is OUT_OF_ORDER
    assert refused(leader, sequence=9) is OUT_OF_ORDER
    assert leader.produce(header(sequence=10)) is None


def test_d2_sequence_wraps_to_0() -> None:
    leader = Leader()
    leader.produce(header(sequence=SEQUENCE_MAX - 2, count=3))
    assert refused(leader, sequence=1) is OUT_OF_ORDER
    assert leader.produce(header(sequence=0)) is None

    leader = Leader()
    leader.produce(header(sequence=SEQUENCE_MAX - 2, count=6, timestamp=7))  # wraps inside
    assert leader.produce(header(sequence=SEQUENCE_MAX - 2, count=6)) == (0, 5, 7)
    assert refused(leader, sequence=4) is OUT_OF_ORDER
    assert leader.produce(header(sequence=3)) is None


def test_d2_new_epoch_starts_at_zero() -> None:
    leader = Leader()
    leader.produce(header(epoch=1, sequence=0, count=4))
    assert refused(leader, epoch=2, sequence=4) is OUT_OF_ORDER
    assert leader.produce(header(epoch=2, sequence=0, count=4)) is None  # not a duplicate
    assert leader.produce(header(epoch=2, sequence=0, count=4)) == (4, 7, 0)


def test_d2_zombie_is_fenced_even_with_a_duplicate() -> None:
    leader = Leader()
    leader.produce(header(epoch=1, sequence=0))
    leader.produce(header(epoch=2, sequence=0))
    assert refused(leader, epoch=1, sequence=0) is FENCED
    assert refused(leader, epoch=1, sequence=1) is FENCED


def test_d2_without_state_any_sequence_is_accepted() -> None:
    leader = Leader()
    assert leader.produce(header(sequence=1234)) is None
    assert refused(leader, sequence=1234, count=2) is OUT_OF_ORDER


def test_d2_follower_accepts_the_batches_of_its_leader() -> None:
    follower = Leader()
    for batch in (header(sequence=5), header(sequence=90), header(epoch=3, sequence=7)):
        assert follower.produce(batch, from_client=False) is None
    producer = follower.producers.get(ProducerId(1))
    assert producer is not None
    assert (producer.epoch, producer.last_sequence, producer.last_offset) == (3, 7, 2)


def test_batches_without_a_producer_leave_no_state() -> None:
    leader = Leader()
    for _ in range(2):
        assert leader.produce(header(producer_id=-1, epoch=-1, sequence=-1)) is None
    assert leader.producers.count == 0


def test_error_has_the_expected_sequence() -> None:
    leader = Leader()
    leader.produce(header(producer_id=7, epoch=1, sequence=0, count=3))
    with pytest.raises(RequestError, match="producer 7 in epoch 1: sequence 9, expected 3"):
        leader.produce(header(producer_id=7, epoch=1, sequence=9))
    with pytest.raises(RequestError, match="producer 7 in epoch 2: sequence 3, expected 0"):
        leader.produce(header(producer_id=7, epoch=2, sequence=3))
    with pytest.raises(RequestError, match="producer 7: epoch 0 is fenced by epoch 1"):
        leader.produce(header(producer_id=7, epoch=0, sequence=3))


def test_transactional_offsets_have_no_sequence() -> None:
    leader = Leader()
    batch = header(epoch=1, sequence=NO_SEQUENCE, transactional=True)
    for _ in range(3):
        leader.producers.check_from_coordinator(batch)
        leader.produce(batch, from_client=False)
    producer = leader.producers.get(ProducerId(1))
    assert producer is not None
    assert (producer.last_sequence, producer.next_sequence) == (NO_SEQUENCE, 0)
    for late, code in (
        (batch._replace(producer_epoch=ProducerEpoch(0)), FENCED),
        (batch._replace(attributes=0), ErrorCode.INVALID_TXN_STATE),
    ):
        with pytest.raises(RequestError) as raised:
            leader.producers.check_from_coordinator(late)
        assert raised.value.code is code
    leader.producers.check_from_coordinator(header(producer_id=2, sequence=NO_SEQUENCE))


# D3: the state is derived from the log


def built(producer_id: int, epoch: int, sequence: int, offset: int, **flags: bool) -> bytes:
    builder = BatchBuilder(1000)
    builder.append(1000 + offset, None, b"v")
    builder.append(1001 + offset, None, b"v")
    return builder.build(
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        **flags,
    )


def marker(producer_id: int, epoch: int, offset: int, *, commit: bool) -> bytes:
    return marker_batch(
        EndTxnMarker(commit, 4),
        producer_id=producer_id,
        producer_epoch=epoch,
        timestamp=5000 + offset,
        base_offset=offset,
    )


def test_d3_replay_restores_the_state_of_the_leader() -> None:
    leader = Leader()
    leader.produce(header(1, 0, 0, 2, timestamp=1001))
    leader.produce(header(2, 3, 7, 2, transactional=True, timestamp=1003))
    leader.produce(header(1, 0, 2, 2, timestamp=1005))
    ended = leader.end_transaction(2, 3, commit=False, coordinator_epoch=4, timestamp=5006)
    leader.produce(header(2, 4, 0, 2, transactional=True, timestamp=1008))

    log = b"".join(
        (
            built(1, 0, 0, 0),
            built(2, 3, 7, 2, transactional=True),
            built(1, 0, 2, 4),
            marker(2, 3, 6, commit=False),
            built(2, 4, 0, 7, transactional=True),
        )
    )
    producers = ProducerStateManager()
    replayed = [producers.replay(batch) for batch in batches(log)]
    assert describe(producers) == describe(leader.producers)
    assert replayed == [None, None, None, ended, None]
    assert ended == (2, 2, 6, True, 7)
    assert producers.first_open_offset == 7
    assert producers.last_stable_offset(Offset(5)) == 2
    producers.clear()
    assert (producers.count, producers.first_open_offset) == (0, None)
    assert producers.last_stable_offset(Offset(5)) == 5


def test_d3_batches_that_compaction_emptied_keep_the_sequences() -> None:
    producers = ProducerStateManager()
    emptied = empty_batch(Batch(built(1, 0, 10, 40)).header)
    assert producers.replay(Batch(emptied)) is None
    producer = producers.get(ProducerId(1))
    assert producer is not None
    assert (producer.next_sequence, producer.last_offset) == (12, 41)
    # An emptied marker belongs to a deleted transaction and changes nothing.
    emptied = empty_batch(Batch(marker(5, 0, 42, commit=True)).header)
    assert producers.replay(Batch(emptied)) is None
    assert producers.get(ProducerId(5)) is None


def test_markers_are_rejected_as_records() -> None:
    with pytest.raises(AssertionError):
        ProducerStateManager().append(Batch(marker(1, 0, 0, commit=True)).header, Offset(0), 0)


# D4: expiry


def test_d4_idle_producer_expires_after_a_day() -> None:
    leader = Leader()
    leader.produce(header(1, timestamp=1000))
    leader.produce(header(2, timestamp=2000))
    assert leader.producers.expire(999 + DAY_MS, DAY_MS) == 0
    assert leader.producers.expire(1000 + DAY_MS, DAY_MS) == 1
    assert [producer.producer_id for producer in leader.producers] == [2]


def test_d4_open_transaction_prevents_expiry() -> None:
    leader = Leader()
    leader.produce(header(1, transactional=True))
    assert leader.producers.expire(25 * DAY_MS, DAY_MS) == 0
    assert stable(leader) == 0
    leader.end_transaction(1, timestamp=25 * DAY_MS)
    assert leader.producers.expire(25 * DAY_MS + 1, DAY_MS) == 0  # the marker counts as activity
    assert leader.producers.expire(26 * DAY_MS, DAY_MS) == 1
    assert stable(leader) == leader.end


# E4: markers


def refused_marker(leader: Leader, epoch: int, version: int, coordinator: int = 0) -> ErrorCode:
    before = describe(leader.producers)
    with pytest.raises(RequestError) as raised:
        leader.end_transaction(1, epoch, transaction_version=version, coordinator_epoch=coordinator)
    assert describe(leader.producers) == before
    return raised.value.code


@pytest.mark.parametrize("version", [0, 1, 2])
def test_e4_marker_of_a_lower_producer_epoch_is_rejected(version: int) -> None:
    leader = Leader()
    leader.produce(header(epoch=5, transactional=True))
    assert refused_marker(leader, 4, version) is FENCED
    leader.end_transaction(1, 6, transaction_version=version)
    assert refused_marker(leader, 5, version) is FENCED


@pytest.mark.parametrize("version", [0, 1, 2])
def test_e4_marker_of_an_earlier_coordinator_is_rejected(version: int) -> None:
    leader = Leader()
    leader.end_transaction(1, 0, coordinator_epoch=8)
    leader.produce(header(epoch=0, transactional=True))
    zombie = refused_marker(leader, 1, version, coordinator=7)
    assert zombie is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert leader.end_transaction(1, 1, transaction_version=version, coordinator_epoch=8)


@pytest.mark.parametrize("version", [0, 1])
def test_e4_before_version_2_the_marker_epoch_is_equal(version: int) -> None:
    leader = Leader()
    leader.produce(header(epoch=5, transactional=True))
    completed = leader.end_transaction(1, 5, commit=False, transaction_version=version)
    assert completed == (1, 0, 1, True, 2)
    # The epoch stays, the sequences continue, and a duplicate is still detected.
    assert leader.produce(header(epoch=5, sequence=0, transactional=True)) == (0, 0, 0)
    assert leader.produce(header(epoch=5, sequence=1, transactional=True)) is None


def test_e4_under_version_2_the_marker_has_a_higher_epoch() -> None:
    leader = Leader()
    leader.produce(header(epoch=5, transactional=True))
    assert refused_marker(leader, 5, version=2) is FENCED  # late: it ended an earlier transaction
    assert stable(leader) == 0
    assert leader.end_transaction(1, 6, transaction_version=2) == (1, 0, 1, False, 2)


def test_e4_version_2_accepts_a_repeated_marker() -> None:
    leader = Leader()
    leader.produce(header(epoch=5, transactional=True))
    assert leader.end_transaction(1, 6, transaction_version=2)
    assert leader.end_transaction(1, 6, transaction_version=2) is None
    # The next transaction begins in that epoch, and the repeated marker comes too late.
    leader.produce(header(epoch=6, sequence=0, transactional=True))
    assert refused_marker(leader, 6, version=2) is FENCED


def test_e4_version_2_accepts_an_exhausted_epoch() -> None:
    leader = Leader()
    leader.produce(header(epoch=32767, transactional=True))
    assert leader.end_transaction(1, 32767, transaction_version=2)


def test_e4_marker_fences_the_earlier_epoch() -> None:
    leader = Leader()
    leader.produce(header(epoch=5, sequence=0, transactional=True))
    leader.end_transaction(1, 6, commit=False, transaction_version=2)
    assert refused(leader, epoch=5, sequence=1) is FENCED
    assert refused(leader, epoch=6, sequence=1) is OUT_OF_ORDER
    assert leader.produce(header(epoch=6, sequence=0, transactional=True)) is None


def test_e4_marker_fences_without_earlier_records() -> None:
    leader = Leader()
    assert leader.end_transaction(1, 3, coordinator_epoch=2) is None
    assert stable(leader) == leader.end == 1
    assert refused(leader, epoch=2, sequence=0) is FENCED
    assert refused_marker(leader, 3, 1, 1) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_follower_accepts_any_marker() -> None:
    follower = Leader()
    follower.produce(header(epoch=5, transactional=True), from_client=False)
    assert follower.end_transaction(1, 5, transaction_version=None) == (1, 0, 1, False, 2)
    assert follower.end_transaction(1, 4, transaction_version=None) is None
    producer = follower.producers.get(ProducerId(1))
    assert producer is not None
    assert producer.epoch == 4


# E7: the last stable offset


def test_plain_record_in_an_open_transaction_is_rejected() -> None:
    leader = Leader()
    leader.produce(header(sequence=0, transactional=True))
    assert refused(leader, sequence=1) is ErrorCode.INVALID_TXN_STATE
    leader.end_transaction(1)
    assert leader.produce(header(sequence=1)) is None


def test_e7_open_transaction_holds_the_last_stable_offset() -> None:
    leader = Leader()
    leader.produce(header(1, sequence=0, count=5))
    leader.produce(header(2, sequence=0, count=5, transactional=True))
    leader.produce(header(3, sequence=0, count=5, transactional=True))
    leader.produce(header(2, sequence=5, count=5, transactional=True))
    assert (stable(leader), stable(leader, 3)) == (5, 3)
    assert leader.end_transaction(2) == (2, 5, 20, False, 10)
    assert stable(leader) == 10
    assert leader.end_transaction(3, commit=False) == (3, 10, 21, True, 22)
    assert stable(leader) == 22


def test_e7_marker_counts_below_the_high_watermark() -> None:
    leader = Leader()
    leader.produce(header(1, sequence=0, count=4, transactional=True))
    leader.end_transaction(1)  # at offset 4
    leader.produce(header(2, sequence=0))
    assert stable(leader, 2) == 0
    assert stable(leader, 4) == 0  # the marker is not replicated
    assert stable(leader, 5) == 5
    assert stable(leader, 6) == 6


def test_e7_long_transaction_holds_back_shorter_ones() -> None:
    leader = Leader()
    leader.produce(header(1, sequence=0, transactional=True))  # 0
    leader.produce(header(2, sequence=0, transactional=True))  # 1
    leader.end_transaction(2)  # 2
    leader.end_transaction(1)  # 3
    assert [stable(leader, high_watermark) for high_watermark in range(5)] == [0, 0, 0, 0, 4]


def test_e7_last_stable_offset_is_not_below_the_log_start() -> None:
    leader = Leader()
    leader.produce(header(1, count=10, transactional=True))
    assert leader.producers.last_stable_offset(Offset(10), Offset(6)) == 6


steps = st.lists(
    st.tuples(st.sampled_from("wwwwca"), st.integers(1, 4), st.integers(1, 3), st.integers(0, 6)),
    max_size=60,
)


@given(steps)
def test_e7_last_stable_offset_matches_a_model(
    drawn: list[tuple[str, int, int, int]],
) -> None:
    leader = Leader()
    first_of: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    sequences: dict[int, int] = {}
    high_watermark = 0
    for what, producer_id, count, more in drawn:
        if what == "w":
            sequence = sequences.get(producer_id, 0)
            first_of.setdefault(producer_id, leader.end)
            leader.produce(header(producer_id, 0, sequence, count, transactional=True))
            sequences[producer_id] = sequence + count
        else:
            if (first := first_of.pop(producer_id, None)) is not None:
                ended.append((first, leader.end))
            completed = leader.end_transaction(producer_id, commit=what == "c")
            assert (completed is None) == (first is None)
            if completed is not None:
                assert completed.first_offset == first
                assert completed.last_stable_offset == min(first_of.values(), default=leader.end)
        high_watermark = min(leader.end, high_watermark + more)
        unstable = [first for first, last in ended if last >= high_watermark]
        expected = min([high_watermark, *first_of.values(), *unstable])
        assert stable(leader, high_watermark) == expected
        assert leader.producers.first_open_offset == min(first_of.values(), default=None)


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(1, 4), st.booleans()), min_size=1, max_size=40
    ),
    st.sampled_from([0, SEQUENCE_MAX - 5]),
)
def test_d1_d2_batches_are_unique_and_in_order(
    drawn: list[tuple[int, int, bool]], start: int
) -> None:
    """A producer sends, repeats one of the last five batches, or skips: the log holds each batch
    once.
    """
    leader = Leader()
    sent: list[tuple[int, int]] = []
    next_sequence = start
    for back, count, skip in drawn:
        if back and len(sent) >= back:
            sequence, size = sent[-back]
            duplicate = leader.produce(header(sequence=sequence, count=size))
            assert duplicate is not None
            assert duplicate.last_offset == leader.end - 1 - sum(
                size for _, size in sent[len(sent) - back + 1 :]
            )
            continue
        if skip and sent:
            wrong = (next_sequence + 1) % 2**31
            assert refused(leader, sequence=wrong, count=count) is OUT_OF_ORDER
        assert leader.produce(header(sequence=next_sequence, count=count)) is None
        sent.append((next_sequence, count))
        next_sequence = (next_sequence + count) % 2**31
    assert leader.end == sum(count for _, count in sent)

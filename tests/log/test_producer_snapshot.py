"""The producer snapshot file, compared with one that Kafka wrote."""

import pytest
from fastcrc.crc32 import iscsi as crc32c
from hypothesis import given
from hypothesis import strategies as st

from cases import each_case
from log.producer_batches import Leader, header
from ottla.errors import ErrorCode, RequestError
from ottla.ids import Offset, ProducerId
from ottla.log.errors import CorruptSnapshot
from ottla.log.producer_snapshot import read_snapshot, write_snapshot
from ottla.log.producer_state_manager import ProducerStateManager

# Written by Kafka 4.3.1: a producer; one in a transaction since offset 120, at the last sequence
# before the wrap; one with only a marker.
KAFKA = bytes.fromhex(
    "00019d3e2e2d00000003"
    "000000000000000100000000000e0000000000000077000000040000018bcfe56864ffffffffffffffffffffffff"
    "000000000000000200037fffffff0000000000000081000000090000018bcfe568c80000000c0000000000000078"
    "00000000ee6b28007fffffffffffffffffffffffffff000000000000018bcfe5692c00000005ffffffffffffffff"
)
# An earlier batch of the first producer.
EARLIER = bytes.fromhex("0000000000000001000000090000000000000072000000000000018bcfe56800")
KAFKA_EMPTY = bytes.fromhex("000148674bc700000000")


def test_d3_snapshot_of_kafka_round_trips() -> None:
    producers = read_snapshot(KAFKA)
    plain, open_one, ended = producers
    assert plain.batches == [(10, 14, 115, 119, 1700000000100)]
    assert (plain.producer_id, plain.epoch, plain.coordinator_epoch) == (1, 0, -1)
    assert plain.transaction_first_offset is None
    assert open_one.batches == [(2**31 - 10, 2**31 - 1, 120, 129, 1700000000200)]
    assert (open_one.epoch, open_one.coordinator_epoch) == (3, 12)
    assert (open_one.transaction_first_offset, open_one.next_sequence) == (120, 0)
    assert (ended.producer_id, ended.epoch, ended.batches) == (4000000000, 32767, [])
    assert ended.last_timestamp == 1700000000300
    assert producers.first_open_offset == 120
    assert producers.last_stable_offset(Offset(130)) == 120
    assert write_snapshot(producers) == KAFKA
    assert write_snapshot(read_snapshot(memoryview(KAFKA))) == KAFKA


def test_empty_snapshot_equals_kafka() -> None:
    assert write_snapshot(ProducerStateManager()) == KAFKA_EMPTY
    assert read_snapshot(KAFKA_EMPTY).count == 0


def test_d3_sequences_continue_after_a_snapshot() -> None:
    leader = Leader(read_snapshot(KAFKA))
    leader.end = 130
    assert leader.produce(header(1, 0, 10, 5)) == (115, 119, 1700000000100)
    with pytest.raises(RequestError) as raised:
        leader.produce(header(1, 0, 16))
    assert raised.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert leader.produce(header(1, 0, 15)) is None
    assert leader.produce(header(2, 3, 2**31 - 10, 10, transactional=True)) == (
        120,
        129,
        1700000000200,
    )
    assert leader.produce(header(2, 3, 0, transactional=True)) is None
    assert leader.end_transaction(2, 3, coordinator_epoch=12) == (2, 120, 132, False, 133)


def test_d1_every_cached_batch_is_a_duplicate_after_a_snapshot() -> None:
    """A producer with five requests in flight may have missed all five responses."""
    leader = Leader()
    for n in range(7):
        leader.produce(header(sequence=n, timestamp=n))
    leader = Leader(read_snapshot(write_snapshot(leader.producers)))
    leader.end = 7
    assert [leader.produce(header(sequence=n)) for n in range(2, 7)] == [
        (n, n, n) for n in range(2, 7)
    ]
    with pytest.raises(RequestError) as raised:
        leader.produce(header(sequence=1))
    assert raised.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert leader.produce(header(sequence=7)) is None


def test_earlier_batches_follow_after_the_part_that_kafka_reads() -> None:
    leader = Leader()
    for n in range(3):
        leader.produce(header(sequence=n, timestamp=n))
    last = read_snapshot(write_snapshot(leader.producers))
    for producer in last:
        del producer.batches[:-1]
    kafka, whole = write_snapshot(last), write_snapshot(leader.producers)
    assert whole[6 : len(kafka)] == kafka[6:]
    assert whole[len(kafka) :] == bytes.fromhex(
        "00000002"
        "0000000000000001000000000000000000000000000000000000000000000000"
        "0000000000000001000000010000000000000001000000000000000000000001"
    )


def test_d4_open_transactions_of_a_snapshot_do_not_expire() -> None:
    producers = read_snapshot(KAFKA)
    assert producers.expire(2**62, 1) == 2
    assert [producer.producer_id for producer in producers] == [2]


def test_open_transactions_are_sorted_by_first_offset() -> None:
    leader = Leader()
    for producer_id in (3, 1, 2):
        leader.produce(header(producer_id, transactional=True))
    producers = ProducerStateManager(
        sorted(leader.producers, key=lambda producer: producer.producer_id)
    )
    producers = read_snapshot(write_snapshot(producers))
    assert producers.first_open_offset == 0
    leader = Leader(producers)
    leader.end = 3
    assert leader.end_transaction(3) == (3, 0, 3, False, 1)


@given(st.integers(0, len(KAFKA) - 1), st.integers(1, 255))
def test_every_flipped_byte_is_detected(at: int, flip: int) -> None:
    damaged = bytearray(KAFKA)
    damaged[at] ^= flip
    with pytest.raises(CorruptSnapshot):
        read_snapshot(damaged)


@given(st.integers(0, len(KAFKA) - 1))
def test_every_truncation_is_detected(length: int) -> None:
    with pytest.raises(CorruptSnapshot):
        read_snapshot(KAFKA[:length])


def with_crc(data: bytes) -> bytes:
    return data[:2] + crc32c(data[6:]).to_bytes(4, "big") + data[6:]


@each_case(
    "data",
    [
        pytest.param(with_crc(KAFKA[:9] + b"\x04" + KAFKA[10:]), id="more announced"),
        pytest.param(with_crc(KAFKA[:9] + b"\x02" + KAFKA[10:]), id="fewer announced"),
        pytest.param(with_crc(KAFKA[:6] + b"\xff" * 4), id="a negative count"),
        pytest.param(with_crc(KAFKA[:6]), id="no count"),
        pytest.param(with_crc(KAFKA[:6] + b"\0\0\0\x02" + KAFKA[10:56] * 2), id="a producer twice"),
        pytest.param(b"\0\2" + KAFKA[2:], id="a later version"),
        pytest.param(with_crc(KAFKA + b"\0\0\0"), id="three bytes after the producers"),
        pytest.param(with_crc(KAFKA + b"\0\0\0\1" + EARLIER[:-1]), id="a short earlier batch"),
        pytest.param(with_crc(KAFKA + b"\0\0\0\2" + EARLIER), id="an earlier batch is missing"),
        pytest.param(with_crc(KAFKA + b"\xff" * 4), id="a negative count of earlier batches"),
        pytest.param(with_crc(KAFKA + b"\0\0\0\5" + EARLIER * 5), id="five earlier batches"),
        pytest.param(
            with_crc(KAFKA + b"\0\0\0\1" + b"\x09" + EARLIER[1:]),
            id="an earlier batch of an unknown producer",
        ),
    ],
)
def test_invalid_content_with_a_valid_crc_is_detected(data: bytes) -> None:
    with pytest.raises(CorruptSnapshot):
        read_snapshot(data)


@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.integers(0, 2), st.integers(1, 4), st.booleans()),
        max_size=30,
    )
)
def test_d3_state_round_trips_with_its_batches(
    drawn: list[tuple[int, int, int, bool]],
) -> None:
    leader = Leader()
    for producer_id, epoch, count, ends in drawn:
        batch = header(producer_id, epoch, 2**31 - 2, count, transactional=True, timestamp=count)
        leader.produce(batch, from_client=False)
        if ends:
            leader.end_transaction(producer_id, epoch, transaction_version=None)
    read = read_snapshot(write_snapshot(leader.producers))
    assert write_snapshot(read) == write_snapshot(leader.producers)
    for producer in leader.producers:
        other = read.get(ProducerId(producer.producer_id))
        assert other is not None
        assert [batch[:4] for batch in other.batches] == [batch[:4] for batch in producer.batches]
        assert other.next_sequence == producer.next_sequence
    assert read.first_open_offset == leader.producers.first_open_offset

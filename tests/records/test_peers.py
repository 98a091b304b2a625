"""The codecs of other clients read our batches, and ours reads theirs."""

from typing import Any, NamedTuple, cast

import aiokafka.record.default_records
import kafka.record.default_records
import kafka.record.memory_records
import pytest
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.records.readers import read_batch

from cases import each_case
from ottla.records.batch import Batch, batches
from ottla.records.builder import BatchBuilder
from ottla.records.columns import decode, encode
from ottla.records.compression import Compression
from ottla.records.validation import ValidationConfig, validate
from records.drawing import Drawn, build
from sampling import examples

NOW = 1_700_000_000_000

# Records that every client can encode, without extreme timestamps, which some compute differently.
shared_records = st.builds(
    Drawn,
    st.integers(0, 2**45),
    st.none() | st.binary(max_size=50),
    st.none() | st.binary(max_size=200),
    st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=20)), max_size=3).map(
        tuple
    ),
)
shared_batches = st.lists(shared_records, min_size=1, max_size=20)

NAMED = {
    "plain": [Drawn(NOW, b"key", b"value", ())],
    "nulls": [Drawn(NOW, None, None, ()), Drawn(NOW, None, b"v", ()), Drawn(NOW, b"k", None, ())],
    "empty": [Drawn(NOW, b"", b"", (("", b""),))],
    "headers": [Drawn(NOW, b"k", b"v", (("a", b"1"), ("a", None), ("ž", b"\xff")))],
    "timestamps": [Drawn(t, b"k", b"v", ()) for t in (NOW, 0, NOW + 1, 2**40, NOW - 1)],
    "many": [Drawn(NOW + i, b"%d" % i, b"x" * (i % 300), ()) for i in range(5000)],
    "large": [Drawn(NOW, None, b"0123456789" * 100_000, ())],
}


class Peer(NamedTuple):
    """The codec of a client: functions that read consecutive batches and build one."""

    name: str
    run: Any
    builder: Any
    codecs: tuple[Compression, ...]

    def read(self, run: bytes) -> list[Drawn]:
        return read_batches(self.run(run))

    def write(self, drawn: list[Drawn], compression: Compression) -> bytes:
        builder = self.builder(
            magic=2,
            compression_type=compression.value,
            is_transactional=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            batch_size=2**30,
        )
        return write_batch(builder, drawn)


def drawn_of(records: Any) -> list[Drawn]:
    return [
        Drawn(r.timestamp, r.key, r.value, tuple((key, value) for key, value in r.headers))
        for r in records
    ]


def read_batches(run: Any) -> list[Drawn]:
    found: list[Drawn] = []
    while run.has_next():
        batch = run.next_batch()
        assert batch.validate_crc()
        found += drawn_of(batch)
    return found


def write_batch(builder: Any, drawn: list[Drawn]) -> bytes:
    for offset, each in enumerate(drawn):
        appended = builder.append(offset, each.timestamp, each.key, each.value, list(each.headers))
        assert appended is not None
    return bytes(builder.build())


AiokafkaBuilder = aiokafka.record.default_records.DefaultRecordBatchBuilder

PEERS = [
    Peer("aiokafka", AiokafkaRecords, AiokafkaBuilder, tuple(Compression)),
    Peer(
        "kafka-python",
        cast("Any", kafka.record.memory_records).MemoryRecords,
        cast("Any", kafka.record.default_records).DefaultRecordBatchBuilder,
        tuple(Compression),
    ),
]
PAIRS = [
    pytest.param(peer, codec, id=f"{peer.name}-{codec.label}")
    for peer in PEERS
    for codec in peer.codecs
]


def test_aiokafka_codec_is_compiled() -> None:
    assert "_crecords" in AiokafkaBuilder.__module__


def check_both_ways(peer: Peer, codec: Compression, drawn: list[Drawn]) -> None:
    ours = build(drawn, codec)
    assert peer.read(ours + build(drawn[:1], codec, base_offset=len(drawn))) == drawn + drawn[:1]
    theirs = peer.write(drawn, codec)
    assert drawn_of(Batch(theirs).records()) == drawn
    if codec is Compression.NONE:
        assert theirs[HEADER_COMPARED:] == ours[HEADER_COMPARED:]
    columns = decode(theirs)
    (encoded,) = encode(columns, limit=2**31 - 1, compression=codec)
    assert bytes(encoded.data) == ours
    valid = validate(
        theirs,
        ValidationConfig(max_message_bytes=2**31 - 1, timestamp_after_max_ms=2**62),
        now_ms=NOW,
        produce_version=9,
    )
    assert valid.record_count == len(drawn)
    assert valid.max_timestamp == max(each.timestamp for each in drawn)


HEADER_COMPARED = 21  # leader epoch and CRC come before that, and depend on the writer


@each_case("name", NAMED)
@each_case(("peer", "codec"), PAIRS)
def test_batches_interoperate_with_other_clients(peer: Peer, codec: Compression, name: str) -> None:
    check_both_ways(peer, codec, NAMED[name])


@each_case(("peer", "codec"), PAIRS)
@settings(deadline=None, max_examples=examples(20, usual=40))
@given(drawn=shared_batches)
def test_any_records_interoperate_with_other_clients(
    peer: Peer, codec: Compression, drawn: list[Drawn]
) -> None:
    check_both_ways(peer, codec, drawn)


@given(
    st.lists(st.integers(-(2**62), 2**62 - 1), min_size=1, max_size=10),
)
def test_extreme_timestamps_equal_aiokafka(timestamps: list[int]) -> None:
    drawn = [Drawn(timestamp, None, None, ()) for timestamp in timestamps]
    batch = build(drawn)
    assert read_batches(AiokafkaRecords(batch)) == drawn == drawn_of(Batch(batch).records())


def test_other_clients_read_the_header() -> None:
    builder = BatchBuilder(1000, Compression.GZIP)
    builder.append(NOW, b"k", b"v")
    builder.append(NOW - 5, b"k", b"v")
    data = builder.build(
        base_offset=2**40,
        leader_epoch=6,
        producer_id=2**50,
        producer_epoch=7,
        base_sequence=8,
        transactional=True,
    )
    for run in (
        AiokafkaRecords(data),
        cast("Any", kafka.record.memory_records).MemoryRecords(data),
    ):
        theirs = cast("Any", run.next_batch())
        assert (theirs.base_offset, theirs.next_offset) == (2**40, 2**40 + 2)
        assert (theirs.first_timestamp, theirs.max_timestamp) == (NOW, NOW)
        assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (2**50, 7, 8)
        assert (theirs.is_transactional, theirs.is_control_batch) == (True, False)
        assert theirs.compression_type == Compression.GZIP


def test_kio_reads_the_same_records() -> None:
    drawn = NAMED["headers"] + NAMED["nulls"]
    data = build(drawn, base_offset=5)
    theirs, size = read_batch(data, 0)
    (ours,) = batches(data)
    assert size == len(data)
    assert theirs.crc == ours.header.crc
    for their, our in zip(theirs.records, ours.records(), strict=True):
        assert (their.offset, their.key, their.value) == (our.offset, our.key, our.value)
        pairs = [(header.key, header.value) for header in their.headers]
        assert pairs == [(key.encode(), value) for key, value in our.headers]

"""The hand-written codecs of Produce and Fetch match the compiled codecs."""

import struct
from contextlib import suppress
from functools import cache
from random import Random
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cases import each_case
from fuzz_mutants import mutant
from ottla.errors import ProtocolViolation
from ottla.ids import Uuid
from ottla.protocol.apis import API_OF_KEY, FETCH, PRODUCE
from ottla.protocol.hot import fetch, produce
from ottla.protocol.hot.fallback import HEAD_BYTES_MAX
from ottla.protocol.message import OBJECTS_MAX, HotCodec, Message
from ottla.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from ottla.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.protocol.primitives import Buffer, uvarint
from ottla.protocol.reader import Reader, compile_reader, has_records
from ottla.protocol.schema import Kind, Struct
from ottla.protocol.writer import EncodingError, Writer, compile_writer
from protocol_values import example, messages, name_of, structure
from sampling import examples

CODECS: Final[dict[type[Message], HotCodec]] = {
    ProduceRequest: HotCodec(produce.request_reader, produce.request_writer),
    ProduceResponse: HotCodec(produce.response_reader, produce.response_writer),
    FetchRequest: HotCodec(fetch.request_reader, fetch.request_writer),
    FetchResponse: HotCodec(fetch.response_reader, fetch.response_writer),
}
CLASSES: Final = tuple(CODECS)


def flexible_versions(cls: type[Message]) -> list[int]:
    return [version for version in cls.VERSIONS if version in cls.FLEXIBLE]


every_class = each_case("cls", CLASSES, ids=name_of)

thorough = settings(
    max_examples=examples(15, usual=40),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


every_version = each_case(
    ("cls", "version"),
    [(cls, version) for cls in CLASSES for version in flexible_versions(cls)],
)


def outcome(reader: Reader, data: Buffer, position: int, objects_max: int) -> object:
    """Return the result of a reader, or the kind and text of its error."""
    try:
        return reader(data, position, objects_max)
    except (ProtocolViolation, struct.error, IndexError, UnicodeDecodeError) as error:
        return type(error), str(error)


def compiled_bytes(value: Message, version: int) -> bytes:
    buffers: list[Buffer] = []
    _compiled_writer(type(value), version)(value, buffers)
    return b"".join(buffers)


@cache
def _compiled_writer(cls: type[Message], version: int) -> Writer:
    return compile_writer(cls, version, cls.FLEXIBLE)


def assert_read_alike(
    cls: type[Message], version: int, raw: bytes, objects_max: int = OBJECTS_MAX, position: int = 0
) -> None:
    compiled = _compiled_reader(cls, version)
    by_hand = CODECS[cls].reader(version, compiled)
    data = memoryview(raw) if has_records(cls) else raw
    expected = outcome(compiled, data, position, objects_max)
    assert outcome(by_hand, data, position, objects_max) == expected


@cache
def _compiled_reader(cls: type[Message], version: int) -> Reader:
    return compile_reader(cls, version, cls.FLEXIBLE)


SIZES: Final = (1, 2, 61, 126, 127, 128, 129, 300, 16_382, 16_383, 16_384, 20_000)
COUNTS: Final = (0, 1, 1, 2, 3)
# Fields that hot messages omit, although they are not tagged and exist in the version.
ABSENT: Final = {"forgotten_topics_data": (), "record_errors": (), "error_message": None}


def plain(random: Random, cls: type[Struct], version: int, depth: int = 0) -> Any:
    """Return a message, or a part of one, that the hand-written codec supports."""
    values: dict[str, Any] = {}
    for field in cls.FIELDS:
        if version not in field.versions or version in field.tagged:
            continue
        if field.name in ABSENT:
            values[field.name] = ABSENT[field.name]
        elif field.name == "aborted_transactions":
            values[field.name] = random.choice((None, ()))
        elif field.kind is Kind.ARRAY:
            assert field.struct is not None
            count = 126 if random.randrange(40) == 0 else random.choice(COUNTS)
            made = [plain(random, field.struct, version, depth + 1) for _ in range(min(count, 4))]
            values[field.name] = tuple((made * count)[:count])
        elif field.kind is Kind.RECORDS:
            values[field.name] = random.randbytes(random.choice(SIZES[: 12 if depth < 2 else 8]))
        elif field.kind is Kind.STRING:
            nothing = version in field.nullable and random.randrange(2)
            text = random.choice(("", "a", "orders", "été", "\U0001f600", "x" * 126))
            values[field.name] = None if nothing else text
    made_by_chance = structure(random, cls, version)
    for field in cls.FIELDS:
        if field.name not in values and field.kind.fixed_size and version not in field.tagged:
            values[field.name] = getattr(made_by_chance, field.name)
    if cls is FetchRequest and version >= 15 and random.randrange(2):
        values["replica_state"] = ReplicaState(replica_id=random.randrange(9), replica_epoch=7)
    return cls(**values)


def plain_messages(cls: type[Message]) -> st.SearchStrategy[tuple[int, Any]]:
    """Yield versions with a message that the hand-written codec supports."""

    def made(random: Random, version: int) -> tuple[int, Any]:
        return version, plain(random, cls, version)

    return st.builds(
        made, st.randoms(use_true_random=False), st.sampled_from(flexible_versions(cls))
    )


@every_class
def test_any_value_matches_the_compiled_codec(cls: type[Message]) -> None:
    @thorough
    @given(messages(cls))
    def check(case: tuple[int, Message]) -> None:
        version, value = case
        raw = compiled_bytes(value, version)
        assert value.encode(version) == raw
        assert_read_alike(cls, version, raw)

    check()


@every_class
def test_plain_values_match_the_compiled_codec(cls: type[Message]) -> None:
    @thorough
    @given(plain_messages(cls))
    def check(case: tuple[int, Message]) -> None:
        version, value = case
        raw = compiled_bytes(value, version)
        assert value.encode(version) == raw
        assert cls.decode(raw, version) == value
        assert_read_alike(cls, version, raw)
        # Inside other bytes, at the position where a header ends.
        assert_read_alike(cls, version, b"\1\2\3" + raw + b"\0\1", position=3)

    check()


@every_version
def test_corrupt_plain_bytes_match_the_compiled_codec(cls: type[Message], version: int) -> None:
    random = Random(f"{cls.__name__} {version} damaged")
    accepted = 0
    for _ in range(20):
        raw = plain(random, cls, version).encode(version)
        for _ in range(30):
            damaged = mutant(random, [raw])
            assert_read_alike(cls, version, damaged)
            with suppress(ProtocolViolation):
                cls.decode(damaged, version)
                accepted += 1
    assert 6 < accepted < 540


@every_class
def test_truncated_plain_bytes_match_the_compiled_codec(cls: type[Message]) -> None:
    for version in flexible_versions(cls):
        random = Random(f"{cls.__name__} {version}")
        raw = small(random, cls, version)
        for end in range(len(raw)):
            assert_read_alike(cls, version, raw[:end])
            with pytest.raises(ProtocolViolation):
                cls.decode(raw[:end], version)


@every_class
def test_every_byte_of_a_plain_message_changed(cls: type[Message]) -> None:
    for version in flexible_versions(cls):
        raw = small(Random(f"{cls.__name__} {version}"), cls, version)
        for position in range(len(raw)):
            for byte in (0, 1, 2, 128, 255):
                assert_read_alike(
                    cls, version, raw[:position] + bytes((byte,)) + raw[position + 1 :]
                )
                assert_read_alike(cls, version, raw[:position] + bytes((byte,)) + raw[position:])


@every_class
def test_object_budget_matches_the_compiled_codec(cls: type[Message]) -> None:
    for version in flexible_versions(cls):
        raw = small(Random(f"{cls.__name__} {version} b"), cls, version)
        for budget in range(20):
            assert_read_alike(cls, version, raw, budget)
        with pytest.raises(ProtocolViolation):
            cls.decode(raw, version, objects_max=1)


def small(random: Random, cls: type[Message], version: int) -> bytes:
    """Return the bytes of a small message of two topics with two partitions each."""
    while True:
        value = plain(random, cls, version)
        topics = getattr(value, TOPICS[cls])
        parts = [getattr(topic, PARTITIONS[type(topic)]) for topic in topics]
        raw = value.encode(version)
        if len(topics) == 2 and any(len(some) == 2 for some in parts) and len(raw) < 500:
            return raw


TOPICS: Final[dict[type, str]] = {
    ProduceRequest: "topic_data",
    ProduceResponse: "responses",
    FetchRequest: "topics",
    FetchResponse: "responses",
}
PARTITIONS: Final[dict[type, str]] = {
    TopicProduceData: "partition_data",
    TopicProduceResponse: "partition_responses",
    FetchTopic: "partitions",
    FetchableTopicResponse: "partitions",
}


def unreachable(*_: object) -> Any:
    pytest.fail("a plain message went to the compiled codec")


@every_version
def test_plain_messages_are_read_by_hot_codec(cls: type[Message], version: int) -> None:
    random = Random(version)
    for _ in range(100):
        value = plain(random, cls, version)
        raw = value.encode(version)
        data = memoryview(raw) if has_records(cls) else raw
        # Room for a three-byte length; a shorter frame never uses the hot codec.
        if has_records(cls) and len(raw) < 61:
            continue
        assert CODECS[cls].reader(version, unreachable)(data, 0, OBJECTS_MAX) == (value, len(raw))


@every_version
def test_plain_messages_are_written_by_hot_codec(cls: type[Message], version: int) -> None:
    random = Random(version)
    for _ in range(100):
        value = plain(random, cls, version)
        raw = compiled_bytes(value, version)
        if len(raw) > HEAD_BYTES_MAX:
            continue
        buffers: list[Buffer] = []
        CODECS[cls].writer(version, unreachable)(value, buffers)
        assert b"".join(buffers) == raw
        assert all(len(buffer) for buffer in buffers)


def wide(cls: type[Message], topics: int, partitions: int) -> Any:
    """Return a message without records that has many rows."""
    of_topic: dict[type[Message], Any] = {
        ProduceResponse: TopicProduceResponse(
            name="t",
            partition_responses=[PartitionProduceResponse(index=1, error_code=0, base_offset=2)]
            * partitions,
        ),
        FetchRequest: FetchTopic(
            topic="t",
            partitions=[FetchPartition(partition=1, fetch_offset=2, partition_max_bytes=3)]
            * partitions,
        ),
        FetchResponse: topic_of(*[partition(records=b"")] * partitions),
    }
    rest: dict[type[Message], dict[str, Any]] = {
        ProduceResponse: {},
        FetchRequest: {"max_wait_ms": 1, "min_bytes": 1},
        FetchResponse: {"throttle_time_ms": 0},
    }
    return cls(**{TOPICS[cls]: [of_topic[cls]] * topics}, **rest[cls])


@every_version
def test_large_messages_use_the_compiled_writer(cls: type[Message], version: int) -> None:
    """The hand-written codec copies earlier rows for each row: thousands took seconds."""
    if cls is ProduceRequest:
        return  # has rows only with records
    left: list[Message] = []

    def noted(message: Message, buffers: list[Buffer]) -> None:
        assert not buffers
        left.append(message)

    write = CODECS[cls].writer(version, noted)
    for message in (wide(cls, 1, 127), wide(cls, 100, 100)):
        write(message, [])
        assert left.pop() is message
    write(wide(cls, 2, 100), buffers := [])
    assert buffers
    assert not left


BOUNDARIES: Final = (1, 126, 127, 128, 16_382, 16_383, 16_384, 2_097_150, 2_097_151, 2_097_152)


@each_case("size", BOUNDARIES)
@each_case("version", [9, 13])
def test_lengths_of_records_around_every_size_of_a_varint(size: int, version: int) -> None:
    records = bytes(size)
    request = ProduceRequest(
        acks=1,
        timeout_ms=1,
        topic_data=(
            TopicProduceData(partition_data=(PartitionProduceData(index=7, records=records),)),
        ),
    )
    raw = request.encode(version)
    assert raw == compiled_bytes(request, version)
    assert ProduceRequest.decode(raw, version) == request
    answer = FetchResponse(throttle_time_ms=0, responses=(topic_of(partition(records=records)),))
    raw = answer.encode(version + 4)
    assert raw == compiled_bytes(answer, version + 4)
    assert FetchResponse.decode(raw, version + 4) == answer


def partition(**values: Any) -> PartitionData:
    row: dict[str, Any] = {
        "partition_index": 1,
        "error_code": 0,
        "high_watermark": 5,
        "aborted_transactions": None,
        "records": b"records",
    }
    return PartitionData(**row | values)


def topic_of(*partitions: PartitionData) -> FetchableTopicResponse:
    return FetchableTopicResponse(partitions=partitions)


@each_case("length", [b"\x88\x00", b"\x88\x80\x00", b"\x88\x80\x80\x00"])
def test_overlong_record_length_is_rejected(length: bytes) -> None:
    raw = ProduceRequest(
        acks=1,
        timeout_ms=1,
        topic_data=(
            TopicProduceData(
                name="t", partition_data=(PartitionProduceData(index=7, records=b"records"),)
            ),
        ),
    ).encode(9)
    before, mark, behind = raw.partition(b"\x08records")
    assert mark
    overlong = before + length + b"records" + behind
    assert_read_alike(ProduceRequest, 9, overlong)
    with pytest.raises(ProtocolViolation, match="longer than necessary"):
        ProduceRequest.decode(overlong, 9)


def test_unknown_tags_are_skipped_by_hot_codec() -> None:
    random = Random(5)
    raw = small(random, FetchRequest, 14)
    assert raw.endswith(b"\0")
    tagged = raw[:-1] + b"\1" + uvarint(99) + b"\2ab"
    assert_read_alike(FetchRequest, 14, tagged)
    assert FetchRequest.decode(tagged, 14) == FetchRequest.decode(raw, 14)


@each_case(
    ("cls", "version", "head", "tail"),
    [
        (ProduceRequest, 9, bytes(7), bytes(2)),
        (FetchRequest, 12, bytes(25), b"\0\1\1\0"),
        (FetchResponse, 12, bytes(10), bytes(2)),
    ],
    ids=("ProduceRequest", "FetchRequest", "FetchResponse"),
)
def test_name_with_a_two_byte_length(
    cls: type[Message], version: int, head: bytes, tail: bytes
) -> None:
    """If only one byte of the length were read, the name would end at a byte that is an empty
    count.
    """
    raw = head + b"\2" + uvarint(129) + b"n" * 127 + b"\1" + tail
    assert_read_alike(cls, version, raw)
    with pytest.raises(ProtocolViolation, match="null"):
        cls.decode(raw, version)


@each_case("version", [12, 14])
def test_replica_state_is_ignored_before_version_15(version: int) -> None:
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=())
    follower = FetchRequest(
        max_wait_ms=1, min_bytes=1, topics=(), replica_state=ReplicaState(replica_id=3)
    ).encode(15)
    tagged = request.encode(version)[:-1] + follower[len(request.encode(15)) - 1 :]
    assert_read_alike(FetchRequest, version, tagged)
    assert FetchRequest.decode(tagged, version) == request


def test_default_replica_state_is_not_sent() -> None:
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=(), replica_state=ReplicaState())
    assert request.encode(15) == compiled_bytes(request, 15)
    assert FetchRequest.decode(request.encode(15), 15).replica_state is None


ODD: Final[tuple[object, ...]] = (
    None,
    -1,
    2**31,
    2**63,
    1.5,
    "text",
    "\ud800",
    "x" * 127,
    "x" * 32_768,
    b"",
    b"bytes",
    bytes(17),
    (),
    [],
    (None,),
    [AbortedTransaction(producer_id=1, first_offset=2)],
    [BatchIndexAndErrorMessage(batch_index=1)],
    EpochEndOffset(),
    EpochEndOffset(epoch=3),
)


@every_version
def test_odd_values_match_the_compiled_writer(cls: type[Message], version: int) -> None:
    compiled = compile_writer(cls, version, cls.FLEXIBLE)
    by_hand = CODECS[cls].writer(version, compiled)
    random = Random(version)
    for value in (example(cls, version), *(plain(random, cls, version) for _ in range(4))):
        for part in (value, *parts_of(value)):
            for field in part.FIELDS:
                kept = getattr(part, field.name)
                for odd in ODD:
                    setattr(part, field.name, odd)
                    assert written(by_hand, value) == written(compiled, value), (field, odd)
                setattr(part, field.name, kept)


def written(writer: Writer, value: Message) -> object:
    """Return the bytes of a writer, or its error."""
    buffers: list[Buffer] = []
    try:
        writer(value, buffers)
        return b"".join(buffers)
    except (EncodingError, struct.error, AttributeError, TypeError, ValueError) as error:
        return type(error), str(error)


def parts_of(value: Any) -> list[Struct]:
    """Return the first topic of a message and its first partition, if there are any."""
    topics = getattr(value, TOPICS[type(value)])[:1]
    return [*topics, *(p for t in topics for p in getattr(t, PARTITIONS[type(t)])[:1])]


def test_rare_fields_round_trip() -> None:
    """Forgotten topics, aborted transactions, long names and many topics round-trip."""
    seldom: list[tuple[Message, int]] = [
        (
            FetchRequest(
                max_wait_ms=1,
                min_bytes=1,
                topics=(),
                forgotten_topics_data=(ForgottenTopic(partitions=(1, 2)),),
            ),
            17,
        ),
        (
            FetchRequest(
                max_wait_ms=1,
                min_bytes=1,
                topics=(
                    FetchTopic(
                        partitions=(
                            FetchPartition(
                                partition=1,
                                fetch_offset=2,
                                partition_max_bytes=3,
                                replica_directory_id=Uuid(b"d" * 16),
                            ),
                        )
                        * 200
                    ),
                )
                * 200,
            ),
            17,
        ),
        (
            FetchResponse(
                throttle_time_ms=0,
                responses=(
                    topic_of(
                        partition(
                            aborted_transactions=(
                                AbortedTransaction(producer_id=1, first_offset=2),
                            )
                        ),
                        partition(records=None),
                        partition(records=b""),
                        partition(diverging_epoch=EpochEndOffset(epoch=1, end_offset=2)),
                    ),
                ),
            ),
            17,
        ),
        (
            ProduceResponse(
                responses=(
                    TopicProduceResponse(
                        name="t" * 200,
                        partition_responses=(
                            PartitionProduceResponse(
                                index=1, error_code=87, base_offset=-1, error_message="no"
                            ),
                        )
                        * 200,
                    ),
                )
                * 200
            ),
            12,
        ),
    ]
    for value, version in seldom:
        raw = compiled_bytes(value, version)
        assert value.encode(version) == raw
        assert type(value).decode(raw, version) == value


def test_produce_and_fetch_have_hot_codecs() -> None:
    assert [api for api in API_OF_KEY.values() if api.hot] == [PRODUCE, FETCH]
    assert {PRODUCE.request, PRODUCE.response, FETCH.request, FETCH.response} == set(CLASSES)


@every_class
def test_message_uses_the_registered_codec(
    cls: type[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only in flexible versions, whichever codec was used before."""

    def hot_reader(version: int, compiled: Reader) -> Reader:
        return lambda data, position, objects_max: (marked, len(data))

    def hot_writer(version: int, compiled: Writer) -> Writer:
        return lambda message, buffers: buffers.append(b"hot")

    for name in ("_readers", "_writers"):
        monkeypatch.setattr(cls, name, {})
    monkeypatch.setattr(cls, "_hot_codec", None)
    old, new = cls.FLEXIBLE.low - 1, cls.FLEXIBLE.low
    marked = example(cls, new)
    raw = marked.encode(new)
    assert cls.decode(raw, new) == marked
    cls.register_codec(hot_reader, hot_writer)
    assert marked.encode(new) == b"hot"
    assert cls.decode(b"any", new) is marked
    value = example(cls, old)
    assert value.encode(old) != b"hot"
    assert cls.decode(value.encode(old), old) == value

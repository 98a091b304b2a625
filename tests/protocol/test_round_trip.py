"""Every message round-trips in every version."""

import gc
import tracemalloc
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from cases import each_case
from ottla.protocol.apis import FETCH, PRODUCE, SHARE_FETCH
from ottla.protocol.message import Message
from ottla.protocol.messages.metadata import MetadataResponsePartition
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.protocol.reader import has_records
from ottla.protocol.schema import (
    INT8S,
    INT32S,
    INT64S,
    STRINGS,
    Kind,
    Struct,
    array,
    boolean,
    float64,
    int32,
    string,
    uint32,
)
from protocol_reference import reference_decode
from protocol_values import LENGTHS, MESSAGES, example, message, messages, name_of
from sampling import examples

every_message = each_case("cls", MESSAGES, ids=name_of)

thorough = settings(
    max_examples=examples(6, usual=15),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def assert_round_trip(value: Message, version: int) -> None:
    raw = value.encode(version)
    read = type(value).decode(raw, version)
    assert read == value
    assert read.encode(version) == raw
    assert b"".join(value.buffers(version)) == raw


@every_message
def test_any_value_round_trips(cls: type[Message]) -> None:
    @thorough
    @given(messages(cls))
    def check(case: tuple[int, Message]) -> None:
        version, value = case
        assert_round_trip(value, version)

    check()


@every_message
def test_every_version_round_trips_all_fields(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        full = example(cls, version)
        assert_round_trip(full, version)
        assert reference_decode(cls, full.encode(version), version) == (full, set())
        for seed in range(4):
            assert_round_trip(
                message(Random(f"{cls.__name__} {version} {seed}"), cls, version), version
            )


@every_message
def test_missing_field_is_read_as_default(cls: type[Message]) -> None:
    for version in cls.VERSIONS:
        read = cls.decode(example(cls, version).encode(version), version)
        for value, field in fields_of(read):
            if version in field.versions:
                continue
            default = field.default() if field.fresh else field.default
            assert getattr(value, field.name) == default, (version, field)


def fields_of(value: Struct) -> Iterator[tuple[Struct, Any]]:
    """Yield every field of a structure, recursively."""
    for field in value.FIELDS:
        yield value, field
        inside: Any = getattr(value, field.name)
        if field.struct is not None and inside is not None:
            for item in inside if field.kind is Kind.ARRAY else (inside,):
                yield from fields_of(item)


def test_default_structure_is_not_shared() -> None:
    from ottla.protocol.offsets_topic import ConsumerGroupMemberMetadataValue as Value

    raw = example(Value, 0).encode(0)
    one, other = Value.decode(raw, 0), Value.decode(raw, 0)
    assert one.classic_member_metadata is not other.classic_member_metadata
    untagged = Value(
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="h",
        subscribed_topic_names=(),
        subscribed_topic_regex=None,
        server_assignor=None,
    )
    first = Value.decode(untagged.encode(0), 0).classic_member_metadata
    second = Value.decode(untagged.encode(0), 0).classic_member_metadata
    assert first == second
    assert first is not second


class Shelf(Struct):
    """An element that is large enough for long arrays."""

    number: int = int32("0+")
    label: str = string("0+")


class Everything(Message, versions="0-1", flexible="1+"):
    """One array of each kind."""

    bytes_: Any = array(INT8S, "0+")
    ints: Any = array(INT32S, "0+")
    longs: Any = array(INT64S, "0+")
    texts: Any = array(STRINGS, "0+")
    shelves: Any = array(Shelf, "0+")
    crc: int = uint32("0+")
    share: float = float64("0+")
    open: bool = boolean("0+")


def everything(length: int) -> Everything:
    return Everything(
        bytes_=tuple(n % 256 - 128 for n in range(length)),
        ints=tuple(range(length)),
        longs=tuple(2**40 + n for n in range(length)),
        texts=tuple(str(n) for n in range(length)),
        shelves=tuple(Shelf(number=n, label=f"é{n}") for n in range(length)),
        crc=2**32 - 1,
        share=-0.0,
        open=True,
    )


@each_case("version", [0, 1])
@each_case("length", [*LENGTHS, 16_382, 16_383, 16_384])
def test_arrays_of_every_kind_and_length(length: int, version: int) -> None:
    value = everything(length)
    raw = value.encode(version)
    assert Everything.decode(raw, version) == value
    if length <= 200:
        assert reference_decode(Everything, raw, version) == (value, set())


@each_case("version", [0, 1])
def test_any_sequence_can_be_written_and_tuples_are_read(version: int) -> None:
    value = everything(20)
    lists = everything(20)
    for field in Everything.FIELDS:
        if field.kind is Kind.ARRAY:
            setattr(lists, field.name, list(getattr(value, field.name)))
    assert lists.encode(version) == value.encode(version)
    read = Everything.decode(lists.encode(version), version)
    assert read == value
    assert all(isinstance(getattr(read, f.name), tuple) for f in Everything.FIELDS[:5])


@each_case("version", [0, 1])
def test_long_arrays_do_not_fill_the_struct_cache(version: int) -> None:
    """The struct module caches a hundred layouts; one with a letter per element is large."""
    values = [everything(0) for _ in range(50)]
    for length, value in enumerate(values, 3_000):
        value.ints = tuple(range(length))
    assert_round_trip(values[0], version)
    tracemalloc.start()
    try:
        for value in values:
            Everything.decode(value.encode(version), version)
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 500_000


def test_nan_keeps_its_bits() -> None:
    quiet = bytes.fromhex("7ff8000000000abc")
    value = everything(0)
    raw = value.encode(0).replace(bytes.fromhex("8000000000000000"), quiet)
    assert Everything.decode(raw, 0).encode(0) == raw
    assert quiet in raw


@each_case("api", [PRODUCE, FETCH, SHARE_FETCH])
def test_records_are_views_of_the_frame(api: Any) -> None:
    cls: type[Message] = api.request if api is PRODUCE else api.response
    assert has_records(cls)
    for version in cls.VERSIONS:
        raw = example(cls, version).encode(version)
        for frame in (raw, bytearray(raw), memoryview(raw)):
            read = cls.decode(frame, version)
            runs = [
                getattr(value, field.name)
                for value, field in fields_of(read)
                if field.kind is Kind.RECORDS
            ]
            assert runs
            owner = frame.obj if isinstance(frame, memoryview) else frame
            assert all(isinstance(run, memoryview) and run.obj is owner for run in runs)


@each_case("version", PRODUCE.versions)
def test_records_are_passed_without_a_copy(version: int) -> None:
    batch = bytes(range(256)) * 100
    request = produce(batch, None, b"", batch)
    buffers = request.buffers(version)
    assert sum(buffer is batch for buffer in buffers) == 2
    assert sum(map(len, buffers)) < 2 * len(batch) + 200
    assert b"".join(buffers) == request.encode(version)
    assert all(len(buffer) for buffer in buffers)
    assert ProduceRequest.decode(request.encode(version), version) == request


def produce(*records: bytes | None) -> ProduceRequest:
    """Return a request with a partition for each element of records."""
    return ProduceRequest(
        acks=-1,
        timeout_ms=1,
        topic_data=(
            TopicProduceData(
                partition_data=tuple(
                    PartitionProduceData(index=n, records=run) for n, run in enumerate(records)
                )
            ),
        ),
    )


def test_structures_compare_by_value_and_type() -> None:
    one = MetadataResponsePartition(
        error_code=0, partition_index=1, leader_id=2, replica_nodes=(1,), isr_nodes=(1,)
    )
    other = MetadataResponsePartition(
        error_code=0, partition_index=1, leader_id=3, replica_nodes=(1,), isr_nodes=(1,)
    )
    assert one != other
    other.leader_id = 2
    assert one == other
    assert one != Shelf(number=1, label="")
    with pytest.raises(TypeError):
        hash(one)
    assert "leader_id=2" in repr(one)

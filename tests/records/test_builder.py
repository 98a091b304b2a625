"""The batch builder appends one record at a time."""

from typing import Any

import pytest

from ottla.records._kernel import Record
from ottla.records.batch import HEADER_SIZE, Batch, batches
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Compression


def test_batch_has_the_appended_records() -> None:
    builder = BatchBuilder()
    assert builder.append(timestamp=8, key=b"k", value=None, headers=[("h", b"x"), ("h", None)])
    assert builder.append(7, None, b"v")
    assert (builder.count, builder.base_timestamp, builder.max_timestamp) == (2, 8, 8)
    batch = Batch(builder.build())
    assert batch.records().read_all() == [
        Record(0, 8, b"k", None, (("h", b"x"), ("h", None))),
        Record(1, 7, None, b"v"),
    ]
    assert builder.size == len(batch.data)


def test_build_sets_every_header_field() -> None:
    builder = BatchBuilder(1000, Compression.LZ4)
    builder.append(5, b"k", b"v")
    header = Batch(
        builder.build(
            base_offset=1,
            leader_epoch=2,
            producer_id=3,
            producer_epoch=4,
            base_sequence=5,
            transactional=True,
            control=True,
        )
    ).header
    assert (header.base_offset, header.leader_epoch, header.producer_id) == (1, 2, 3)
    assert (header.producer_epoch, header.base_sequence) == (4, 5)
    assert (header.is_transactional, header.is_control) == (True, True)
    assert header.compression is Compression.LZ4


def test_default_batch_has_no_producer() -> None:
    builder = BatchBuilder(1000)
    builder.append(5, b"k", b"v")
    header = Batch(builder.build()).header
    assert (header.base_offset, header.leader_epoch, header.producer_id) == (0, -1, -1)
    assert (header.producer_epoch, header.base_sequence, header.attributes) == (-1, -1, 0)


def test_full_builder_rejects_the_record() -> None:
    builder = BatchBuilder(200)
    appended = 0
    while builder.append(appended, b"key", b"0123456789"):
        appended += 1
        assert builder.size <= 200
    assert 0 < appended == builder.count
    assert builder.append(0, None, None)
    assert len(builder.build()) == builder.size <= 200


def test_extend_equals_single_appends() -> None:
    values = [b"0", None, b"2" * 300, b""] * 20
    for key in (None, b"key"):
        run, single = BatchBuilder(3000), BatchBuilder(3000)
        at = 0
        while at < len(values):
            count = run.extend(7, key, values, at)
            for value in values[at : at + count]:
                assert single.append(7, key, value)
            assert run.build() == single.build()
            at += count
            if at < len(values):
                assert not single.append(7, key, values[at])
                assert run.extend(7, key, values, at) == 0
                run, single = BatchBuilder(3000), BatchBuilder(3000)
        assert run.extend(7, key, values, len(values)) == 0
        with pytest.raises(ValueError, match="index of a value"):
            run.extend(7, key, values, -1)
        with pytest.raises(OverflowError):
            run.extend(1 << 63, key, values)


def test_failed_extend_keeps_the_values_before() -> None:
    values: list[Any] = [b"a", b"b", "no bytes", b"c"]
    builder = BatchBuilder(3000)
    with pytest.raises(TypeError):
        builder.extend(7, None, values)
    assert [record.value for record in Batch(builder.build()).records()] == [b"a", b"b"]


def test_builder_can_build_twice() -> None:
    builder = BatchBuilder(1000, Compression.GZIP)
    builder.append(1, b"k", b"v")
    first = builder.build()
    assert builder.build() == first
    builder.append(2, b"k", b"v")
    (batch,) = batches(builder.build(base_offset=5))
    assert [record.offset for record in batch.records()] == [5, 6]


def test_builder_compresses() -> None:
    for compression in Compression:
        builder = BatchBuilder(1_000_000, compression)
        for _ in range(100):
            builder.append(1, b"key", b"value" * 20)
        built = builder.build()
        assert (len(built) < builder.size) is (compression is not Compression.NONE)


def test_builder_passes_the_compression_level() -> None:
    sizes: list[int] = []
    for level in (1, 19):
        builder = BatchBuilder(1_000_000, Compression.ZSTD, level)
        for number in range(2000):
            builder.append(number, None, b"%d" % (number * number % 7919))
        sizes.append(len(builder.build()))
    assert sizes[0] != sizes[1]


def test_empty_builder_cannot_build() -> None:
    with pytest.raises(ValueError, match="one record"):
        BatchBuilder(1000).build()
    assert BatchBuilder(1000).size == HEADER_SIZE


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_batch_built_in_place_equals_a_copy_and_stays(compression: Compression) -> None:
    builder = BatchBuilder(1000, compression)
    builder.append(5, b"k", b"v" * 100, [("h", b"x")])
    builder.append(6, None, b"v" * 100)
    copy = builder.build(producer_id=3, producer_epoch=4, base_sequence=5, transactional=True)
    first = builder.build_in_place(
        producer_id=3, producer_epoch=4, base_sequence=5, transactional=True
    )
    assert bytes(first) == copy
    assert not builder.append(7, None, b"v")
    again = builder.build(producer_id=3, producer_epoch=9, base_sequence=0)
    assert Batch(again).header.producer_epoch == 9
    builder.release()
    assert bytes(first) == copy
    assert memoryview(first).readonly


def test_empty_builder_cannot_build_in_place() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        BatchBuilder().build_in_place()

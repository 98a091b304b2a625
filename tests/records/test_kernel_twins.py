"""The compiled kernel and its Python source return the same for the same input."""

import contextlib
from array import array
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from fastcrc.crc32 import iscsi as crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import each_case
from kernel_loading import CompiledFinder, SourceFinder, is_compiled, load_kernel
from ottla.client.consumer.record import Record as ConsumerRecord
from ottla.records.batch import HEADER_SIZE, LOG_APPEND_TIME, Batch, BatchHeader
from ottla.records.errors import CorruptRecords
from records.drawing import INT64, Drawn, build, damaged, drawn_batches
from sampling import examples

pytestmark = pytest.mark.skipif(not is_compiled(), reason="there is no compiled kernel here")

SOURCE = load_kernel(SourceFinder)
MACHINE = load_kernel(CompiledFinder)


def outcome(work: Callable[[Any], object], kernel: Any) -> object:
    """The result or the error of a call, in a form that both kernels share."""
    try:
        return work(kernel)
    except Exception as error:
        return type(error).__name__, str(error)


def same(work: Callable[[Any], object]) -> None:
    assert outcome(work, MACHINE) == outcome(work, SOURCE)


def test_one_kernel_is_compiled_and_one_is_python() -> None:
    assert MACHINE.COMPILED is True
    assert SOURCE.COMPILED is False
    assert MACHINE.REASONS == SOURCE.REASONS


sections = st.one_of(
    drawn_batches.map(lambda drawn: build(drawn)[HEADER_SIZE:]),
    drawn_batches.flatmap(lambda drawn: damaged(build(drawn)[HEADER_SIZE:])),
    st.binary(max_size=200),
    st.lists(st.sampled_from([0, 1, 2, 3, 14, 16, 0x7F, 0x80, 0xFF]), max_size=80).map(bytes),
)
counts = st.integers(0, 30) | st.integers(-(2**31), 2**31 - 1)


@settings(max_examples=examples(60, usual=400))
@given(sections, counts, INT64, INT64, INT64)
def test_check(section: bytes, count: int, base: int, earliest: int, latest: int) -> None:
    same(lambda kernel: kernel.check_records(section, count, base, earliest, latest))
    for key_required in (False, True):
        same(
            lambda kernel, required=key_required: kernel.find_invalid_records(
                section, count, base, earliest, latest, required, 10
            )
        )


@given(st.lists(drawn_batches.map(build), max_size=3).map(b"".join), st.binary(max_size=200))
def test_count_records(run: bytes, tail: bytes) -> None:
    same(lambda kernel: kernel.count_records(run))
    same(lambda kernel: kernel.count_records(run + tail))
    same(lambda kernel: kernel.count_records(tail))


def told(record: Any) -> tuple[object, ...]:
    return record.offset, record.timestamp, record.key, record.value, record.headers


def tuples(
    kernel: Any,
    given_batches: list[Batch],
    first: int,
    records_min: int = 0,
    bytes_min: int = 0,
    *,
    check_crc: bool,
) -> object:
    """What a consumer makes of batches."""
    found, until = kernel.read_record_tuples(
        ConsumerRecord,
        *("t", 3, ("create", "append")),
        *(given_batches, first, records_min, bytes_min, crc32c if check_crc else None, 1 << 20),
    )
    assert {type(record) for record in found} <= {ConsumerRecord}
    return found, until


@settings(max_examples=examples(60, usual=400))
@given(
    sections,
    counts,
    st.integers(-1, 40) | st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 100) | INT64,
    INT64,
    st.none() | INT64,
    st.integers(0, 40) | INT64,
)
def test_reading(
    section: bytes, count: int, last: int, base: int, time: int, append: int | None, first: int
) -> None:
    def one_at_a_time(kernel: Any) -> object:
        reader = kernel.RecordReader(section, count, last, base, time, append, first)
        found: list[object] = []
        try:
            found.extend(told(record) for record in reader)
        except Exception as error:
            found.append((type(error).__name__, str(error)))
        return found, list(reader)

    def all_at_once(kernel: Any) -> object:
        reader = kernel.RecordReader(section, count, last, base, time, append, first)
        return [told(record) for record in reader.read_all()]

    def as_tuples(kernel: Any) -> object:
        flag, append_time = (0, 0) if append is None else (LOG_APPEND_TIME, append)
        header = (base, 0, 9, 2, 0, flag, last, time, append_time, -1, -1, -1, count)
        batch = Batch.__new__(Batch)
        batch.header = BatchHeader._make(header)
        batch.data = memoryview(bytes(HEADER_SIZE) + section)
        return tuples(kernel, [batch], first, check_crc=False)

    def columns(kernel: Any) -> object:
        writer = kernel.ColumnBuilder()
        for _ in range(2):
            with contextlib.suppress(CorruptRecords):
                writer.append_batch(section, count, last, base, time, append, first, first + 20)
        writer.finish()
        return buffers(writer)

    same(one_at_a_time)
    same(all_at_once)
    same(as_tuples)
    if -(2**63) <= first + 20 < 2**63:
        same(columns)


BUFFERS = [name for name in dir(MACHINE.ColumnBuilder) if name[0] != "_"]


def buffers(writer: Any) -> list[object]:
    fields = [getattr(writer, name) for name in BUFFERS]
    return [field for field in fields if not callable(field)]


@settings(max_examples=examples(60, usual=400))
@given(
    sections,
    counts,
    st.integers(-1, 40) | st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 100) | INT64,
    st.tuples(INT64, st.none() | INT64, INT64),
    st.integers(0, 40) | INT64,
    st.integers(48, 600),
    st.booleans(),
)
def test_compacting(
    section: bytes,
    count: int,
    last: int,
    base: int,
    times: tuple[int, int | None, int],
    until: int,
    size: int,
    keeps: bool,
) -> None:
    time, append, new_time = times

    def compact(kernel: Any) -> object:
        keys = kernel.OffsetMap(size, 0.8, bytes(range(16)))
        add = [
            outcome(lambda _: keys.add_batch(section, count, last, base, until), 0) for _ in "ab"
        ]
        found = keys.limit, keys.count, add
        kept = kernel.mark_retained(keys, section, count, last, base, time, append, until, keeps)
        copied = kernel.copy_retained(section, kept[0], time, append, new_time)
        return found, kept, bytes(copied[HEADER_SIZE:])

    same(compact)


@given(st.binary(max_size=70), st.binary(min_size=15, max_size=17))
def test_hashing_keys(data: bytes, secret: bytes) -> None:
    same(lambda kernel: kernel.OffsetMap(480, 0.9, secret).hash(data))


@given(drawn_batches, st.integers(0, 3000))
def test_appending(drawn: list[Drawn], limit: int) -> None:
    def append(kernel: Any) -> object:
        appender = kernel.RecordAppender(limit)
        taken = [appender.append(*each) for each in drawn]
        return (
            taken,
            bytes(appender.encoded()),
            appender.size,
            appender.count,
            appender.base_timestamp,
            appender.max_timestamp,
        )

    same(append)


queued = st.tuples(
    st.sampled_from(["a", "b", "unknown"]),
    st.none() | st.binary(max_size=3),
    st.none() | st.binary(max_size=40),
    st.none() | st.integers(0, 2),
    st.sampled_from([(), (), (), (("name", b"value"),), (("name", 5),)]),
    st.integers(0, 2000) | INT64,
)
plain = st.tuples(
    st.just("a"), st.none(), st.binary(max_size=40), st.none(), st.just(()), st.just(7)
)


@given(st.lists(plain | queued, max_size=12), st.integers(0, 400), st.booleans(), st.booleans())
def test_open_batches(drawn: list[Any], limit: int, seals: bool, by_key: bool) -> None:
    def send(kernel: Any) -> object:
        class Reference(kernel.RecordRef):
            pass

        batches = kernel.OpenBatches(Reference, by_key)
        places = [(topic, partition) for topic in "ab" for partition in range(2)]
        appenders = {place: kernel.RecordAppender(limit) for place in places}
        for (topic, partition), appender in appenders.items():
            batch = f"{topic}-{partition}"
            batches.add(topic, partition, 2, appender, batch, partition == 1)
        found: list[object] = []
        for topic, key, value, partition, headers, timestamp in drawn:

            def place(
                topic: Any = topic, rest: Any = (timestamp, key, value, partition, headers)
            ) -> object:
                reference = batches.append(topic, *rest)
                return None if reference is None else (reference._batch, reference._index)

            found.append(outcome(lambda _, place=place: place(), 0))
        if seals:
            appenders["a", 1].seal()
        records = [kernel.QueuedRecord("queue", *each) for each in drawn]
        entries: deque[Any] = deque([*records, "not a record"])
        while entries:
            taken = batches.take(entries)
            stopped = entries.popleft()
            if stopped == "not a record":
                break
            found.append((taken, stopped.size, stopped.is_queued, stopped._batch))
        found += [(one.is_queued, one._batch, one._index, one.key, one.value) for one in records]
        return found, [(one.count, one.size, bytes(one.encoded())) for one in appenders.values()]

    same(send)


@given(st.integers(-(2**65), 2**65), st.binary(max_size=12), st.integers(-2, 12))
def test_varints(value: int, data: bytes, pos: int) -> None:
    same(lambda kernel: kernel.write_varint(value))
    same(lambda kernel: kernel.write_varlong(value))
    same(lambda kernel: kernel.read_varint(data, pos))
    same(lambda kernel: kernel.read_varlong(data, pos))


@given(st.lists(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]), max_size=12).map(bytes))
def test_varint_edge_cases(data: bytes) -> None:
    same(lambda kernel: kernel.read_varint(data))
    same(lambda kernel: kernel.read_varlong(data))


@given(st.binary(max_size=70))
def test_murmur2(data: bytes) -> None:
    same(lambda kernel: kernel.murmur2(data))


offsets = st.lists(st.integers(-1, 12) | st.integers(-(2**31), 2**31 - 1), max_size=8)
narrow = offsets.map(lambda numbers: (array("i", numbers).tobytes(), False))
wide = st.lists(st.integers(-1, 12) | INT64, max_size=8).map(
    lambda numbers: (array("q", numbers).tobytes(), True)
)
columns = st.tuples(
    narrow | wide | st.tuples(st.binary(max_size=40), st.booleans()),
    st.binary(max_size=12),
    st.none() | st.binary(max_size=2),
    st.integers(-1, 9),
    st.integers(-1, 3),
)


def column_of(kernel: Any, drawn: Any) -> Any:
    (raw, is_wide), data, validity, length, start = drawn
    return kernel.BinaryColumn(raw, data, validity, length, start, is_wide)


@settings(max_examples=examples(60, usual=400))
@given(columns, columns, st.integers(0, 9), st.integers(0, 200), INT64)
def test_columns_with_false_offsets(
    keys: Any, values: Any, stop: int, limit: int, time: int
) -> None:
    def encode(kernel: Any) -> object:
        own = column_of(kernel, keys), column_of(kernel, values)
        buffer, *rest = kernel.encode_rows(*own, None, None, time, 0, stop, limit)
        return bytes(buffer[HEADER_SIZE:]), rest

    def header_lists(kernel: Any) -> object:
        (raw, is_wide), _, validity, length, start = keys
        own = column_of(kernel, values)
        lists = kernel.HeaderColumn(raw, validity, own, own, length, start, is_wide)
        buffer, *rest = kernel.encode_rows(None, own, lists, None, time, 0, stop, limit)
        return bytes(buffer[HEADER_SIZE:]), rest

    same(encode)
    same(header_lists)
    same(
        lambda kernel: kernel.find_oversized_row(
            column_of(kernel, keys), column_of(kernel, values), None, 0, stop, 95
        )
    )
    same(lambda kernel: kernel.partitions(column_of(kernel, keys), 7))
    same(lambda kernel: kernel.TimestampColumn(keys[1], keys[3]).length)


@given(
    st.lists(st.tuples(INT64, st.none() | st.binary(max_size=40)), min_size=1), st.integers(0, 500)
)
def test_valid_columns(cells: list[tuple[int, bytes | None]], limit: int) -> None:
    data, bounds, validity = b"", [0], bytearray((len(cells) + 7) // 8)
    for row, (_, cell) in enumerate(cells):
        data += cell or b""
        bounds.append(len(data))
        validity[row >> 3] |= (cell is not None) << (row & 7)
    times = array("q", [timestamp for timestamp, _ in cells]).tobytes()

    def encode(kernel: Any) -> object:
        column = kernel.BinaryColumn(array("i", bounds), data, validity, len(cells))
        timestamps = kernel.TimestampColumn(times, len(cells))
        row, found = 0, list[object]()
        while row < len(cells):
            buffer, row, *rest = kernel.encode_rows(
                column, column, None, timestamps, 0, row, len(cells), limit
            )
            found.append((bytes(buffer[HEADER_SIZE:]), row, rest))
        return found

    same(encode)


def run_of_batches(values: list[bytes]) -> bytes:
    """Consecutive batches of one record, of two and so on."""
    return b"".join(
        build([Drawn(0, None, value, ())] * (n + 1), base_offset=n * (n + 1) // 2)
        for n, value in enumerate(values)
    )


runs = st.lists(st.binary(max_size=9), max_size=4).map(run_of_batches)


@settings(max_examples=examples(60, usual=300))
@given(runs | runs.flatmap(damaged), INT64, st.integers(0, 3) | INT64, st.integers(0, 9) | INT64)
def test_scan_batch_headers(data: bytes, at: int, expected: int, limit: int) -> None:
    for start in (0, at):
        same(
            lambda kernel, at=start: kernel.scan_batch_headers(
                data, at, expected, limit, BatchHeader, crc32c
            )
        )


@settings(max_examples=examples(60, usual=300))
@given(runs | runs.flatmap(damaged), st.integers(0, 9), st.integers(0, 9))
def test_batches_of_a_fetch(data: bytes, first: int, last: int) -> None:
    def split(kernel: Any) -> object:
        found, end = kernel.split_batches(data, Batch, BatchHeader)
        return [(bytes(one.data), one.header) for one in found], end

    def columns(kernel: Any) -> object:
        found, _ = kernel.split_batches(data, Batch, BatchHeader)
        writer = kernel.ColumnBuilder()
        types = writer.append_batches(found, first, last, crc32c, 1 << 20)
        writer.finish()
        return types, buffers(writer)

    def records(kernel: Any) -> object:
        found, _ = kernel.split_batches(data, Batch, BatchHeader)
        return [
            outcome(
                lambda one, check=check: tuples(one, found, first, last, 150, check_crc=check),
                kernel,
            )
            for check in (False, True)
        ]

    same(split)
    same(columns)
    same(records)


@each_case("wrong", [None, "text", 5, [1], memoryview(b"abcd")[::2]])
def test_arguments_that_are_not_buffers(wrong: object) -> None:
    def kind_of_error(kernel: Any) -> object:
        try:
            return kernel.check_records(wrong, 0, 0, 0, 0)
        except (TypeError, BufferError) as error:
            return type(error).__name__

    same(kind_of_error)


JSON_PARTS = (
    *('{"a":', '"b":', '"other":', '"a"', "{", "}", ",", ", ", ":", "[", "]", " ", "\n"),
    *(
        '"text"',
        '"\\n"',
        '"\\u00e9"',
        '"\\ud83d"',
        '"é"',
        '"😀"',
        '"',
        "\\",
        "null",
        "true",
        "false",
    ),
    *(
        "0",
        "-0",
        "-1",
        "12",
        "01",
        "1.5",
        "1e3",
        ".5",
        "-",
        "999999999999999999",
        "0.1234567890123456",
    ),
    *('"2024-02-29"', '"2026-01-31T23:59:59.5+01:00"', '"2026-02-30"', '"2026-01-01 00:00:00Z"'),
)
JSON_VALUES = (
    '"text"',
    "null",
    "true",
    "-12",
    "12.5",
    '"2026-01-31"',
    '"2026-01-31T23:59:59.5+01:00"',
)
objects = st.lists(
    st.tuples(st.sampled_from(["a", "b", "other"]), st.sampled_from(JSON_VALUES)), max_size=4
).map(lambda fields: "{" + ",".join(f'"{name}":{value}' for name, value in fields) + "}")
json_texts = objects | st.lists(st.sampled_from(JSON_PARTS), max_size=9).map("".join)
json_values = st.none() | st.binary(max_size=20) | json_texts.map(str.encode)


@settings(max_examples=examples(100, usual=600))
@given(
    st.lists(json_values, max_size=20),
    st.tuples(st.sampled_from([*MACHINE.JsonType]), st.sampled_from([*MACHINE.JsonType])),
    st.booleans(),
    st.booleans(),
)
def test_json_objects(
    values: list[bytes | None], kinds: tuple[int, int], required: bool, skips_unknown: bool
) -> None:
    data, bounds, validity = b"", [0], bytearray((len(values) + 7) // 8)
    for row, value in enumerate(values):
        data += value or b""
        bounds.append(len(data))
        validity[row >> 3] |= (value is not None) << (row & 7)

    def parse(kernel: Any) -> object:
        column = kernel.BinaryColumn(array("i", bounds), data, validity, len(values))
        fields = [
            kernel.JsonField(b"a", int(kinds[0]), required),
            kernel.JsonField(b"b", int(kinds[1])),
        ]
        found = kernel.parse_json_objects(column, len(values), fields, skips_unknown)
        return found, [field.buffers for field in fields]

    same(parse)


def test_json_fields_are_checked() -> None:
    def parse(rows: int, count: int, kind: int = 1, data: bytes = b"") -> Callable[[Any], object]:
        def work(kernel: Any) -> object:
            column = kernel.BinaryColumn(array("i", [0, 2]), data, None, 1)
            fields = [kernel.JsonField(b"%d" % n, kind) for n in range(count)]
            return kernel.parse_json_objects(column, rows, fields, False)

        return work

    for work, why in (
        (parse(1, 0), "0 fields"),
        (parse(1, 65), "65 fields"),
        (parse(2, 1), "a column of 1 rows does not have 2"),
        (parse(-1, 1), "a column of 1 rows does not have -1"),
        (parse(1, 1), "row 0: the value is outside its column"),
        (parse(1, 1, kind=0, data=b"{}"), "there is no kind 0"),
    ):
        same(work)
        with pytest.raises(ValueError, match=why):
            work(MACHINE)
    same(parse(1, 64, data=b"{}"))

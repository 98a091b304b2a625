"""Record formats of Kafka's console tools: printed records and parsed lines."""

import struct

import pytest

from cases import each_case
from cli.records.harness import Row, taken_of
from ottla.cli.kafka.console.deserializers import deserializer, double_text, single_text
from ottla.cli.kafka.console.formatter import DEFAULT_FORMATTER, formatter_of
from ottla.cli.kafka.console.line_reader import reader_of, split_as_java
from ottla.cli.kafka.flags import NotDone
from ottla.cli.records.cells import Cells
from ottla.cli.records.input import BadLine, Draft
from ottla.errors import OttlaError
from ottla.protocol import offsets_topic, transactions_topic

JAVA = "org.apache.kafka.common.serialization."
ROWS: list[Row] = [(1000, b"k", b"v", [("a", b"1"), ("b", None)]), (1001, None, None, [])]


def printed(properties: dict[str, str]) -> bytes:
    formatter = formatter_of(DEFAULT_FORMATTER, properties, print)
    return formatter.shown(Cells(taken_of(ROWS), 0, 2))


def test_default_format_prints_values_and_null() -> None:
    assert printed({}) == b"v\nnull\n"


def test_parts_are_printed_in_javas_order() -> None:
    every = ("timestamp", "key", "offset", "epoch", "partition", "headers", "delivery")
    assert printed({f"print.{one}": "true" for one in every}).splitlines() == [
        b"CreateTime:1000\tPartition:3\tOffset:0\tDelivery:NOT_PRESENT\tEpoch:NOT_PRESENT\ta:1,b:null\tk\tv",
        b"CreateTime:1001\tPartition:3\tOffset:1\tDelivery:NOT_PRESENT\tEpoch:NOT_PRESENT\tNO_HEADERS\tnull\tnull",
    ]


def test_separators_and_null_literal_are_configurable() -> None:
    said = {
        "print.key": " TRUE ", "print.headers": "true", "key.separator": "|",
        "line.separator": ";", "headers.separator": "&", "null.literal": "0",
    }  # fmt: skip
    assert printed(said) == b"a:1&b:0|k|v;NO_HEADERS|0|0;"
    assert printed({"print.value": "false", "print.key": "true"}) == b"k\nnull\n"
    assert printed({"print.value": "false"}) == b""


def test_null_literal_is_deserialized_like_java() -> None:
    said = {"key.deserializer": JAVA + "IntegerDeserializer", "print.key": "true"}
    formatter = formatter_of(DEFAULT_FORMATTER, said, print)
    taken = taken_of(ROWS)
    with pytest.raises(ValueError, match="4"):
        formatter.shown(Cells(taken, 0, 2))
    text, error = formatter.some(taken, 1)
    assert (text, error) == (b"1853189228\tnull\n", None)
    text, error = formatter.some(taken, 0)
    assert text == b""
    assert error is not None


def test_unknown_deserializer_is_reported_and_ignored() -> None:
    said: list[str] = []
    formatter = formatter_of(DEFAULT_FORMATTER, {"value.deserializer": "my.Own"}, said.append)
    assert formatter.shown(Cells(taken_of(ROWS), 0, 1)) == b"v\n"
    assert said == ["Unable to instantiate a deserializer from my.Own"]


def test_unknown_formatter_is_not_supported() -> None:
    with pytest.raises(NotDone):
        formatter_of("my.Formatter", {}, print)
    silent = formatter_of("org.apache.kafka.tools.consumer.NoOpMessageFormatter", {}, print)
    assert silent.shown(Cells(taken_of(ROWS), 0, 2)) == b""


def test_formatters_of_internal_topics_have_old_and_new_names() -> None:
    types = offsets_topic.TYPES
    key = types.encode_key(offsets_topic.GroupMetadataKey(group="g"))
    rows = Cells(taken_of([(0, key, None, ())]), 0, 1)
    shown = b'{"key":{"type":2,"data":{"group":"g"}},"value":null}'
    new, old = "org.apache.kafka.tools.consumer.", "kafka.coordinator.group.GroupMetadataManager$"
    for package in (new, old):
        name = f"{package}GroupMetadataMessageFormatter"
        assert formatter_of(name, {}, print).shown(rows) == shown
        # Records of other types are not printed.
        assert formatter_of(f"{package}OffsetsMessageFormatter", {}, print).shown(rows) == b""
    transactions = "kafka.coordinator.transaction.TransactionLog$TransactionLogMessageFormatter"
    key = b"\0\0" + transactions_topic.TransactionLogKey(transactional_id="t").encode(0)
    rows = Cells(taken_of([(0, key, None, ())]), 0, 1)
    shown = b'{"key":{"type":0,"data":{"transactionalId":"t"}},"value":null}'
    assert formatter_of(transactions, {}, print).shown(rows) == shown


def test_undecodable_record_of_an_internal_topic_is_an_error() -> None:
    name = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"
    taken = taken_of([(0, b"\0\1\0", b"", ())])
    text, error = formatter_of(name, {}, print).some(taken, 0)
    assert text == b""
    assert str(error).startswith("Could not read record at offset 0 due to: ")


@each_case(
    ("value", "text"),
    [
        (1.0, "1.0"), (-0.0, "-0.0"), (0.001, "0.001"), (0.0001, "1.0E-4"), (1e7, "1.0E7"),
        (1234567.0, "1234567.0"), (123.456, "123.456"), (1.5e300, "1.5E300"), (100.0, "100.0"),
        (float("nan"), "NaN"), (float("-inf"), "-Infinity"), (5e-324, "4.9E-324"),
    ],
)  # fmt: skip
def test_doubles_are_printed_like_java(value: float, text: str) -> None:
    if value == 5e-324:
        assert double_text(value) in (text, "5.0E-324")  # newer Java versions print the shorter one
    else:
        assert double_text(value) == text


@each_case(
    ("value", "text"),
    [(0.1, "0.1"), (3.4028235e38, "3.4028235E38"), (1e10, "1.0E10"), (2.0**24, "1.6777216E7")],
)
def test_floats_are_printed_like_java(value: float, text: str) -> None:
    (single,) = struct.unpack(">f", struct.pack(">f", value))
    assert single_text(single) == text


@each_case(
    ("name", "data", "text"),
    [
        ("StringDeserializer", b"\xff", "\ufffd".encode()),
        ("LongDeserializer", b"\xff" * 8, b"-1"),
        ("ShortDeserializer", b"\x00\x02", b"2"),
        ("BooleanDeserializer", b"\x01", b"true"),
        ("BytesDeserializer", b"a\x00\\", b"a\\x00\\x5C"),
        ("ByteBufferDeserializer", b"abc", b"java.nio.HeapByteBuffer[pos=0 lim=3 cap=3]"),
        ("UUIDDeserializer", b"0-0-0-0-1", b"00000000-0000-0000-0000-000000000001"),
    ],
)
def test_deserialized_values_are_printed_like_java(name: str, data: bytes, text: bytes) -> None:
    make = deserializer(JAVA + name, {}, is_key=False)
    assert make is not None
    assert make(data) == text


def test_line_is_parsed_to_headers_key_and_value() -> None:
    reader = reader_of({"parse.key": "true", "parse.headers": "true", "null.marker": "NULL"})
    assert reader.draft(b"a:1,b:NULL\tk\tv\tw") == Draft(b"k", b"v\tw", (("a", b"1"), ("b", None)))
    assert reader.draft(b"NULL\tNULL\tNULL") == Draft(None, None)
    with pytest.raises(BadLine, match="No headers delimiter found on line number 3: 'x'"):
        reader.draft(b"x")
    with pytest.raises(BadLine, match="No header key separator found in pair 'x' on line number 4"):
        reader.draft(b"x\tk\tv")
    with pytest.raises(BadLine, match="Header keys should not be equal to the null marker"):
        reader.draft(b"NULL:1\tk\tv")


def test_parse_errors_can_be_ignored() -> None:
    reader = reader_of({"parse.key": "true", "ignore.error": "true"})
    assert reader.draft(b"v") == Draft(None, b"v")


def test_equal_separators_are_refused() -> None:
    with pytest.raises(
        OttlaError, match=r"headers.delimiter and headers.separator may not be equal"
    ):
        reader_of({"headers.delimiter": ","})
    with pytest.raises(OttlaError, match=r"null.marker and key.separator may not be equal"):
        reader_of({"null.marker": "\t"})


def test_lines_are_split_like_java() -> None:
    assert split_as_java(b"a\nb\r\nc\rd") == ([b"a", b"b", b"c"], b"d")
    assert split_as_java(b"a\r") == ([], b"a\r")
    assert split_as_java(b"a\r\n") == ([b"a"], b"")
    assert split_as_java(b"\xff\n") == (["\ufffd".encode()], b"")

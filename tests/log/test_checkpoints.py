"""The text files of a data directory, compared with files that Kafka wrote."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each_case
from ottla.ids import BrokerEpoch, BrokerId, Offset, PartitionIndex, TopicPartition, Uuid
from ottla.log.checkpoints import (
    MetaProperties,
    format_clean_shutdown,
    format_meta_properties,
    format_offsets,
    format_partition_metadata,
    parse_clean_shutdown,
    parse_meta_properties,
    parse_offsets,
    parse_partition_metadata,
)
from ottla.log.errors import CorruptText

# Written by Kafka 4.3.1.
KAFKA_OFFSETS = "0\n2\norders 0 42\na-b.c_d 11 9223372036854775807\n"
KAFKA_PARTITION_METADATA = "version: 0\ntopic_id: Nk3ZqvzXQ0-7mDLiRUiB9g"
KAFKA_CLEAN_SHUTDOWN = '{"version":0,"brokerEpoch":9007199254740993}'
KAFKA_META_PROPERTIES = (
    "#\n#Sun Nov 15 06:06:19 UTC 2026\nnode.id=3\ndirectory.id=Nk3ZqvzXQ0-7mDLiRUiB9g\n"
    "version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
)
KAFKA_META_PROPERTIES_0 = (
    "#\n#Sun Nov 15 06:06:19 UTC 2026\nbroker.id=3\nversion=0\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
)

ID = Uuid.parse("Nk3ZqvzXQ0-7mDLiRUiB9g")
META = MetaProperties("MkU3OEVBNTcwNTJENDM2Qg", BrokerId(3), ID)


def partition(topic: str, index: int) -> TopicPartition:
    return TopicPartition(topic, PartitionIndex(index))


OFFSETS = {partition("orders", 0): Offset(42), partition("a-b.c_d", 11): Offset(2**63 - 1)}


def problem_of(parse: Callable[[str], object], text: str) -> str:
    with pytest.raises(CorruptText) as raised:
        parse(text)
    return str(raised.value)


def test_offset_checkpoint_has_the_format_of_kafka() -> None:
    assert parse_offsets(KAFKA_OFFSETS) == OFFSETS
    assert format_offsets(OFFSETS) == KAFKA_OFFSETS


def test_empty_checkpoint_file_has_no_offsets() -> None:
    assert parse_offsets("") == {}
    assert parse_offsets(format_offsets({})) == {}


def test_checkpoint_accepts_other_blanks_and_line_ends() -> None:
    assert parse_offsets(KAFKA_OFFSETS.replace("\n", "\r\n").replace(" ", "\t ")) == OFFSETS


@each_case(
    ("text", "message"),
    [
        ("\n", "line 1: version: expected a number, found ''"),
        ("0\n1\norders 0\n", "line 3: expected 3 columns, found 'orders 0'"),
        ("0\n1\n orders 0 1\n", "line 3: expected 3 columns, found ' orders 0 1'"),
        ("0\n2\norders 0 1\n\n", "line 4: expected 3 columns, found ''"),
        ("0\n1\nor/ders 0 1\n", "line 3: A topic name can contain"),
        ("0\n1\norders 2147483648 1\n", "line 3: partition: 2147483648 is not in 0 to"),
        ("0\n1\norders 0 9223372036854775808\n", "line 3: offset: 9223372036854775808 is not in"),
        ("0\n1\norders 0 1_0\n", "line 3: offset: expected a number, found '1_0'"),
        ("0\n1\norders 0 \u0661\n", "line 3: offset: expected a number, found '\\u0661'"),
        ("0\n2\norders 0 1\norders 0 2\n", "line 4: duplicate entry for orders-0"),
        ("0\n-1\n", "line 2: number of entries: -1 is not in"),
        ("0\n1\norders 0 12", "line 3: the file is truncated"),
        ("0", "line 1: the file is truncated"),
        ("\0\0\0\0", "line 1: the file is truncated"),
        ("0\n" + "9" * 5000 + "\n", "line 2: number of entries: expected a number"),
    ],
)
def test_damaged_checkpoint_error_has_the_line(text: str, message: str) -> None:
    assert problem_of(parse_offsets, text).startswith(message)


@given(
    st.dictionaries(
        st.builds(
            partition, st.from_regex(r"[A-Za-z0-9_-]{1,20}", fullmatch=True), st.integers(0, 99)
        ),
        st.integers(0, 2**63 - 1).map(Offset),
    )
)
def test_offset_checkpoint_round_trips(offsets: dict[TopicPartition, Offset]) -> None:
    text = format_offsets(offsets)
    assert parse_offsets(text) == offsets
    assert format_offsets(parse_offsets(text)) == text


@given(st.integers(0, len(KAFKA_OFFSETS) - 1))
def test_truncated_checkpoint_is_rejected(length: int) -> None:
    if length:
        problem_of(parse_offsets, KAFKA_OFFSETS[:length])


def test_partition_metadata_has_the_format_of_kafka() -> None:
    assert parse_partition_metadata(KAFKA_PARTITION_METADATA) == ID
    assert format_partition_metadata(ID) == KAFKA_PARTITION_METADATA
    assert parse_partition_metadata(KAFKA_PARTITION_METADATA + "\r\n") == ID
    later = KAFKA_PARTITION_METADATA.replace("0", "7", 1) + "\ncolour: blue\n"
    assert parse_partition_metadata(later) == ID


@each_case(
    ("text", "message"),
    [
        ("", 'line 1: expected "version: …"'),
        ("version: 0", 'line 2: expected "topic_id: …"'),
        ("version: x\ntopic_id: Nk3ZqvzXQ0-7mDLiRUiB9g", "line 1: version: expected a number"),
        ("version: -1\ntopic_id: Nk3ZqvzXQ0-7mDLiRUiB9g", "line 1: version: -1 is not in"),
        ("version: 0\ntopic_id: Nk3ZqvzXQ0-7mDLiRUiB9", "line 2: invalid UUID"),
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "line 2: the topic id is zero"),
        ("topic_id: Nk3ZqvzXQ0-7mDLiRUiB9g\nversion: 0", 'line 1: expected "version: …"'),
    ],
)
def test_damaged_partition_metadata_error_has_the_line(text: str, message: str) -> None:
    assert problem_of(parse_partition_metadata, text).startswith(message)


def test_meta_properties_of_kafka_4_are_read() -> None:
    assert parse_meta_properties(KAFKA_META_PROPERTIES) == META


def test_meta_properties_version_0_becomes_version_1() -> None:
    meta = parse_meta_properties(KAFKA_META_PROPERTIES_0)
    assert meta == MetaProperties("MkU3OEVBNTcwNTJENDM2Qg", BrokerId(3), version=0)
    assert (
        format_meta_properties(meta) == "version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\nnode.id=3\n"
    )
    # In version 0 each key could be missing, and the version too.
    assert parse_meta_properties("") == MetaProperties(None, None, version=0)


def test_meta_properties_keep_unknown_keys() -> None:
    text = KAFKA_META_PROPERTIES + "colour=blue\nwith\\ space=a\\=b\n"
    meta = parse_meta_properties(text)
    assert meta.other == (("colour", "blue"), ("with space", "a=b"))
    assert parse_meta_properties(format_meta_properties(meta)) == meta


names = st.text(min_size=1, max_size=8).map(lambda name: "x" + name)


@given(
    st.text(min_size=1, max_size=30),
    st.integers(0, 2**31 - 1),
    st.none() | st.binary(min_size=16, max_size=16).filter(lambda raw: any(raw[:15])).map(Uuid),
    st.dictionaries(names, st.text(max_size=12), max_size=3),
)
def test_meta_properties_round_trip(
    cluster_id: str, node_id: int, directory_id: Uuid | None, other: dict[str, str]
) -> None:
    meta = MetaProperties(cluster_id, BrokerId(node_id), directory_id, tuple(other.items()))
    text = format_meta_properties(meta)
    assert text.isascii()  # Java reads properties as Latin-1
    assert parse_meta_properties(text) == meta
    assert format_meta_properties(parse_meta_properties(text)) == text


@each_case(
    ("text", "message"),
    [
        ("version=2\n", "line 1: unknown version 2, expected 0 or 1"),
        ("version=x\n", "line 1: version: expected a number, found 'x'"),
        ("version=1\nnode.id=1\n", "cluster.id is missing"),
        ("version=1\ncluster.id=a\n", "node.id is missing"),
        ("version=1\ncluster.id=a\nnode.id=-1\n", "line 3: node.id: -1 is not in"),
        ("version=0\nbroker.id=one\n", "line 2: broker.id: expected a number, found 'one'"),
        (
            "version=1\ncluster.id=a\nnode.id=1\ndirectory.id=zz\n",
            "line 4: directory.id: invalid UUID",
        ),
        (
            "version=1\ncluster.id=a\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n",
            "line 4: directory.id: AAAAAAAAAAAAAAAAAAAAAQ is reserved",
        ),
        ("version=1\ncluster.id=\\uzzzz\n", "line 2: "),
    ],
)
def test_damaged_meta_properties_error_has_the_line(text: str, message: str) -> None:
    assert problem_of(parse_meta_properties, text).startswith(message)


def test_clean_shutdown_file_has_the_format_of_kafka() -> None:
    assert parse_clean_shutdown(KAFKA_CLEAN_SHUTDOWN) == 9007199254740993
    assert format_clean_shutdown(BrokerEpoch(9007199254740993)) == KAFKA_CLEAN_SHUTDOWN
    assert parse_clean_shutdown(' {"brokerEpoch" : -1, "colour":"blue"}\n') == -1


def test_clean_shutdown_file_of_older_kafka_is_empty() -> None:
    assert parse_clean_shutdown("") is None


@each_case(
    "text",
    [
        "{",
        "[]",
        "[1]",
        "7",
        "null",
        '"brokerEpoch"',
        "{}",
        '{"brokerEpoch":null}',
        '{"brokerEpoch":true}',
        '{"brokerEpoch":1.5}',
        '{"brokerEpoch":"1"}',
        '{"brokerEpoch":-2}',
        '{"brokerEpoch":9223372036854775808}',
        '{"brokerEpoch":' + "9" * 5000 + "}",
        "[" * 100_000,
        "\0" * 40,
    ],
)
def test_damaged_clean_shutdown_file_is_rejected(text: str) -> None:
    problem_of(parse_clean_shutdown, text)


@given(st.text(max_size=60))
def test_any_text_raises_only_the_declared_error(text: str) -> None:
    parsers: list[Callable[[str], object]] = [
        parse_offsets,
        parse_partition_metadata,
        parse_meta_properties,
        parse_clean_shutdown,
    ]
    for parse in parsers:
        try:
            parse(text)
        except CorruptText as error:
            assert error.problem  # noqa: PT017 - any text, so either may happen

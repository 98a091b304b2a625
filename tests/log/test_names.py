"""Formatting and parsing the names of files and directories."""

import string

from hypothesis import given
from hypothesis import strategies as st

from cases import each_case
from ottla.ids import Offset, PartitionIndex, TopicPartition, topic_name_problem
from ottla.log.names import (
    DirectoryState,
    FileState,
    Kind,
    OffsetFile,
    PartitionDirectory,
    marked_directory,
    offset_file,
    parse_offset_file,
    parse_partition_directory,
    partition_directory,
)

UNIQUE = "0123456789abcdef0123456789abcdef"

topics = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=249).filter(
    lambda name: topic_name_problem(name) is None
)
partitions = st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1).map(PartitionIndex))


def partition(topic: str, index: int) -> TopicPartition:
    return TopicPartition(topic, PartitionIndex(index))


def test_names_equal_kafka() -> None:
    assert offset_file(0, Kind.RECORDS) == "00000000000000000000.log"
    assert (
        offset_file(170, Kind.TIME_INDEX, FileState.SWAP) == "00000000000000000170.timeindex.swap"
    )
    assert offset_file(2**63 - 1, Kind.PRODUCER_SNAPSHOT) == "09223372036854775807.snapshot"
    assert partition_directory(partition("orders-eu", 12)) == "orders-eu-12"
    assert (
        marked_directory(partition("orders", 3), DirectoryState.DELETED, UNIQUE)
        == f"orders-3.{UNIQUE}-delete"
    )


@given(st.integers(0, 2**63 - 1), st.sampled_from(Kind), st.sampled_from(FileState))
def test_file_name_round_trips(offset: int, kind: Kind, state: FileState) -> None:
    assert parse_offset_file(offset_file(offset, kind, state)) == (offset, kind, state)


def test_file_name_has_kind_and_state() -> None:
    for number in ("", "-2", "-13"):
        name = f"00000000000000000007.log.truncated{number}"
        assert parse_offset_file(name) == OffsetFile(Offset(7), Kind.RECORDS, FileState.TRUNCATED)
    assert parse_offset_file("00000000000000000007.index.deleted") == OffsetFile(
        Offset(7), Kind.OFFSET_INDEX, FileState.DELETED
    )
    assert parse_offset_file("00000000000000000007.txnindex") == OffsetFile(
        Offset(7), Kind.TXN_INDEX
    )


@each_case(
    "name",
    [
        "leader-epoch-checkpoint",
        "partition.metadata",
        "7.log",
        "00000000000000000007",
        "00000000000000000007.",
        "00000000000000000007.txt",
        "00000000000000000007.log.old",
        "00000000000000000007.log.deleted-2",
        "00000000000000000007.log-2",
        "00000000000000000007.log.truncated-0",
        "00000000000000000007.log.truncated-2.tmp",
        "00000000000000000007.log ",
        "00000000000000000007.log\n",
        "x00000000000000000007.log",
        "-0000000000000000007.log",
        "\u0660" * 20 + ".log",
        "99999999999999999999.log",
        "",
    ],
)
def test_other_file_names_are_not_parsed(name: str) -> None:
    assert parse_offset_file(name) is None


@given(partitions)
def test_directory_name_round_trips(of: TopicPartition) -> None:
    assert parse_partition_directory(partition_directory(of)) == PartitionDirectory(of)


@given(partitions, st.sampled_from([DirectoryState.DELETED, DirectoryState.STRAY]))
def test_marked_directory_keeps_a_prefix_of_the_topic(
    of: TopicPartition, state: DirectoryState
) -> None:
    name = marked_directory(of, state, UNIQUE)
    assert len(name) <= 255
    if (read := parse_partition_directory(name)) is not None:  # None: the rest may be "." or ".."
        assert read.state is state
        assert read.partition.partition == of.partition
        assert of.topic.startswith(read.partition.topic)
        if len(of.topic) < 200:
            assert read.partition == of


def test_marking_truncates_a_long_topic_name() -> None:
    name = marked_directory(partition("t" * 249, 7), DirectoryState.STRAY, UNIQUE)
    assert len(name) == 255
    assert parse_partition_directory(name) == ((name[: name.index("-")], 7), DirectoryState.STRAY)


@given(partitions)
def test_future_directory_keeps_its_topic(of: TopicPartition) -> None:
    name = marked_directory(of, DirectoryState.FUTURE, UNIQUE)
    assert parse_partition_directory(name) == PartitionDirectory(of, DirectoryState.FUTURE)


@each_case(
    ("name", "of", "state"),
    [
        ("a-0", ("a", 0), DirectoryState.LIVE),
        ("a-b-c-0", ("a-b-c", 0), DirectoryState.LIVE),
        ("a--1", ("a-", 1), DirectoryState.LIVE),
        ("-5", None, None),
        ("--5", ("-", 5), DirectoryState.LIVE),
        ("a.b-delete-2", ("a.b-delete", 2), DirectoryState.LIVE),
        (f"a.b-delete-2.{UNIQUE}-delete", ("a.b-delete", 2), DirectoryState.DELETED),
        (f"a-7.{UNIQUE}-stray", ("a", 7), DirectoryState.STRAY),
        (f"a-7.{UNIQUE}-future", ("a", 7), DirectoryState.FUTURE),
        ("a-7-delete", None, None),
        ("a-7.-delete", None, None),
        (f"a.{UNIQUE}-delete", None, None),
        ("a", None, None),
        ("a-", None, None),
        ("a-x", None, None),
        ("a-+1", None, None),
        ("a-01", None, None),
        ("a-1 ", None, None),
        ("a-1\n", None, None),
        ("a b-1", None, None),
        ("..-1", None, None),
        ("a-2147483648", None, None),
        ("lost+found", None, None),
        (f"{'a' * 250}-0", None, None),
        ("", None, None),
    ],
)
def test_directory_name_has_partition_and_state(
    name: str, of: tuple[str, int] | None, state: DirectoryState | None
) -> None:
    assert parse_partition_directory(name) == (None if of is None else (of, state))

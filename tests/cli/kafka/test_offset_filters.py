"""Partition filters and times of `kafka-get-offsets`."""

import pytest

from cases import each_case
from ottla.cli.kafka.java_patterns import BadPattern
from ottla.cli.kafka.offsets.filters import (
    BadFilter,
    parse_place,
    parse_rules,
    rules_of,
    wanted,
)
from ottla.client.admin.records import OffsetAt

TOPICS = [("orders", range(12)), ("order", range(2)), ("bills", range(2))]


def texts(found: list[tuple[str, int]]) -> list[str]:
    return [f"{topic}:{number}" for topic, number in found]


@each_case(
    ("topic", "partitions", "found"),
    [
        ("order", None, ["order:0", "order:1"]),
        ("ord.*", "1", ["order:1", "orders:1"]),
        ("order,bills", "0", ["bills:0", "order:0"]),
        ('"bills"', "", ["bills:0", "bills:1"]),
        (None, "11,99", ["orders:11"]),
        ("none", None, []),
    ],
)
def test_topic_and_partitions_select_partitions(
    topic: str | None, partitions: str | None, found: list[str]
) -> None:
    assert texts(wanted(rules_of(topic, partitions), TOPICS)) == found


@each_case(
    ("text", "found"),
    [
        ("order", ["order:0", "order:1"]),
        ("order:1", ["order:1"]),
        ("orders:0-2,bills", ["bills:0", "bills:1", "orders:0", "orders:1"]),
        ("orders:10-", ["orders:10", "orders:11"]),
        (":-1", ["bills:0", "order:0", "orders:0"]),
        ("order:,b.*:1", ["bills:1", "order:0", "order:1"]),
    ],
)
def test_topic_partitions_select_partitions(text: str, found: list[str]) -> None:
    assert texts(wanted(parse_rules(text), TOPICS)) == found


def test_partitions_are_sorted_as_text() -> None:
    assert texts(wanted(parse_rules("orders:1-"), TOPICS))[:4] == [
        "orders:1",
        "orders:10",
        "orders:11",
        "orders:2",
    ]


def test_invalid_filter_is_refused() -> None:
    with pytest.raises(BadFilter, match="Invalid rule specification: a:b"):
        parse_rules("t,a:b")
    with pytest.raises(BadFilter, match="numeric partition ids, but received: 1,x"):
        rules_of("t", "1,x")
    with pytest.raises(BadPattern, match="is an invalid regex"):
        rules_of("a(", None)


@each_case(
    ("text", "place"),
    [
        ("latest", OffsetAt.LATEST),
        ("-1", OffsetAt.LATEST),
        ("earliest", OffsetAt.EARLIEST),
        ("max-timestamp", OffsetAt.MAX_TIMESTAMP),
        ("earliest-local", OffsetAt.EARLIEST_LOCAL),
        ("-5", OffsetAt.LATEST_TIERED),
        ("earliest-pending-upload", OffsetAt.EARLIEST_PENDING_UPLOAD),
        ("0", 0),
        ("1793491200000", 1_793_491_200_000),
    ],
)
def test_time_is_parsed(text: str, place: int) -> None:
    assert parse_place(text) == place


@each_case("text", ["", "soon", "1.5", "-", "LATEST", "-7", "9223372036854775808"])
def test_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(BadFilter, match="Malformed time argument"):
        parse_place(text)

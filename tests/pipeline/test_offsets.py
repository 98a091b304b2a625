"""Offsets as Spark's options and checkpoints write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.ids import PartitionIndex, TopicPartition
from ottla.pipeline.offsets import (
    BadOffsets,
    format_partitions,
    from_json,
    parse_offsets,
    parse_partitions,
    to_json,
)

PARTITIONS = st.builds(
    TopicPartition, st.text("abc.-_", min_size=1), st.integers(0, 2000).map(PartitionIndex)
)


@given(st.dictionaries(PARTITIONS, st.integers(-2, 2**63 - 1)))
def test_offsets_round_trip_as_json(offsets: dict[TopicPartition, int]) -> None:
    assert from_json(to_json(offsets)) == offsets


def test_partitions_are_in_order_by_number() -> None:
    offsets = {TopicPartition("t", PartitionIndex(n)): n for n in (10, 9, 1)}
    assert [*to_json(offsets)["t"]] == ["1", "9", "10"]


def test_offsets_are_parsed() -> None:
    found = parse_offsets('{"a": {"0": 23, "1": -2}, "b": {"0": -1}}')
    assert found == {("a", 0): 23, ("a", 1): -2, ("b", 0): -1}
    assert parse_partitions('{"a": [0, 2], "b": [1]}') == [("a", 0), ("a", 2), ("b", 1)]


@pytest.mark.parametrize(
    "text",
    ["", "5", "[]", '{"a": 1}', '{"a": {"x": 1}}', '{"a": {"0": "1"}}', '{"a": {"0": 1.5}}',
     '{"a": {"0": true}}', '{"a": {"-1": 1}}', '{"a": [0]}'],
)  # fmt: skip
def test_invalid_offsets_error_shows_the_format(text: str) -> None:
    with pytest.raises(BadOffsets, match=r'like \{"topic": \{"0": 23'):
        parse_offsets(text)


@pytest.mark.parametrize("text", ["", "{}", '{"a": {}}', '{"a": ["x"]}', '{"a": [-1]}', "[0]"])
def test_invalid_partitions_error_shows_the_format(text: str) -> None:
    with pytest.raises(BadOffsets, match=r'like \{"topic": \[0, 1\]\}'):
        parse_partitions(text)


def test_long_lists_of_partitions_are_shortened() -> None:
    many = [TopicPartition("t", PartitionIndex(n)) for n in range(12)]
    assert format_partitions(many[:2]) == "t-0, t-1"
    assert format_partitions(many).endswith("t-9 and 2 more")

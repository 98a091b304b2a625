"""Partition lists on a command line."""

import pytest

from cases import each_case
from ottla.cli.offsets.partition_lists import (
    BadPartitions,
    Choice,
    NoSuchPartitions,
    chosen,
    parse_choice,
)


def test_topic_selects_all_its_partitions() -> None:
    assert parse_choice("orders") == Choice("orders")
    assert parse_choice("orders:0,2") == Choice("orders", (0, 2))
    known = {"orders": range(3), "bills": [0]}
    assert chosen([Choice("orders")], known) == [("orders", 0), ("orders", 1), ("orders", 2)]
    both = chosen([Choice("orders", (2, 0)), Choice("bills"), Choice("orders", (2,))], known)
    assert both == [("bills", 0), ("orders", 0), ("orders", 2)]


@each_case("text", ["", ":0", "orders:", "orders:0:1"])
def test_invalid_partition_list_is_refused(text: str) -> None:
    with pytest.raises(BadPartitions, match="as orders:0,1") as refused:
        parse_choice(text)
    assert refused.value.number is None


@each_case("number", ["x", "-1", "", " 1", "1_0", "2147483648"])
def test_invalid_partition_number_is_named(number: str) -> None:
    with pytest.raises(BadPartitions, match="is not a partition number") as refused:
        parse_choice(f"orders:0,{number}")
    assert refused.value.number == number


def test_missing_partitions_are_named() -> None:
    with pytest.raises(NoSuchPartitions, match="partitions orders-7, orders-9 do not exist"):
        chosen([Choice("orders", (9, 0, 7))], {"orders": range(3)})

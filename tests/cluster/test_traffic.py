"""The traffic that brokers return: its format, and the sums over all brokers."""

import pytest

from ottla.cluster.traffic import (
    InvalidTraffic,
    Rates,
    format_traffic,
    parse_traffic,
    total_traffic,
)


def test_rates_are_parsed_as_they_were_formatted() -> None:
    rates = {("t", 10): Rates(5, 0), ("a", 0): Rates(0, 7), ("t", 2): Rates(1, 2)}
    text = format_traffic(59.6, rates)
    assert text == '{"seconds":60,"topics":{"a":[[0,0,7]],"t":[[2,1,2],[10,5,0]]}}'
    assert parse_traffic(text) == rates


def test_other_values_are_invalid() -> None:
    for text in ("", "{}", '{"seconds":1,"topics":{"t":[[0,1]]}}'):
        with pytest.raises(InvalidTraffic, match=r"ottla\.traffic"):
            parse_traffic(text)


def test_traffic_of_a_partition_with_several_brokers_is_added() -> None:
    before_election = {("t", 0): Rates(10, 20), ("t", 1): Rates(1, 0)}
    after_election = {("t", 0): Rates(5, 2)}
    assert total_traffic([before_election, after_election]) == {
        ("t", 0): Rates(15, 22),
        ("t", 1): Rates(1, 0),
    }

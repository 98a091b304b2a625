"""Addresses of bootstrap servers."""

import pytest

from cases import each_case
from ottla.client.network.config import parse_address
from ottla.settings.invalid_settings import InvalidSettings


def test_address_has_a_host_and_by_default_port_9092() -> None:
    for text, host, port in (
        ("localhost:1", "localhost", 1),
        (" kafka_1.example.com ", "kafka_1.example.com", 9092),
        ("[::1]:1", "::1", 1),
        ("fe80::1%eth0", "fe80::1%eth0", 9092),
        ("bücher.example:1", "bücher.example", 1),
    ):
        assert parse_address(text) == (host, port)


def test_scheme_before_an_address_is_ignored() -> None:
    """As in Kafka's clients: an address is often copied from advertised.listeners."""
    for text in ("PLAINTEXT://127.0.0.1:1", "http://127.0.0.1:1", "MY_LISTENER://127.0.0.1:1"):
        assert parse_address(text) == ("127.0.0.1", 1)
    assert parse_address("PLAINTEXT://[::1]:1") == ("::1", 1)


@each_case(
    "text", ["", ":9092", "a:", "a:0", "a:65536", "a b:1", "a/b", "http://a:1/", "http://", "u@a:1"]
)
def test_wrong_address_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidSettings, match=r"expected host:port, such as 127\.0\.0\.1:9092"):
        parse_address(text)

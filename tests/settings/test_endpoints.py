import pytest

from cases import each_case
from ottla.settings.broker import BROKER
from ottla.settings.config import Config
from ottla.settings.config_parser import broker_config, resolve
from ottla.settings.config_types import BadValue
from ottla.settings.endpoints import (
    Endpoint,
    advertised_listeners,
    inter_broker_listener,
    inter_broker_mechanism,
    listeners,
    parse_endpoint,
)
from ottla.settings.properties import read_properties

PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "INTERNAL": "SASL_SSL"}


def read(text: str) -> Config:
    # Without the checks for what Ottla does not support yet.
    return resolve(BROKER, read_properties(text, "server.properties").entries)


@each_case(
    ("text", "endpoint"),
    [
        ("PLAINTEXT://host:9092", Endpoint("PLAINTEXT", "host", 9092, "PLAINTEXT")),
        ("plaintext://:0", Endpoint("PLAINTEXT", "", 0, "PLAINTEXT")),
        ("INTERNAL://[::1]:65535", Endpoint("INTERNAL", "::1", 65535, "SASL_SSL")),
        ("INTERNAL://[fe80::1%eth0]:1", Endpoint("INTERNAL", "fe80::1%eth0", 1, "SASL_SSL")),
    ],
)
def test_endpoints(text: str, endpoint: Endpoint) -> None:
    assert parse_endpoint(text, PROTOCOLS) == endpoint
    assert parse_endpoint(str(endpoint), PROTOCOLS) == endpoint


@each_case(
    "text",
    [
        "host:9092",
        "PLAINTEXT://host",
        "PLAINTEXT://host:65536",
        "PLAINTEXT://host:-1",
        "PLAINTEXT://::1:9092",
        "PLAINTEXT://host:9092/",
        "PLAINTEXT://ho st:9092",
        "PLAINTEXT://[host]:9092",
        "OTHER://host:9092",
    ],
)
def test_invalid_endpoints(text: str) -> None:
    with pytest.raises(BadValue):
        parse_endpoint(text, PROTOCOLS)


def test_endpoint_protocol() -> None:
    spoken = {
        protocol: (Endpoint("A", "h", 1, protocol).tls, Endpoint("A", "h", 1, protocol).sasl)
        for protocol in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    }
    assert spoken == {
        "PLAINTEXT": (False, False),
        "SSL": (True, False),
        "SASL_PLAINTEXT": (False, True),
        "SASL_SSL": (True, True),
    }


def test_default_listener_is_loopback() -> None:
    assert listeners(broker_config()) == (Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)


def test_advertised_listeners_default_to_listeners() -> None:
    config = read("listeners=PLAINTEXT://a:1")
    assert advertised_listeners(config) == listeners(config)
    config = read("listeners=PLAINTEXT://:1\nadvertised.listeners=PLAINTEXT://b:2")
    assert [str(each) for each in advertised_listeners(config)] == ["PLAINTEXT://b:2"]


def test_listeners_of_a_controller_are_not_opened() -> None:
    config = read(
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
        "advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
        "controller.listener.names=controller\n"
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT\n"
    )
    assert [each.name for each in listeners(config)] == ["PLAINTEXT"]
    assert [each.name for each in advertised_listeners(config)] == ["PLAINTEXT"]


TWO = (
    "listeners=INSIDE://a:1,OUTSIDE://a:2\n"
    "listener.security.protocol.map=INSIDE:SASL_PLAINTEXT,OUTSIDE:PLAINTEXT\n"
    "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256\n"
    "sasl.mechanism.inter.broker.protocol=PLAIN\n"
)


@each_case(
    ("line", "name"),
    [
        ("", "OUTSIDE"),
        ("security.inter.broker.protocol=SASL_PLAINTEXT", "INSIDE"),
        ("inter.broker.listener.name=inside", "INSIDE"),
    ],
)
def test_inter_broker_listener(line: str, name: str) -> None:
    listener = inter_broker_listener(read(TWO + line))
    assert listener is not None
    assert listener.name == name


def test_single_listener_is_the_inter_broker_listener() -> None:
    config = read("listeners=SASL_PLAINTEXT://a:1\nsasl.enabled.mechanisms=PLAIN")
    listener = inter_broker_listener(config)
    assert listener is not None
    assert listener.name == "SASL_PLAINTEXT"
    assert inter_broker_mechanism(config, "SASL_PLAINTEXT") == "PLAIN"


def test_inter_broker_mechanism_per_listener() -> None:
    own = "listener.name.inside.sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256"
    config = read(TWO + own)
    assert inter_broker_mechanism(config, "INSIDE") == "SCRAM-SHA-256"
    assert inter_broker_mechanism(config, "OUTSIDE") == "PLAIN"

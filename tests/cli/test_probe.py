"""Probing of bootstrap servers before a command starts."""

import asyncio

import pytest

from cli.non_brokers import NonBroker, nobody, silent, talkative
from judges.ottla_broker import ottla_broker
from ottla.cli.probe import probe


def why_not(*servers: str, protocol: str = "PLAINTEXT", tells: bool = True) -> str | None:
    settings = {"bootstrap.servers": ",".join(servers), "security.protocol": protocol}
    return asyncio.run(probe(settings, tells=tells))


def test_one_responding_broker_is_enough(capfd: pytest.CaptureFixture[str]) -> None:
    with ottla_broker() as running, talkative() as stranger:
        assert why_not(running.bootstrap) is None
        assert why_not(nobody(), stranger.address, running.bootstrap) is None
    assert capfd.readouterr() == ("", "")


def test_non_broker_is_reported_with_its_address() -> None:
    gone = nobody()
    with talkative() as stranger:
        told = why_not(gone, stranger.address)
    assert told is not None
    assert f"{gone}: connection refused" in told
    assert f"{stranger.address}: invalid response" in told
    assert "security.protocol" in told


def test_error_has_the_port_that_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr(asyncio, "open_connection", refuse)
    told = why_not("localhost", "::1", "[::1]:1234")
    assert told is not None
    assert "localhost:9092: connection refused; [::1]:9092: " in told
    assert "[::1]:1234: connection refused. `ottla dev` starts one" in told


def test_dev_is_suggested_for_loopback_addresses_only() -> None:
    gone = nobody()
    told = why_not(gone)
    assert told is not None
    assert f"`ottla dev --port {gone.rpartition(':')[2]}`" in told
    told = why_not(nobody(), "nohost.invalid:9092")
    assert told is not None
    assert "nohost.invalid:9092: " in told
    assert "`ottla dev" not in told


def test_closed_connection_may_be_a_broker() -> None:
    stranger = NonBroker(b"")
    try:
        assert why_not(stranger.address) is None
    finally:
        stranger.close()


@pytest.mark.parametrize("tells", [True, False])
def test_slow_server_is_reported_but_not_refused(
    capfd: pytest.CaptureFixture[str], *, tells: bool
) -> None:
    with silent() as server:
        assert why_not(server.address, tells=tells) is None
    said = capfd.readouterr().err
    assert (server.address in said) == tells
    assert said.count("\n") == int(tells)


@pytest.mark.parametrize("protocol", ["SSL", "sasl_ssl"])
def test_nothing_is_sent_in_plain_text_to_a_tls_port(protocol: str) -> None:
    with silent() as server:
        assert why_not(server.address, protocol=protocol) is None
        assert not server.asked.acquire(timeout=0), "something was said"

"""Coordinators: cached, invalidated, looked up in batches, and always with a deadline."""

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from client.scenario_runner import run
from client.scripted_broker import HOST, ScriptedBroker
from ottla.client.network.connections import Address, ConnectionConfig, Connections
from ottla.client.network.coordinators import CoordinatorKind, Coordinators
from ottla.client.network.metadata import Metadata, MetadataConfig
from ottla.clock import SystemClock
from ottla.errors import ErrorCode, RequestError
from ottla.protocol.apis import FIND_COORDINATOR
from ottla.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.testing import Cluster
from ottla.transport.backoff import Backoff
from ottla.transport.failures import Disconnected, NotSupported, TimedOut
from ottla.transport.network import TcpNetwork

GROUP, TRANSACTION, SHARE = CoordinatorKind
BACKOFF = Backoff(0.01, 0.05, lambda: 0.5)


@asynccontextmanager
async def coordinators(*seeds: Address) -> AsyncGenerator[Coordinators]:
    clock = SystemClock()
    connections = Connections(
        ConnectionConfig(seeds, "test", ("ottla", "0"), BACKOFF), TcpNetwork(), clock, lambda: 0.5
    )
    metadata = Metadata(connections, MetadataConfig(BACKOFF), clock, lambda: None)
    running = asyncio.create_task(metadata.run())
    try:
        yield Coordinators(metadata, connections, clock, BACKOFF, 10)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await connections.close()


def coordinators_response(ones: dict[str, tuple[int, int]]) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(
                key=key, node_id=1, host=HOST, port=port, error_code=code, error_message=None
            )
            for key, (code, port) in ones.items()
        ]
    )


def answers_in_turn(answers: Iterable[FindCoordinatorResponse]) -> Callable[[Any], Any]:
    left = iter(answers)
    return lambda _: next(left)


def test_coordinator_is_found_and_cached() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            host, _, port = cluster.bootstrap_servers.rpartition(":")
            async with coordinators(Address(host, int(port))) as known:
                channel = await known.channel(GROUP, "g", 20)
                assert await known.channel(GROUP, "g", 20) is channel
                found = known.known(GROUP, "g")
                assert found is not None
                assert found.id == 1
                known.forget(GROUP, "g")
                assert known.known(GROUP, "g") is None
                with pytest.raises(RequestError) as refused:
                    await known.channel(TRANSACTION, "t", 20)
                assert not refused.value.retriable

    run(scenario())


def test_many_keys_are_looked_up_in_one_request() -> None:
    async def scenario() -> None:
        denied = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        script = answers_in_turn(
            [
                coordinators_response({"a": (0, 1), "b": (denied, -1)}),
                coordinators_response({"c": (0, 1)}),
            ]
        )
        async with (
            ScriptedBroker({FindCoordinatorRequest: script}) as broker,
            coordinators(broker.place) as known,
        ):
            found = await known.find(GROUP, ["a", "b", "a"], 10)
            assert broker.count(FindCoordinatorRequest) == 1
            refused = found["b"]
            assert isinstance(refused, RequestError)
            assert refused.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
            assert known.known(GROUP, "a") == found["a"]
            again = await known.find(GROUP, ["a", "c"], 10)
            assert again["a"] is found["a"]
            (request,) = [
                one.coordinator_keys
                for one in broker.asked[1:]
                if isinstance(one, FindCoordinatorRequest)
            ]
            assert [*request] == ["c"]

    run(scenario())


def test_old_brokers_are_asked_one_key_at_a_time() -> None:
    async def scenario() -> None:
        def answer(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
            code = 0 if request.key == "a" else int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            return FindCoordinatorResponse(error_code=code, node_id=7, host=HOST, port=1)

        async with (
            ScriptedBroker({FindCoordinatorRequest: answer}, newest={FIND_COORDINATOR: 2}) as old,
            coordinators(old.place) as known,
        ):
            found = await known.find(GROUP, ["a", "b"], 10)
            assert not isinstance(found["a"], RequestError)
            assert found["a"].id == 7
            assert isinstance(found["b"], RequestError)
            with pytest.raises(NotSupported, match="type share"):
                await known.channel(SHARE, "s", 10)

    run(scenario())


def test_retriable_errors_are_retried_until_the_deadline() -> None:
    async def scenario() -> None:
        loading = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        async with ScriptedBroker({}) as broker, coordinators(broker.place) as known:
            port = broker.place.port
            broker.answers[FindCoordinatorRequest] = answers_in_turn(
                [
                    coordinators_response({"g": (loading, -1)}),
                    coordinators_response({}),
                    coordinators_response({"g": (0, port)}),
                ]
            )
            assert (await known.channel(GROUP, "g", 10)).address == broker.bootstrap_servers
            assert broker.count(FindCoordinatorRequest) == 3
            broker.answers[FindCoordinatorRequest] = lambda _: coordinators_response(
                {"late": (loading, -1)}
            )
            with pytest.raises(RequestError) as late:
                await known.channel(GROUP, "late", 0.5)
            assert late.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(scenario())


def test_wait_for_a_coordinator_is_logged_with_the_reason(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.client.lifecycle.long_wait.LONG_S", 0.0)
    answers = [coordinators_response({"g": (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)})] * 3
    answers[0].coordinators[0].error_message = "no space left on device"

    async def scenario() -> None:
        found = coordinators_response({"g": (0, 9092)})
        broker = ScriptedBroker({FindCoordinatorRequest: answers_in_turn([*answers, found])})
        async with broker, coordinators(broker.place) as known:
            await known.find(GROUP, ("g",), 20)

    with caplog.at_level(logging.WARNING):
        run(scenario())
    waiting, ended = caplog.messages
    assert waiting == (
        "still waiting for the coordinator of group g: COORDINATOR_NOT_AVAILABLE (15): "
        "no space left on device"
    )
    assert ended == "the coordinator of group g is available again"


def test_unreachable_coordinator_is_looked_up_again() -> None:
    async def scenario(silent: socket.socket) -> None:
        async with ScriptedBroker({}) as broker, coordinators(broker.place) as known:
            port = broker.place.port
            nobody = int(silent.getsockname()[1])
            broker.answers[FindCoordinatorRequest] = answers_in_turn(
                [coordinators_response({"g": (0, nobody)}), coordinators_response({"g": (0, port)})]
            )
            assert (await known.channel(GROUP, "g", 10)).address == broker.bootstrap_servers
            broker.answers[FindCoordinatorRequest] = lambda _: coordinators_response(
                {"h": (0, nobody)}
            )
            with pytest.raises(Disconnected, match="refused"):
                await known.channel(GROUP, "h", 0.5)
            assert known.known(GROUP, "h") is None

    with (
        socket.socket() as silent
    ):  # bound but not listening, so the port is not given to another socket
        silent.bind((HOST, 0))
        run(scenario(silent))


def test_silent_broker_does_not_block_a_lookup() -> None:
    async def scenario() -> None:
        async with ScriptedBroker({}) as mute, coordinators(mute.place) as known:
            with pytest.raises(TimedOut, match="in time"):
                await known.channel(GROUP, "g", 0.1)

    run(scenario())

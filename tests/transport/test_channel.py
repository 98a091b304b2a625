"""The client's connection to a broker: versions, pipelining, deadlines and closing."""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ottla.errors import ErrorCode, RequestError
from ottla.protocol.apis import CREATE_TOPICS, HEARTBEAT, SASL_HANDSHAKE
from ottla.protocol.conversation import Request, ServerConversation
from ottla.protocol.message import Message
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.transport.channel import Channel, Disconnected, NotSupported, TimedOut, open_channel
from ottla.transport.failures import AuthenticationFailed, not_connected
from ottla.transport.network import TcpNetwork

Script = Callable[["Peer"], Coroutine[Any, Any, None]]
SOFTWARE = ("ottla", "0")


def heartbeat(number: int) -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=number, member_id="m")


def heartbeat_response(number: int) -> HeartbeatResponse:
    return HeartbeatResponse(throttle_time_ms=number, error_code=0)


def versions_response(*ranges: tuple[int, int, int], error: int = 0) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=error,
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in ranges
        ],
    )


class Peer:
    """A broker that follows a script."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer
        self._conversation = ServerConversation()
        self._requests: list[Request] = []

    async def next(self) -> Request:
        while not self._requests:
            data = await self._reader.read(1 << 16)
            if not data:
                raise EOFError
            self._requests += self._conversation.receive(data)
        return self._requests.pop(0)

    async def answer(self, request: Request, message: Message) -> None:
        self.writer.writelines(self._conversation.send(request, message))
        await self.writer.drain()

    async def greet(self, *ranges: tuple[int, int, int]) -> None:
        await self.answer(await self.next(), versions_response(*ranges or ((HEARTBEAT.key, 0, 4),)))


@asynccontextmanager
async def peer(script: Script) -> AsyncGenerator[int]:
    done: list[asyncio.Task[None]] = []

    def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        done.append(asyncio.get_running_loop().create_task(play(reader, writer)))

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await script(Peer(reader, writer))
        finally:
            writer.close()

    server = await asyncio.start_server(accepted, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in done:
            task.cancel()
        await asyncio.gather(*done, return_exceptions=True)


async def connect(port: int, ended: Callable[[], None] = lambda: None) -> Channel:
    return await open_channel(
        TcpNetwork(),
        "127.0.0.1",
        port,
        client_id="test",
        software=SOFTWARE,
        setup_timeout_s=5,
        request_timeout_s=5,
        ended=ended,
    )


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario

    asyncio.run(bounded())


async def ignore_requests(peer: Peer) -> None:
    while True:
        await peer.next()


def test_pipelined_requests_get_their_own_responses() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        requests = [await peer.next() for _ in range(3)]
        for request in requests:
            message = request.message
            assert isinstance(message, HeartbeatRequest)
            await peer.answer(request, heartbeat_response(message.generation_id))

    async def scenario() -> None:
        async with peer(script) as port:
            channel = await connect(port)
            answers = [channel.send(heartbeat(number), 5) for number in (7, 8, 9)]
            assert channel.in_flight == 3
            told = [await answer for answer in answers]
            assert told == [heartbeat_response(7), heartbeat_response(8), heartbeat_response(9)]
            assert channel.in_flight == 0
            channel.close()

    run(scenario())


def test_newest_common_version_is_used() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet((HEARTBEAT.key, 1, 3), (CREATE_TOPICS.key, 90, 99))
        request = await peer.next()
        assert request.header.api_version == 3
        await peer.answer(request, heartbeat_response(1))

    async def scenario() -> None:
        async with peer(script) as port:
            channel = await connect(port)
            assert await channel.ask(heartbeat(1), HeartbeatResponse, 5) == heartbeat_response(1)
            with pytest.raises(NotSupported, match=r"CreateTopics.*90-99 only") as newer:
                channel.version(CREATE_TOPICS)
            assert newer.value.code is ErrorCode.UNSUPPORTED_VERSION
            assert not newer.value.retriable
            channel.close()

    run(scenario())


def test_missing_api_is_named_in_the_error() -> None:
    async def scenario() -> None:
        async with peer(Peer.greet) as port:
            channel = await connect(port)
            with pytest.raises(NotSupported, match=f"CreateTopics.*127.0.0.1:{port}: not offered"):
                channel.version(CREATE_TOPICS)
            channel.close()

    run(scenario())


def test_api_versions_falls_back_to_the_broker_version() -> None:
    async def script(peer: Peer) -> None:
        first = await peer.next()
        first.version = 0
        await peer.answer(first, versions_response((18, 0, 2), error=35))
        second = await peer.next()
        assert second.header.api_version == 2
        await peer.answer(second, versions_response((HEARTBEAT.key, 0, 1)))

    async def scenario() -> None:
        async with peer(script) as port:
            channel = await connect(port)
            assert channel.version(HEARTBEAT) == 1
            channel.close()

    run(scenario())


def test_refused_connection_error_has_a_hint() -> None:
    async def scenario() -> None:
        async with peer(Peer.greet) as port:
            pass
        with pytest.raises(Disconnected, match=r"broker is running.*ottla dev") as refused:
            await connect(port)
        assert refused.value.retriable
        assert refused.value.hint

    run(scenario())


def test_dev_is_suggested_for_loopback_addresses_only() -> None:
    hosts = ("127.0.0.1", "::1", "LocalHost", "a.localhost", "10.0.0.1", "::2", "kafka.example")
    for port, line in ((9092, "ottla dev"), (19092, "ottla dev --port 19092")):
        hints = {
            host: not_connected(f"{host}:{port}", host, ConnectionRefusedError()).hint
            for host in hosts
        }
        assert all("broker is running" in hint for hint in hints.values())
        suggested = [host for host, hint in hints.items() if "ottla dev" in hint]
        assert suggested == ["127.0.0.1", "::1", "LocalHost", "a.localhost"]
        for host in suggested:
            assert hints[host].endswith(f"; `{line}` starts one on 127.0.0.1:{port}")


def test_pending_requests_fail_when_the_broker_disconnects() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.next()
        await peer.next()

    ends: list[int] = []

    async def scenario() -> None:
        async with peer(script) as port:
            channel = await connect(port, lambda: ends.append(1))
            answers = [channel.send(heartbeat(number), 5) for number in (1, 2)]
            for answer in answers:
                with pytest.raises(Disconnected):
                    await answer
            assert not channel.is_open
            with pytest.raises(Disconnected):
                channel.send(heartbeat(3), 5)
        assert ends == [1]

    run(scenario())


def test_end_is_visible_before_the_event_loop_notices() -> None:
    sockets: list[socket.socket] = []

    async def script(peer: Peer) -> None:
        await peer.greet()
        descriptor = peer.writer.get_extra_info("socket").fileno()
        sockets.append(socket.socket(fileno=os.dup(descriptor)))
        await ignore_requests(peer)

    async def scenario() -> None:
        async with peer(script) as port:
            channel = await connect(port)
            assert not channel.is_ended_by_peer()
            with sockets[0] as held:
                held.shutdown(socket.SHUT_WR)
            assert channel.is_open, "the event loop has not run since"
            assert channel.is_ended_by_peer()
            channel.close()
            assert channel.is_ended_by_peer()

    run(scenario())


def test_request_timeout_closes_the_connection() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await ignore_requests(peer)

    async def scenario() -> None:
        async with peer(script) as port:
            channel = await connect(port)
            patient, hasty = channel.send(heartbeat(1), 20), channel.send(heartbeat(2), 0.05)
            with pytest.raises(TimedOut, match="Heartbeat in time"):
                await hasty
            with pytest.raises(TimedOut):
                await patient
            assert not channel.is_open

    run(scenario())


def test_answered_request_does_not_time_out_later() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await peer.answer(await peer.next(), heartbeat_response(1))
        await peer.answer(await peer.next(), heartbeat_response(2))

    async def scenario() -> None:
        async with peer(script) as port:
            channel = await connect(port)
            await channel.ask(heartbeat(1), HeartbeatResponse, 0.2)
            await asyncio.sleep(0.3)
            assert channel.is_open
            await channel.ask(heartbeat(2), HeartbeatResponse, 5)
            channel.close()

    run(scenario())


def test_cancelled_request_does_not_affect_the_others() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        requests = [await peer.next() for _ in range(2)]
        await peer.answer(requests[0], heartbeat_response(1))
        await peer.answer(requests[1], heartbeat_response(2))

    async def scenario() -> None:
        async with peer(script) as port:
            channel = await connect(port)
            first, second = channel.send(heartbeat(1), 5), channel.send(heartbeat(2), 5)
            first.cancel()
            assert await second == heartbeat_response(2)
            channel.close()

    run(scenario())


@pytest.mark.parametrize(
    "noise", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\4\0\0\0\7", b"\xff" * 8]
)
def test_peer_that_is_not_a_broker_is_rejected(noise: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.next()
        peer.writer.write(noise)
        await ignore_requests(peer)

    async def scenario() -> None:
        async with peer(script) as port:
            with pytest.raises(RequestError, match=r"is it a Kafka broker"):
                await connect(port)

    run(scenario())


def test_close_fails_pending_requests() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await ignore_requests(peer)

    async def scenario() -> None:
        async with peer(script) as port:
            channel = await connect(port)
            answer = channel.send(heartbeat(1), 5)
            channel.close()
            channel.close()
            with pytest.raises(Disconnected, match="was closed"):
                await answer

    run(scenario())


def test_connection_setup_times_out() -> None:
    class Silent:
        async def connect(self, protocol: object, host: str, port: int) -> None:
            await asyncio.sleep(3600)

    async def scenario() -> None:
        with pytest.raises(TimedOut, match="did not accept a connection"):
            await open_channel(
                Silent(),
                "::1",
                9092,
                client_id="test",
                software=SOFTWARE,
                setup_timeout_s=0.05,
                request_timeout_s=5,
                ended=lambda: None,
            )

    run(scenario())


def test_requests_queue_in_order_during_reauthentication() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet((HEARTBEAT.key, 0, 4), (SASL_HANDSHAKE.key, 1, 1))
        for _ in range(2):
            request = await peer.next()
            seen.append(type(request.message).__name__)
            if isinstance(request.message, HeartbeatRequest):
                await peer.answer(request, heartbeat_response(request.message.generation_id))
            else:
                await peer.answer(request, SaslHandshakeResponse(error_code=0, mechanisms=()))
        for _ in range(2):
            request = await peer.next()
            assert isinstance(request.message, HeartbeatRequest)
            seen.append(str(request.message.generation_id))
            await peer.answer(request, heartbeat_response(request.message.generation_id))

    async def scenario() -> None:
        async with peer(script) as port:
            channel = await connect(port)
            before = channel.send(heartbeat(1), 5)
            channel.hold()
            waiting = [channel.send(heartbeat(number), 5) for number in (2, 3, 4)]
            waiting[1].cancel()
            assert channel.in_flight == 4
            await channel.ask(SaslHandshakeRequest(mechanism="M"), SaslHandshakeResponse, 5)
            assert before.done()
            assert not waiting[0].done()
            channel.release()
            answers = [await waiting[0], await waiting[2]]
            assert answers == [heartbeat_response(2), heartbeat_response(4)]
            assert seen == ["HeartbeatRequest", "SaslHandshakeRequest", "2", "4"]
            channel.close()

    seen: list[str] = []
    run(scenario())


def test_throttled_channel_delays_requests_in_order() -> None:
    pause_ms = 300
    came_s: list[float] = []

    async def script(peer: Peer) -> None:
        await peer.greet((HEARTBEAT.key, 0, 4), (SASL_HANDSHAKE.key, 1, 1))
        loop = asyncio.get_running_loop()
        await peer.answer(await peer.next(), heartbeat_response(pause_ms))
        told_s.append(loop.time())
        request = await peer.next()
        assert isinstance(request.message, SaslHandshakeRequest), "a login is not throttled"
        await peer.answer(request, SaslHandshakeResponse(error_code=0, mechanisms=()))
        for number in (2, 4):
            request = await peer.next()
            came_s.append(loop.time())
            assert isinstance(request.message, HeartbeatRequest)
            assert request.message.generation_id == number
            await peer.answer(request, heartbeat_response(0))

    async def scenario() -> None:
        async with peer(script) as port:
            channel = await connect(port)
            await channel.ask(heartbeat(1), HeartbeatResponse, 5)
            assert channel.is_throttled
            waiting = [channel.send(heartbeat(number), 5) for number in (2, 3, 4)]
            waiting[1].cancel()
            channel.hold()  # a reauthentication during the throttle does not shorten it
            await channel.ask(SaslHandshakeRequest(mechanism="M"), SaslHandshakeResponse, 5)
            channel.release()
            await waiting[0]
            await waiting[2]
            assert not channel.is_throttled
            await asyncio.sleep(0)
            # The two clock readings are not simultaneous.
            assert came_s[0] - told_s[0] >= pause_ms / 1000 - 0.02
            channel.close()

    told_s: list[float] = []
    run(scenario())


def test_longest_throttle_applies_until_close() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        for pause_ms in (3_600_000, 1):  # the shorter throttle does not end the longer one
            await peer.answer(await peer.next(), heartbeat_response(pause_ms))
        await ignore_requests(peer)

    async def scenario() -> None:
        async with peer(script) as port:
            channel = await connect(port)
            first, second = (channel.send(heartbeat(number), 5) for number in (1, 2))
            await first
            await second
            waiting = channel.send(heartbeat(3), 5)
            await asyncio.sleep(0.1)
            assert channel.is_throttled
            assert not waiting.done()
            channel.close()
            with pytest.raises(Disconnected):
                await waiting

    run(scenario())


def test_failed_reauthentication_fails_queued_requests() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await ignore_requests(peer)

    async def scenario() -> None:
        async with peer(script) as port:
            channel = await connect(port)
            channel.hold()
            waiting = channel.send(heartbeat(1), 5)
            reason = AuthenticationFailed("no")
            channel.fail(reason)
            with pytest.raises(AuthenticationFailed) as raised:
                await waiting
            assert raised.value is reason
            channel.release()
            assert not channel.in_flight
            with pytest.raises(AuthenticationFailed):
                channel.send(heartbeat(2), 5)

    run(scenario())


def test_disconnect_before_the_first_response_hints_at_the_log() -> None:
    """Of a broker without a free descriptor, for example."""

    async def close(peer: Peer) -> None:
        peer.writer.close()

    async def scenario() -> None:
        async with peer(close) as port:
            with pytest.raises(Disconnected, match=r"before its first .+ many") as raised:
                await connect(port)
            assert "SASL" not in str(raised.value)
            assert "requires TLS" in str(raised.value)

    run(scenario())


def test_early_disconnect_hints_at_sasl_and_a_later_one_does_not() -> None:
    async def at_once(peer: Peer) -> None:
        await peer.greet()
        await peer.next()

    async def later(peer: Peer) -> None:
        await peer.greet()
        await peer.answer(await peer.next(), heartbeat_response(1))
        await peer.next()

    async def scenario() -> None:
        async with peer(at_once) as port:
            channel = await connect(port)
            with pytest.raises(Disconnected, match="requires SASL"):
                await channel.send(heartbeat(1), 5)
        async with peer(later) as port:
            channel = await connect(port)
            await channel.send(heartbeat(1), 5)
            with pytest.raises(Disconnected) as raised:
                await channel.send(heartbeat(2), 5)
            assert "SASL" not in str(raised.value)

    run(scenario())

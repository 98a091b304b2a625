"""HTTP pages: responses, errors, and limits on connections."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager, suppress
from http import HTTPStatus
from http.client import HTTPConnection

import pytest

from broker.nodes import closed, run
from cases import each_case
from ottla.transport import http_pages
from ottla.transport.http_pages import CONNECTIONS_MAX, REQUEST_BYTES_MAX, Page, PageServer
from ottla.transport.network import TcpNetwork


def failing_page() -> Page:
    raise ValueError("secret")


PAGES = {
    "/there": lambda: Page("Grüße\n"),
    "/broken": failing_page,
    "/ill": lambda: Page("ill\n", status=HTTPStatus.SERVICE_UNAVAILABLE),
}


@asynccontextmanager
async def page_server() -> AsyncGenerator[tuple[PageServer, int]]:
    server = PageServer(PAGES)
    port = await server.open(TcpNetwork(), "127.0.0.1", 0)
    try:
        yield server, port
    finally:
        server.close()


async def raw_response(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


def test_http_client_gets_the_page() -> None:
    def visit(port: int, method: str) -> tuple[int, str | None, str]:
        client = HTTPConnection("127.0.0.1", port, timeout=10)
        client.request(method, "/there?x=1")
        answer = client.getresponse()
        found = answer.status, answer.getheader("Content-Length"), answer.read().decode()
        client.close()
        return found

    async def scenario() -> None:
        async with page_server() as (server, port):
            assert await asyncio.to_thread(visit, port, "GET") == (200, "8", "Grüße\n")
            assert await asyncio.to_thread(visit, port, "HEAD") == (200, "8", "")
            assert not server.connections

    run(scenario)


@each_case(
    ("request_", "status"),
    [
        (b"GET /elsewhere HTTP/1.1\r\n\r\n", 404),
        (b"GET /../etc/passwd HTTP/1.1\r\n\r\n", 404),
        (b"POST /there HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"GET /there\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\xff\xfe \x00 HTTP/2\n\n", 400),
        (b"GET /broken HTTP/1.0\r\n\r\n", 500),
        (b"GET /ill HTTP/1.0\n\n", 503),
        (b"GET /there HTTP/1.1\r\n" + b"A" * REQUEST_BYTES_MAX, 431),
    ],
)
def test_bad_requests_get_an_http_error(request_: bytes, status: int) -> None:
    async def scenario() -> None:
        async with page_server() as (_, port):
            answer = await raw_response(port, request_)
            assert answer.startswith(b"HTTP/1.1 %d " % status)
            assert b"secret" not in answer
            assert (await raw_response(port, b"GET /there HTTP/1.1\r\n\r\n")).endswith(
                "Grüße\n".encode()
            )

    run(scenario)


def test_request_in_pieces_is_answered_once() -> None:
    async def scenario() -> None:
        async with page_server() as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for one in b"GET /there HTTP/1.1\r\n":
                writer.write(bytes((one,)))
                await asyncio.sleep(0)
            writer.write(b"\r\nGET /there HTTP/1.1\r\n\r\n")
            answer = await reader.read()
            assert answer.count(b"HTTP/1.1 200") == 1
            writer.close()

    run(scenario)


def test_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_pages, "CONNECTION_SECONDS", 0.3)

    async def scenario() -> None:
        async with page_server() as (server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /the")
            assert await closed(reader)
            writer.close()
            assert not server.connections

    run(scenario)


def test_idle_connections_do_not_block_requests() -> None:
    async def scenario() -> None:
        async with page_server() as (server, port):
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
            for _, writer in silent:
                writer.write(b"GET /the")
            for _ in range(5):
                assert b"200 OK" in await raw_response(port, b"GET /there HTTP/1.1\r\n\r\n")
                assert len(server.connections) <= CONNECTIONS_MAX
            for _, writer in silent:
                writer.close()

    run(scenario)


def test_connections_without_a_request_are_evicted_first() -> None:
    size = 20_000_000

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        server = PageServer({"/large": lambda: Page("x" * size)})
        port = await server.open(TcpNetwork(), "127.0.0.1", 0)

        async def connect() -> socket.socket:
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            await loop.sock_connect(one, ("127.0.0.1", port))
            return one

        async def request_large_page() -> socket.socket:
            """Request a page larger than the socket buffers, and read its first byte."""
            one = await connect()
            await loop.sock_sendall(one, b"GET /large HTTP/1.1\r\n\r\n")
            assert await loop.sock_recv(one, 1) == b"H"
            return one

        async def remaining_bytes(one: socket.socket) -> int:
            count = 0
            with suppress(ConnectionError):
                while data := await loop.sock_recv(one, 1 << 20):
                    count += len(data)
            return count

        with ExitStack() as stack:
            first = await request_large_page()
            for _ in range(2 * CONNECTIONS_MAX):
                await connect()
            for _ in range(CONNECTIONS_MAX - 1):
                await request_large_page()
            assert len(server.connections) == CONNECTIONS_MAX
            assert all(visit.answered for visit in server.connections)
            # When every connection has sent a request, the server evicts the oldest.
            assert await remaining_bytes(await request_large_page()) > size
            assert await remaining_bytes(first) < size
            server.close()

    run(scenario)

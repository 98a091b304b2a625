"""A minimal HTTP server for text pages: metrics and health.

Invariant: each connection gets one response and is closed. A request has at most
REQUEST_BYTES_MAX bytes, a connection lasts at most CONNECTION_SECONDS, and at most CONNECTIONS_MAX
are open. One more closes another, first one that has not sent a request yet, so that silent clients
do not keep others out. A path is looked up in a table, never in the file system.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple, cast

from ottla.transport.network import Network, Server

_LOG = logging.getLogger(__name__)

REQUEST_BYTES_MAX: Final = 8192
CONNECTION_SECONDS: Final = 10.0
CONNECTIONS_MAX: Final = 16
PLAIN: Final = "text/plain; charset=utf-8"


class Page(NamedTuple):
    """The content of a response."""

    text: str
    content_type: str = PLAIN
    status: HTTPStatus = HTTPStatus.OK


Pages = Mapping[str, Callable[[], Page]]
"""The function that renders the page of each path."""


class PageServer:
    """Serves pages on an address between `open` and `close`."""

    def __init__(self, pages: Pages) -> None:
        self.pages = pages
        self.connections: dict[_HttpConnection, None] = {}  # oldest first
        self._server: Server | None = None

    async def open(self, network: Network, host: str | None, port: int) -> int:
        """Bind the address, serve pages and return the port; raises OSError."""
        self._server = await network.hold(
            lambda: _HttpConnection(self), host, port, CONNECTIONS_MAX
        )
        await self._server.start()
        return self._server.port

    def add(self, connection: "_HttpConnection") -> None:
        """Add a connection, if need be in place of another one."""
        if len(self.connections) >= CONNECTIONS_MAX:
            evicted = next(
                (one for one in self.connections if not one.answered), next(iter(self.connections))
            )
            del self.connections[evicted]
            evicted.abort()
        self.connections[connection] = None

    def close(self) -> None:
        """Stop serving and close all connections."""
        if self._server is not None:
            self._server.close()
        for connection in [*self.connections]:
            connection.abort()


class _HttpConnection(asyncio.Protocol):
    """One connection: one request, one response."""

    def __init__(self, server: PageServer) -> None:
        self._server = server
        self._request = b""
        self.answered = False
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection and set its deadline."""
        # uvloop's transports are not subclasses of asyncio.Transport, but have its methods.
        self._transport = cast("asyncio.Transport", transport)
        self._server.add(self)
        self._deadline = asyncio.get_running_loop().call_later(CONNECTION_SECONDS, self.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection."""
        self._transport = None
        self._server.connections.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Respond once the head of the request is complete; a body is ignored."""
        if self.answered or self._transport is None:
            return
        self._request += data
        if b"\r\n\r\n" in self._request or b"\n\n" in self._request:
            self._respond(*self._page())
        elif len(self._request) > REQUEST_BYTES_MAX:
            self._respond(_status_page(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))

    def _page(self) -> tuple[Page, bool]:
        """Return the page of the requested path, and whether the body is wanted (not for HEAD)."""
        words = self._request.split(b"\n", 1)[0].decode("latin-1").split()
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _status_page(HTTPStatus.BAD_REQUEST), True
        method, path = words[0], words[1].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _status_page(HTTPStatus.METHOD_NOT_ALLOWED), True
        make = self._server.pages.get(path)
        if make is None:
            known = " ".join(self._server.pages)
            return Page(
                f"not found; pages: {known}\n", status=HTTPStatus.NOT_FOUND
            ), method == "GET"
        try:
            return make(), method == "GET"
        except Exception:
            _LOG.exception("page failed", {"path": path})
            return _status_page(HTTPStatus.INTERNAL_SERVER_ERROR), method == "GET"

    def _respond(self, page: Page, with_text: bool = True) -> None:
        assert self._transport is not None
        self.answered = True
        body = page.text.encode("utf-8", "backslashreplace")
        head = (
            f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
            f"Content-Type: {page.content_type}\r\n"
            f"Content-Length: {len(body)}\r\n"
            f"Allow: GET, HEAD\r\n"
            f"Cache-Control: no-store\r\n"
            f"Connection: close\r\n\r\n"
        )
        self._transport.write(head.encode() + (body if with_text else b""))
        self._transport.close()  # once everything is sent, or at the deadline


def _status_page(status: HTTPStatus) -> Page:
    return Page(f"{status.phrase}\n", status=status)

"""Pages of text for those who watch a broker, over as little of HTTP as that takes.

Invariant: a visitor is answered once and the connection is closed. It may send REQUEST_BYTES_MAX
bytes and stay for VISIT_SECONDS, and there are VISITORS_MAX at a time: whatever comes, that is what
it costs. When one more comes, another has to go, and rather one that has asked nothing yet: so
those who say nothing keep nobody out. What is asked for is looked up, never a path of the machine.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final, NamedTuple, cast

from ottla.transport.network import Network, Server

_LOG = logging.getLogger(__name__)

REQUEST_BYTES_MAX: Final = 8192
VISIT_SECONDS: Final = 10.0
VISITORS_MAX: Final = 16
PLAIN: Final = "text/plain; charset=utf-8"


class Page(NamedTuple):
    """What a visitor gets."""

    text: str
    content_type: str = PLAIN
    status: HTTPStatus = HTTPStatus.OK


Pages = Mapping[str, Callable[[], Page]]
"""What makes the page of a path."""


class PageServer:
    """An address where pages are; `open` and `close` it."""

    def __init__(self, pages: Pages) -> None:
        self.pages = pages
        self.visits: dict[_Visit, None] = {}  # in the order in which they came
        self._server: Server | None = None

    async def open(self, network: Network, host: str | None, port: int) -> int:
        """Take the address and answer; returns the port. OSError when that cannot be."""
        self._server = await network.hold(lambda: _Visit(self), host, port, VISITORS_MAX)
        await self._server.start()
        return self._server.port

    def enter(self, visit: "_Visit") -> None:
        """Let somebody in, be it in the place of another."""
        if len(self.visits) >= VISITORS_MAX:
            gone = next((one for one in self.visits if not one.answered), next(iter(self.visits)))
            del self.visits[gone]
            gone.leave()
        self.visits[visit] = None

    def close(self) -> None:
        """Answer nobody any more."""
        if self._server is not None:
            self._server.close()
        for visit in [*self.visits]:
            visit.leave()


class _Visit(asyncio.Protocol):
    """One connection, one question."""

    def __init__(self, server: PageServer) -> None:
        self._server = server
        self._asked = b""
        self.answered = False
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody comes."""
        # uvloop's transports are no subclass of it, and do all that it does.
        self._transport = cast("asyncio.Transport", transport)
        self._server.enter(self)
        self._deadline = asyncio.get_running_loop().call_later(VISIT_SECONDS, self.leave)

    def connection_lost(self, exc: Exception | None) -> None:
        """And goes."""
        self._transport = None
        self._server.visits.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()

    def leave(self) -> None:
        """Close now."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Answer when the head of the request is there; nothing behind it is of interest."""
        if self.answered or self._transport is None:
            return
        self._asked += data
        if b"\r\n\r\n" in self._asked or b"\n\n" in self._asked:
            self._answer(*self._page())
        elif len(self._asked) > REQUEST_BYTES_MAX:
            self._answer(_told(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE))

    def _page(self) -> tuple[Page, bool]:
        """The page that is asked for, and whether the text is wanted too."""
        words = self._asked.split(b"\n", 1)[0].decode("latin-1").split()
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _told(HTTPStatus.BAD_REQUEST), True
        method, path = words[0], words[1].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _told(HTTPStatus.METHOD_NOT_ALLOWED), True
        make = self._server.pages.get(path)
        if make is None:
            known = " ".join(self._server.pages)
            return Page(f"there is {known}\n", status=HTTPStatus.NOT_FOUND), method == "GET"
        try:
            return make(), method == "GET"
        except Exception:
            _LOG.exception("page failed", {"path": path})
            return _told(HTTPStatus.INTERNAL_SERVER_ERROR), method == "GET"

    def _answer(self, page: Page, with_text: bool = True) -> None:
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
        self._transport.close()  # when all is sent, or the deadline has come


def _told(status: HTTPStatus) -> Page:
    return Page(f"{status.phrase}\n", status=status)

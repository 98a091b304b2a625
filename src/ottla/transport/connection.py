"""A client's connection to a broker: requests come in, answers go out.

Invariant: requests are served one at a time and in their order, as Kafka does it, so that what a
client sent first is appended first. While an answer is awaited, or the client does not take what
was written, nothing more is read: what a connection may hold in memory is one frame, one answer,
and what the two sockets hold. What is more than 32 KiB of either is held in the broker's
memory for all connections: a frame goes on when it has room, and when others wait for memory, who
does not move is closed. Whatever the client sends, the worst that happens is that its connection
is closed.

A request that can be answered at once costs neither a task nor a future.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from inspect import CORO_CREATED, getcoroutinestate
from socket import SO_RCVBUF, SO_SNDBUF, SOL_SOCKET
from typing import Any, Final, TypeAlias, cast

from ottla.clock import Clock
from ottla.errors import ProtocolViolation
from ottla.protocol.apis import PRODUCE
from ottla.protocol.conversation import (
    ALL_VERSIONS,
    Request,
    Response,
    ServerConversation,
    WideRequest,
    objects_at_once,
)
from ottla.protocol.frames import FRAME_BYTES_MAX
from ottla.protocol.primitives import Buffer
from ottla.protocol.schema import Versions
from ottla.protocol.writer import Unwritable
from ottla.transport.log_rate_limit import CloseReason
from ottla.transport.memory import ConnectionMemory, MemoryPools, mapped

_LOG = logging.getLogger(__name__)

# What was written and not taken by the client beyond this stops its next request.
WRITE_BUFFER_BYTES: Final = 32 * 1024


def _needs_frame(request: Request) -> bool:
    """Whether it refers to the bytes that came: records are slices of them."""
    return request.api is PRODUCE or isinstance(request, WideRequest)


@dataclass(slots=True)
class DeferredResponse:
    """An answer that takes a while, and who is told when it is there."""

    answer: Coroutine[Any, Any, Response | None]
    told: Callable[[Response | None], None] | None = None


Dispatch: TypeAlias = "Callable[[Request, Connection], Response | DeferredResponse | None]"
"""Answers a request: at once, later, or (None) never."""


class Entry(Enum):
    """What becomes of a connection that has just been opened."""

    IN = "it is served"
    WAITS = "it is served when others have left"
    REFUSED = "it is closed"


@dataclass(frozen=True, slots=True)
class ConnectionConfig:
    """What a connection may do."""

    versions: Mapping[int, Versions] = field(default_factory=lambda: ALL_VERSIONS)
    frame_bytes_max: int = FRAME_BYTES_MAX
    idle_ms_max: int = 600_000
    send_buffer_bytes: int = -1  # of the socket; -1 leaves it to the operating system
    receive_buffer_bytes: int = -1


class Connection(asyncio.BufferedProtocol):
    """One client, from its first byte to its last."""

    __slots__ = (
        "_busy",
        "_closed",
        "_coming",
        "_complained",
        "_conversation",
        "_dispatch",
        "_entry",
        "_full",
        "_opened",
        "_paused",
        "_paused_s",
        "_task",
        "_transport",
        "_unsent",
        "_unsent_s",
        "_waiting",
        "address",
        "clock",
        "heard_s",
        "holding",
        "listener",
        "rules",
        "software",
    )

    def __init__(
        self,
        dispatch: Dispatch,
        opened: "Callable[[Connection], Entry]",
        closed: "Callable[[Connection], None]",
        rules: ConnectionConfig,
        clock: Clock,
        listener: str = "",
        complained: "Callable[[Connection, CloseReason, str], None] | None" = None,
        memory: MemoryPools | None = None,
    ) -> None:
        self._dispatch = dispatch
        self._opened = opened  # decides what becomes of it
        self._closed = closed
        self._complained = complained  # hears why it is closed
        self.rules = rules
        self.clock = clock
        self.listener = listener  # the name of the one it came through
        self.address = "?"
        self.software: tuple[str, str] | None = None  # name and version, if the client told
        self.holding = ConnectionMemory(memory or MemoryPools(), self)
        self._conversation = ServerConversation(
            rules.versions,
            frame_bytes_max=rules.frame_bytes_max,
            objects_at_once=objects_at_once,
            huge_memory=mapped,
            spares=self.holding.spares,
        )
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[Request] = deque()
        self._task: asyncio.Task[None] | None = None
        self._coming: Coroutine[Any, Any, Response | None] | None = None
        self._busy = False  # with a request that is answered later, or with waiting to be let in
        self._full = False  # the client does not take what was written
        self._paused = False  # reading
        self._paused_s = 0.0
        self._entry = Entry.IN
        self._unsent = 0  # bytes that were written and not taken, when somebody last looked
        self.heard_s = self._unsent_s = clock.elapsed_s()  # the client; an answer that moved

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address})"

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client is there."""
        # uvloop's transports are no subclass of it, and do all that it does.
        transport = self._transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)
        self.address = str(transport.get_extra_info("peername", ("?",))[0])
        self._entry = self._opened(self)
        if self._entry is Entry.REFUSED:
            transport.abort()
            return
        self._busy = self._entry is Entry.WAITS  # what it sends is served when it is in
        self._size_buffers(transport)

    def _size_buffers(self, transport: asyncio.Transport) -> None:
        socket = transport.get_extra_info("socket")
        if socket is None:
            return  # not on a real network
        for option, size in (
            (SO_SNDBUF, self.rules.send_buffer_bytes),
            (SO_RCVBUF, self.rules.receive_buffer_bytes),
        ):
            if size >= 0:
                socket.setsockopt(SOL_SOCKET, option, size)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone, or was sent away."""
        self._transport = None
        self._waiting.clear()
        self.holding.end()
        # Now, and not when somebody finds that nobody refers to this any more.
        self._conversation.framer.drop()
        if self._task is not None:
            self._task.cancel()
        if self._coming is not None and getcoroutinestate(self._coming) == CORO_CREATED:
            self._coming.close()  # else it would be complained of, as nobody awaits it now
        if self._entry is not Entry.REFUSED:
            self._closed(self)

    def let_in(self) -> None:
        """Be served from now on, after having waited."""
        self._busy = False
        self.heard_s = self.clock.elapsed_s()
        self._serve()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._conversation.framer.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        if self._entry is Entry.REFUSED:
            return
        conversation = self._conversation
        framer, pace = conversation.framer, self.holding.frame_pace
        large = framer.is_large
        now = self.heard_s = self.clock.elapsed_s()
        try:
            requests = conversation.requests(framer.filled(nbytes))
        except ProtocolViolation as violation:
            self._send_away(violation)
            return
        if large or framer.is_large:
            self.holding.note_frame(framer)
        if not framer.partial:
            pace.since_s = None
        elif requests or pace.since_s is None:
            pace.begin(now)
        self._waiting += requests
        self._serve()

    def eof_received(self) -> bool:
        """The client sends nothing more; what it asked is not worth answering."""
        return False

    def pause_writing(self) -> None:
        """The client does not take what was written."""
        self._full = True

    def resume_writing(self) -> None:
        """The client took it."""
        self._full = False
        self.heard_s = self.clock.elapsed_s()
        self.holding.note_taken()
        self._serve()

    # Serving.

    def _serve(self) -> None:
        waiting = self._waiting
        while waiting and not self._busy and not self._full and self._transport is not None:
            request = waiting.popleft()
            try:
                answer = self._dispatch(request, self)
            except Exception:
                self._give_up(request)
                return
            if type(answer) is DeferredResponse:
                self._busy = True
                if self.holding.request_bytes and not _needs_frame(request):
                    self.holding.note_served()
                self._coming = answer.answer
                self._task = asyncio.get_running_loop().create_task(
                    self._serve_later(request, answer.answer, answer.told)
                )
            else:
                assert not isinstance(answer, DeferredResponse)
                self._send(request, answer)
        if self.holding.request_bytes and not self._busy and not waiting:
            self.holding.note_served()
        self._read_on()

    async def _serve_later(
        self,
        request: Request,
        coming: Coroutine[Any, Any, Response | None],
        told: Callable[[Response | None], None] | None,
    ) -> None:
        try:
            answer = await coming
        except ProtocolViolation as violation:
            self._send_away(violation)
            return
        except Exception:
            self._give_up(request)
            return
        if told is not None:
            told(answer)
        self._busy, self._task, self._coming = False, None, None
        self.heard_s = self.clock.elapsed_s()
        if self._transport is not None:
            self._send(request, answer)
            self._serve()

    def _send(self, request: Request, answer: Response | None) -> None:
        try:
            buffers: Sequence[Buffer] = self._conversation.send(request, answer)
        except Unwritable:
            self._give_up(request)
            return
        if buffers and self._transport is not None:
            self._transport.writelines(buffers)
            now_s = self.clock.elapsed_s() if self._full else None
            self.holding.note_answer(sum(map(len, buffers)), now_s)

    def _read_on(self) -> None:
        """Read while there is nothing to do, and stop while there is."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        held = self._busy or self._full or self.holding.short or bool(self._waiting)
        if not held and self._conversation.violation is not None:
            self._send_away(self._conversation.violation)
        elif held != self._paused:
            self._paused = held
            if held:
                self._paused_s = self.heard_s
                transport.pause_reading()
            else:
                self.holding.frame_pace.skip(self.heard_s - self._paused_s)
                transport.resume_reading()

    def go_on(self) -> None:
        """There may be memory for the frame that is coming."""
        self.heard_s = self.clock.elapsed_s()
        self.holding.note_frame(self._conversation.framer)
        self._read_on()

    # Ending.

    def _send_away(self, violation: ProtocolViolation) -> None:
        self._complain(CloseReason.VIOLATION, str(violation))
        self.close()

    def _complain(self, fault: CloseReason, why: str) -> None:
        if self._complained is not None:
            self._complained(self, fault, why)

    def _give_up(self, request: Request) -> None:
        """Our mistake: nobody knows what the answer would be, so there is none."""
        _LOG.exception(
            "request failed",
            {
                "peer": self.address,
                "client": request.header.client_id or "",
                "api": request.api.name,
                "version": request.header.api_version,
            },
        )
        self._complain(CloseReason.FAILURE, f"{request.api.name} failed")
        self.close()

    def overdue(self) -> str | None:
        """Why the connection is to be closed now, if it is."""
        now = self.clock.elapsed_s()
        before, unsent = self._unsent, self._look_at_unsent(now)
        if unsent < before:
            self.heard_s = now  # who takes an answer slowly is not idle
        holding, pace = self.holding, self.holding.frame_pace
        arrived = self._conversation.framer.arrived
        if reason := holding.stuck(None if self._paused else arrived, unsent, now):
            return reason
        if not self._paused and pace.is_late(arrived, now):
            return f"a frame was not whole after {pace.allowed_s(arrived):.0f} s"
        idle_s = self.rules.idle_ms_max / 1000
        if not (self._busy or holding.short) and idle_s >= 0 and now - self.heard_s > idle_s:
            return f"idle for {idle_s:.0f} s"
        return None

    def _look_at_unsent(self, now_s: float) -> int:
        unsent = 0 if self._transport is None else self._transport.get_write_buffer_size()
        if unsent != self._unsent:
            self._unsent, self._unsent_s = unsent, now_s
        return unsent

    def takes_nothing(self, seconds: float) -> bool:
        """Whether an answer has not moved for so long; to be asked now and then."""
        now = self.clock.elapsed_s()
        return self._look_at_unsent(now) > 0 and not self._busy and now - self._unsent_s > seconds

    @property
    def is_closing(self) -> bool:
        """Whether it will be gone in a moment."""
        return self._transport is None or self._transport.is_closing()

    @property
    def idle(self) -> bool:
        """Whether no request waits for its answer."""
        return not (self._busy or self._waiting)

    def close(self) -> None:
        """Send what was written and close; what is being served is given up."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close now: what was written may be lost."""
        self.holding.let_go()
        if self._transport is not None:
            self._transport.abort()

"""A client's connection to a broker: requests in, responses out.

Requests of a connection are served one at a time and in order, as Kafka does, so a client's records
are appended in the order in which it sent them. Reading is paused while a deferred response is
pending, while the client does not read its responses, while the next frame waits for memory, and
while other connections get their turn. Requests behind the one that is served stay bytes: they are
decoded when it is their turn. A connection therefore holds at most what one read returned (128 KiB)
or one large frame, one response, its pending acknowledgements and the two socket buffers. Frames
and responses over 32 KiB are charged to the broker's memory pools, and so is what waits behind a
request, and the read buffer while a waiting Produce request refers to it. When others wait for
memory, a connection that makes no progress is closed.

A Produce request whose records are appended may wait for its acknowledgement (PendingAck). Only
Produce requests are served behind it: another request waits until all acknowledgements are sent. So
does the next Produce request when the pending acknowledgements are at their limit. Responses are
sent in request order. A connection that is closed sends its pending acknowledgements first.

While reading is paused, the network reports a client that has closed its end. The request that is
served is then cancelled, whatever it waits for. One that waits for other clients (Fetch, JoinGroup,
SyncGroup) is cancelled at once, and those behind it are skipped without being decoded. All others,
and pending acknowledgements, have half a second (`departed_ms`) more, because a client that only
stopped sending may still read. A handler finishes what it has begun before it lets the cancellation
pass, so no change is left half done, and the requests behind it are served after that: as in Kafka,
a client may send a change and close without reading the response. Those that are not served within
a second of its end (`departed_served_ms`) are skipped, too, except Produce requests: with acks=0
nobody expects a response. A frame that waits for memory is dropped after half a second, or at once
if its rest has not arrived. After a dropped response no other one is sent, so the client never gets
a response out of order. What the controller has sent, and other requests that only brokers send, is
finished. The end of a client that has sent more than the socket buffers hold cannot be seen: it
comes behind bytes that are not read. So a connection is closed whose client has waited half a
minute for other clients while its unread bytes fill the socket.

A client may log in once, as a broker of the cluster (SaslHandshake, then SaslAuthenticate). In the
middle of a login nothing else is served: another request closes the connection, and so do a frame
over LOGIN_BYTES_MAX and a login that takes longer than LOGIN_SECONDS. A refused login is answered
after a delay, as in Kafka, and the connection is closed. A login is optional: clients have none.

Invariant: the state changes only along TRANSITIONS; an illegal transition raises.
Invariant: `is_broker` becomes true only when a login of this connection is complete.
Invariant: whatever a client sends, the worst outcome is that its connection is closed.

A request that is answered at once costs neither a task nor a future.
"""

import asyncio
import logging
from array import array
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum, auto
from fcntl import ioctl
from inspect import CORO_CREATED, getcoroutinestate
from socket import SO_KEEPALIVE, SO_RCVBUF, SO_SNDBUF, SOL_SOCKET
from termios import FIONREAD
from typing import Any, Final, TypeAlias, cast

from ottla.access.scram_server import ScramServer
from ottla.clock import Clock
from ottla.errors import ProtocolViolation
from ottla.protocol.apis import FETCH, JOIN_GROUP, PRODUCE, SASL_AUTHENTICATE, SYNC_GROUP
from ottla.protocol.conversation import (
    ALL_VERSIONS,
    LargeRequest,
    Request,
    Response,
    ServerConversation,
    objects_at_once,
)
from ottla.protocol.frames import FRAME_BYTES_MAX, KEPT_BYTES_MAX
from ottla.protocol.message import Message, Use
from ottla.protocol.primitives import Buffer
from ottla.protocol.schema import Versions
from ottla.protocol.writer import EncodingError
from ottla.transport.file_sender import FileSender, has_file_slice
from ottla.transport.log_rate_limit import CloseReason
from ottla.transport.memory_pool import READ_BUFFER_BYTES, ConnectionMemory, MemoryPools, mapped
from ottla.transport.network import WritableWatch
from ottla.transport.pending_acks import AckQueue, PendingAck

_LOG = logging.getLogger(__name__)

REQUESTS_PER_TURN: Final = 16
"""Requests that are served before other connections get their turn.

All connections that have more of them share this number, but each serves one in its turn.
"""

WRITE_BUFFER_BYTES: Final = 32 * 1024
"""Unsent response bytes above which the next request of a connection has to wait."""

LOGIN_BYTES_MAX: Final = KEPT_BYTES_MAX - 4
"""The largest frame during a login, which SCRAM never needs; it gets no memory of its own."""

LOGIN_SECONDS: Final = 10.0
"""How long a login may take; the connection is closed then."""

BEHIND_SECONDS: Final = 30.0
"""How long unread requests may fill the socket behind one that waits for other clients.

It is the usual request.timeout.ms: a client does not wait longer for their responses.
"""


def _needs_frame(request: Request) -> bool:
    """Whether the request still refers to the frame's bytes: its records are slices of them."""
    return request.api is PRODUCE or isinstance(request, LargeRequest)


@dataclass(slots=True)
class DeferredResponse:
    """A response that is not ready yet, and a callback that receives it before it is sent.

    With `ack`, the coroutine returns when the request is carried out. The response is then that of
    the acknowledgement, and is sent when it is complete.
    """

    response: Coroutine[Any, Any, Response | None]
    on_response: Callable[[Response | None], None] | None = None
    ack: PendingAck | None = None


Served: TypeAlias = Response | DeferredResponse | PendingAck | None
"""A response, one that comes later, or None for a request without a response."""

Dispatch: TypeAlias = "Callable[[Request, Connection], Served]"
"""Serves a request."""


def dispatched(frame: memoryview, connection: "Connection") -> None:
    """Dispatch the request in a frame: it is not ordinary."""


ServeFrame: TypeAlias = Callable[[memoryview], bytes | PendingAck | None]
"""Serves the frame of an ordinary request: the response frame, or None to dispatch the request.

The response of a PendingAck is a response frame, too.
"""


class FrameWait:
    """An ordinary request that waits, as bytes; it is served again when the wait ends.

    The part that ends the wait sets `is_over` and calls `on_end`, once. It is no abstract base
    class: `isinstance` would cost five times as much.
    """

    __slots__ = ("is_over", "on_end")

    def __init__(self) -> None:
        self.is_over = False
        self.on_end: Callable[[], object] = lambda: None

    def serve(self) -> "list[Buffer] | FrameWait | None":
        """Serve the request after the wait; None to dispatch it."""
        raise NotImplementedError

    def cancel(self) -> None:
        """End the wait without a response: the client has left."""
        raise NotImplementedError


FetchAnswer: TypeAlias = list[Buffer] | PendingAck | FrameWait | None

ServeFetchFrame: TypeAlias = "Callable[[memoryview, Connection], FetchAnswer]"
"""Does the same for a Fetch; a response is the buffers and file slices of its frame.

They are known to be in the page cache.
"""


class Turns:
    """Counts the connections of a broker that have more requests than they serve in a turn."""

    __slots__ = ("waiting",)

    def __init__(self) -> None:
        self.waiting = 0

    @property
    def requests(self) -> int:
        """How many requests a connection serves in its turn."""
        return max(REQUESTS_PER_TURN // (1 + self.waiting), 1)


class Admittance(Enum):
    """What the listener decides about a connection that was just accepted."""

    ADMITTED = "the connection is served"
    QUEUED = "the connection is served once others have left"
    REFUSED = "the connection is closed"


class State(IntEnum):  # an IntEnum, because its hash is computed by compiled code
    """What a connection does, apart from reading: requests are served in READY.

    Acknowledgements can be pending in every state but the first two, REFUSED and those of a login.
    """

    OPENING = auto()  # not accepted yet
    QUEUED = auto()  # accepted; its requests wait until the listener admits it
    READY = auto()  # the next request is served at once
    SERVING = auto()  # a deferred response is pending
    BLOCKED = auto()  # the client does not read its responses
    SERVING_BLOCKED = auto()  # a deferred response is pending and the client does not read
    HELD = auto()  # the next request waits for pending acknowledgements
    HELD_BLOCKED = auto()  # it waits for acknowledgements and the client does not read
    AUTHENTICATING = auto()  # a login has begun; only SaslAuthenticate is served
    AUTHENTICATING_BLOCKED = auto()  # a login has begun and the client does not read
    CLOSING = auto()  # nothing more is read or served; closes after pending responses
    REFUSED = auto()  # over a connection limit; nothing is read
    CLOSED = auto()  # the transport is gone


class Event(IntEnum):
    """What changes the state of a connection."""

    ADMIT = auto()  # the listener admits it
    QUEUE = auto()  # the listener queues it
    REFUSE = auto()  # the listener refuses it
    DEFER = auto()  # a handler returns a deferred response
    RESPOND = auto()  # the deferred response is ready
    BLOCK = auto()  # the transport's write buffer is over its limit
    UNBLOCK = auto()  # the transport's write buffer has drained
    HOLD = auto()  # the next request has to wait for pending acknowledgements
    ACKNOWLEDGE = auto()  # one or more of them were sent
    AUTHENTICATE = auto()  # a SaslHandshake request begins a login
    AUTHENTICATED = auto()  # the login is complete
    CLOSE = auto()  # the connection is to be closed after pending responses
    LOSE = auto()  # the transport is closed


TRANSITIONS: Final[Mapping[tuple[State, Event], State]] = {
    (State.OPENING, Event.ADMIT): State.READY,
    (State.OPENING, Event.QUEUE): State.QUEUED,
    (State.OPENING, Event.REFUSE): State.REFUSED,
    (State.QUEUED, Event.ADMIT): State.READY,
    (State.READY, Event.DEFER): State.SERVING,
    (State.SERVING, Event.RESPOND): State.READY,
    (State.READY, Event.BLOCK): State.BLOCKED,
    (State.BLOCKED, Event.UNBLOCK): State.READY,
    # uvloop writes at the end of its turn, when the next request may already be served.
    (State.SERVING, Event.BLOCK): State.SERVING_BLOCKED,
    (State.SERVING_BLOCKED, Event.UNBLOCK): State.SERVING,
    (State.SERVING_BLOCKED, Event.RESPOND): State.BLOCKED,
    (State.READY, Event.HOLD): State.HELD,
    (State.HELD, Event.ACKNOWLEDGE): State.READY,
    (State.HELD, Event.BLOCK): State.HELD_BLOCKED,
    (State.HELD_BLOCKED, Event.UNBLOCK): State.HELD,
    (State.HELD_BLOCKED, Event.ACKNOWLEDGE): State.BLOCKED,
    (State.READY, Event.AUTHENTICATE): State.AUTHENTICATING,
    (State.AUTHENTICATING, Event.AUTHENTICATED): State.READY,
    (State.AUTHENTICATING, Event.DEFER): State.SERVING,  # a refusal is sent after a delay
    (State.AUTHENTICATING, Event.BLOCK): State.AUTHENTICATING_BLOCKED,
    (State.AUTHENTICATING_BLOCKED, Event.UNBLOCK): State.AUTHENTICATING,
    **{
        (state, Event.CLOSE): State.CLOSING
        for state in (
            State.READY,
            State.SERVING,
            State.BLOCKED,
            State.SERVING_BLOCKED,
            State.HELD,
            State.HELD_BLOCKED,
            State.AUTHENTICATING,
            State.AUTHENTICATING_BLOCKED,
        )
    },
    **{
        (State.CLOSING, event): State.CLOSING
        for event in (Event.RESPOND, Event.BLOCK, Event.UNBLOCK, Event.CLOSE)
    },
    **{(state, Event.LOSE): State.CLOSED for state in State},
    # The transport and the handler may finish after the connection is gone.
    **{
        (State.CLOSED, event): State.CLOSED for event in (Event.RESPOND, Event.BLOCK, Event.UNBLOCK)
    },
}

# Named once: looking a member up in its class costs more than the comparison on every request.
_READY: Final = State.READY
_AUTHENTICATING: Final = State.AUTHENTICATING
_SERVING: Final = frozenset((State.QUEUED, State.SERVING, State.SERVING_BLOCKED))
_BLOCKED: Final = frozenset(
    (State.BLOCKED, State.SERVING_BLOCKED, State.HELD_BLOCKED, State.AUTHENTICATING_BLOCKED)
)
_HELD: Final = frozenset((State.HELD, State.HELD_BLOCKED))

_WAIT_FOR_OTHERS: Final = frozenset((FETCH, JOIN_GROUP, SYNC_GROUP))
"""APIs whose requests wait for other clients, without a limit of the broker."""

_WAITING_KEYS: Final = frozenset(api.key for api in _WAIT_FOR_OTHERS)

_ALL_BUT_PRODUCE_KEYS: Final = frozenset(ALL_VERSIONS) - {PRODUCE.key}

_SASL_AUTHENTICATE: Final = SASL_AUTHENTICATE.key.to_bytes(2, "big")


@dataclass(frozen=True, slots=True)
class ConnectionConfig:
    """What a connection may do."""

    versions: Mapping[int, Versions] = field(default_factory=lambda: ALL_VERSIONS)
    frame_bytes_max: int = FRAME_BYTES_MAX
    idle_ms_max: int = 600_000
    send_buffer_bytes: int = -1  # SO_SNDBUF; -1 leaves it to the operating system
    receive_buffer_bytes: int = -1  # SO_RCVBUF; -1 leaves it to the operating system
    refused_login_ms: int = 100  # the delay of the response to a refused login
    departed_ms: int = 500  # how long a client that has closed its end may wait
    departed_served_ms: int = 1000  # how long its requests are served


WatchDeparture: TypeAlias = Callable[[asyncio.Transport, Callable[[], None]], Callable[[], None]]
"""Calls a function when the peer of a transport closes its end: see `Network.watch_departure`."""


def _never_departs(
    transport: asyncio.Transport, departed: Callable[[], None]
) -> Callable[[], None]:
    return lambda: None


WatchWritable: TypeAlias = Callable[[asyncio.Transport, Callable[[], None]], WritableWatch | None]
"""Watches the socket of a transport: see `Network.watch_writable`."""


class Connection(asyncio.BufferedProtocol):
    """One client, from its first byte to its last."""

    __slots__ = (
        "_acks",
        "_closed",
        "_conversation",
        "_deferred",
        "_departed_s",
        "_departed_timer",
        "_dispatch",
        "_end_watch",
        "_file_sender",
        "_has_departed",
        "_has_dropped",
        "_has_more",
        "_is_cancelled",
        "_is_full",
        "_login_since_s",
        "_on_close_reason",
        "_opened",
        "_paused_since_s",
        "_serve_broker_frame",
        "_serve_fetch_frame",
        "_serve_frame",
        "_served_request",
        "_short_since",
        "_state",
        "_task",
        "_transport",
        "_turn_due",
        "_turns",
        "_unsent",
        "_unsent_since_s",
        "_waiting_frame",
        "_waits_are_over",
        "_watch_departure",
        "_watch_writable",
        "address",
        "clock",
        "config",
        "has_asked",
        "is_broker",
        "last_active_s",
        "listener",
        "login",
        "memory",
        "software",
    )

    def __init__(
        self,
        dispatch: Dispatch,
        opened: "Callable[[Connection], Admittance]",
        closed: "Callable[[Connection], None]",
        config: ConnectionConfig,
        clock: Clock,
        listener: str = "",
        on_close_reason: "Callable[[Connection, CloseReason, str], None] | None" = None,
        memory: MemoryPools | None = None,
        watch_departure: WatchDeparture = _never_departs,
        serve_frame: ServeFrame | None = None,
        watch_writable: WatchWritable = lambda transport, writable: None,
        serve_fetch_frame: ServeFetchFrame = dispatched,
        serve_broker_frame: ServeFetchFrame = dispatched,
        turns: Turns | None = None,
    ) -> None:
        """A connection that asks `opened` whether it is admitted and calls `closed` at its end.

        `on_close_reason` is called with the reason before the broker closes the connection.
        """
        self._dispatch = dispatch
        self._serve_frame = serve_frame
        self._serve_fetch_frame = serve_fetch_frame
        self._serve_broker_frame = serve_broker_frame  # of a connection that has logged in
        self._opened = opened
        self._closed = closed
        self._on_close_reason = on_close_reason
        self._watch_departure = watch_departure
        self._watch_writable = watch_writable
        self._file_sender: FileSender | None = None  # None: no response had file slices
        self._is_full = False  # the transport's write buffer is over its limit
        self._end_watch: Callable[[], None] | None = None
        self._has_departed = False  # the client has closed its end
        self._departed_s = 0.0  # since when
        self._departed_timer: asyncio.TimerHandle | None = None  # drops what it waits for
        self._waits_are_over = False  # the timer has run: nothing waits any more
        self._is_cancelled = False  # the served request, because the client has departed
        self._has_dropped = False  # a response was dropped: no other one is sent
        self.config = config
        self.clock = clock
        self.listener = listener  # the name of the listener that accepted it
        self.address = "?"
        self.software: tuple[str, str] | None = None  # name and version from ApiVersions (KIP-511)
        self.has_asked = False  # a complete request has arrived
        self.is_broker = False  # the other end has logged in as a broker of the cluster
        self.login: ScramServer | None = None  # the login that has begun and not ended
        self._login_since_s = 0.0
        self.memory = ConnectionMemory(memory or MemoryPools(), self)
        self._conversation = ServerConversation(
            config.versions,
            frame_bytes_max=config.frame_bytes_max,
            objects_at_once=objects_at_once,
            huge_memory=mapped,
            buffer_pool=self.memory.buffer_pool,
            read_buffer=self.memory.read_buffer,
        )
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None
        self._deferred: Coroutine[Any, Any, Response | None] | None = None
        self._served_request: Request | None = None  # the one whose response is deferred
        self._waiting_frame: tuple[memoryview, FrameWait] | None = None  # that is served again
        self._acks: AckQueue | None = None  # None: no acknowledgement is pending
        self._state = State.OPENING
        self._turn_due = False  # the event loop will call _next_turn
        self._turns = turns or Turns()
        self._has_more = False  # requests than it serves in a turn
        self._paused_since_s: float | None = None  # None while the transport reads
        # Since when a frame waits for memory, with the bytes that had arrived; None: none waits.
        self._short_since: tuple[int, float] | None = None
        self._unsent = 0  # unsent response bytes at the last look
        # When the client last sent or read something, and when unsent bytes last changed.
        self.last_active_s = self._unsent_since_s = clock.elapsed_s()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.address})"

    def _change(self, event: Event) -> None:
        state = TRANSITIONS.get((self._state, event))
        assert state is not None, f"{event.name} in state {self._state.name}"
        self._state = state

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask the listener whether the connection is admitted."""
        # uvloop's transports are not subclasses of asyncio.Transport, but have its methods.
        transport = self._transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)
        self.address = str(transport.get_extra_info("peername", ("?",))[0])
        admittance = self._opened(self)
        if admittance is Admittance.REFUSED:
            self._change(Event.REFUSE)
            transport.abort()
            return
        self._change(Event.ADMIT if admittance is Admittance.ADMITTED else Event.QUEUE)
        self._set_buffer_sizes(transport)
        self._end_watch = self._watch_departure(transport, self.departed)

    def _set_buffer_sizes(self, transport: asyncio.Transport) -> None:
        socket = transport.get_extra_info("socket")
        if socket is None:
            return  # a simulated network
        socket.setsockopt(SOL_SOCKET, SO_KEEPALIVE, 1)  # notices a client that vanished
        for option, size in (
            (SO_SNDBUF, self.config.send_buffer_bytes),
            (SO_RCVBUF, self.config.receive_buffer_bytes),
        ):
            if size >= 0:
                socket.setsockopt(SOL_SOCKET, option, size)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything the connection holds and cancel the request being served."""
        is_refused = self._state is State.REFUSED
        self._change(Event.LOSE)
        self._transport = None
        if self._end_watch is not None:
            self._end_watch()
        if self._file_sender is not None:
            self._file_sender.stop()
        self.memory.close()
        # Free the frame now, not when the garbage collector finds this connection.
        self._conversation.framer.drop()
        self._cancel_deferred()
        if self._departed_timer is not None:
            self._departed_timer.cancel()
        if self._acks is not None:
            self._acks.cancel()
            self._acks = None
        if not is_refused:
            self._closed(self)

    def _cancel_deferred(self) -> None:
        if self._task is not None:
            self._task.cancel()
        if self._deferred is not None and getcoroutinestate(self._deferred) == CORO_CREATED:
            self._deferred.close()  # never awaited: Python would warn about it
        if self._waiting_frame is not None:
            self._waiting_frame[1].cancel()
        self._task = self._deferred = self._served_request = self._waiting_frame = None

    # Clients that have left.

    def departed(self) -> None:
        """Drop what the client waits for: it has closed its end."""
        self._note_departure()
        if self._state is State.QUEUED:
            self.abort()
        else:
            self._limit_waits()
            self._pause_or_resume_reading()

    def _note_departure(self) -> None:
        if not self._has_departed:
            self._has_departed, self._departed_s = True, self.clock.elapsed_s()

    def _keys_to_skip(self) -> frozenset[int]:
        """Return the keys of the APIs whose requests are not served after the client has left."""
        departed_s = self.clock.elapsed_s() - self._departed_s
        is_over = departed_s >= self.config.departed_served_ms / 1000 and not self.is_broker
        return _ALL_BUT_PRODUCE_KEYS if is_over else _WAITING_KEYS

    def _limit_waits(self) -> None:
        """Drop what a departed client waits for, at once or after the delay that is granted once.

        Call it whenever something begins to wait.
        """
        if self._waits_are_over:
            self._drop_acks()
        elif self._departed_timer is None and (
            self._acks is not None or self._is_serving or self.memory.short
        ):
            loop = asyncio.get_running_loop()
            self._departed_timer = loop.call_later(self.config.departed_ms / 1000, self._end_waits)
        self._cancel_served()

    def _end_waits(self) -> None:
        self._waits_are_over = True
        self._drop_acks()
        self._cancel_served()
        self._pause_or_resume_reading()

    def _cancel_served(self) -> None:
        """Cancel the request that is served if it may not wait any longer."""
        if self._waiting_frame is not None:
            self._waiting_frame[1].cancel()
            self._waiting_frame = None
            self._has_dropped = True
            self._change(Event.RESPOND)
            self._conversation.skip()
            self._serve()
            return
        request, task = self._served_request, self._task
        if request is None or task is None or self._is_cancelled:
            return
        is_over = self._waits_are_over and request.api.use is not Use.BROKERS
        if is_over or request.api in _WAIT_FOR_OTHERS:
            self._is_cancelled = True
            # Not before its first step, in which it does what it can do without waiting.
            asyncio.get_running_loop().call_soon(task.cancel)

    def _drop_acks(self) -> None:
        """Drop the pending acknowledgements; what their requests have appended stays so."""
        if (acks := self._acks) is None:
            return
        self._has_dropped = True
        self._acks = None
        for request in acks.cancel():
            self._conversation.send(request, None)
        if self._state is State.CLOSING:
            self.close()
        elif self._state in _HELD:
            self._change(Event.ACKNOWLEDGE)
            self._serve()

    @property
    def _waits_in_vain_for_memory(self) -> bool:
        """Whether a departed client's next frame waits for memory that it cannot use, or too long.

        The rest of the frame cannot come if it is not in the socket.
        """
        if not self._has_departed or self._acks is not None:
            return False
        framer = self._conversation.framer
        return self._waits_are_over or framer.claimed - framer.arrived > self._unread_bytes

    def admit(self) -> None:
        """Serve a queued connection from now on."""
        self._change(Event.ADMIT)
        self.last_active_s = self.clock.elapsed_s()
        self._serve()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer that the next bytes are read into."""
        return self._conversation.framer.buffer(self.memory.read_bytes_max)

    def buffer_updated(self, nbytes: int) -> None:
        """Serve the requests in the bytes that were read."""
        if self._state is State.REFUSED:
            return
        self.last_active_s = self.clock.elapsed_s()
        self._conversation.framer.accept(nbytes)
        self._serve()

    def eof_received(self) -> bool:
        """Close the transport: a client that stopped sending gets only pending acknowledgements.

        It gets those that are complete within `departed_ms`.
        """
        if self._acks is None and not self._is_sending_files:
            return False
        self._note_departure()
        self.close()
        self._limit_waits()
        return True

    def pause_writing(self) -> None:
        """Stop serving: the client does not read its responses."""
        self._is_full = True
        self._block_or_unblock()

    def resume_writing(self) -> None:
        """Serve again: the client has read its responses."""
        self._is_full = False
        self._block_or_unblock()

    def _block_or_unblock(self) -> None:
        is_blocked = self._is_full or self._is_sending_files
        if is_blocked == self._is_blocked:
            return
        self._change(Event.BLOCK if is_blocked else Event.UNBLOCK)
        if not is_blocked:
            self.last_active_s = self.clock.elapsed_s()
            self.memory.release_response()
            if self._waiting_frame is not None and self._waiting_frame[1].is_over:
                self._serve_again(self._waiting_frame[1])
            else:
                self._serve()

    # Serving.

    def _serve(self) -> None:
        """Serve requests until one defers its response, the client stops reading or it is enough.

        Requests behind it are kept as they were read, and decoded when they are served.
        """
        conversation, memory = self._conversation, self.memory
        framer, served = conversation.framer, 0
        serve_frame, serve_fetch_frame = self._serve_frame, self._serve_fetch_frame
        if self.is_broker:
            serve_frame, serve_fetch_frame = None, self._serve_broker_frame
        was_large, requests = framer.is_large, self._turns.requests
        while self._state is _READY and self._transport is not None:
            if served == requests:
                if not self._has_more:
                    self._has_more = True
                    self._turns.waiting += 1
                self._yield_turn()
                break
            acks = self._acks
            if acks is not None and (
                acks.is_full(conversation.unanswered) or not conversation.next_is_produce
            ):
                self._change(Event.HOLD)
                break
            is_skipping = self._has_departed and acks is None
            if is_skipping and conversation.skip_requests(self._keys_to_skip()):
                self._has_dropped = True  # nobody would read the responses
            try:
                frame = conversation.next_frame()
            except ProtocolViolation as violation:
                self._close_for_violation(violation)
                return
            if was_large or framer.is_large or framer.copied:
                memory.account_frame(framer)
                was_large = False
            if frame is None:
                break
            served += 1
            self.has_asked = True
            try:
                encoded = None if serve_frame is None else serve_frame(frame)
                if encoded is None:
                    encoded = serve_fetch_frame(frame, self)
                if encoded is not None:
                    if isinstance(encoded, PendingAck):
                        self._await_ack(conversation.encoded_request(), encoded)
                    elif isinstance(encoded, FrameWait):
                        self._change(Event.DEFER)
                        self._await_frame(frame, encoded)
                    else:
                        if isinstance(encoded, bytes):
                            encoded = [cast("Buffer", encoded)]
                        self._write(conversation.send_encoded(encoded), is_known_cached=True)
                    continue
                request = conversation.request(frame)
            except ProtocolViolation as violation:
                self._close_for_violation(violation)
                return
            except Exception:  # of the fast path
                self._close_for_failure(conversation.request(frame))
                return
            if not self._dispatched(request):
                return
        if self._state is _AUTHENTICATING:
            self._serve_login()
        if kept := framer.keep_rest():
            memory.hold_request(kept)
        elif memory.request_bytes and not self._is_serving and not framer.has_rest:
            memory.release_request()
        self._pause_or_resume_reading()
        pace = memory.frame_pace
        if not framer.partial:
            pace.since_s = None
        elif served or pace.since_s is None:
            pace.begin(self.last_active_s)

    def _dispatched(self, request: Request) -> bool:
        """Dispatch a request, and send or defer the response; False if the connection is closed."""
        try:
            response = self._dispatch(request, self)
        except Exception:
            self._close_for_failure(request)
            return False
        if type(response) is DeferredResponse:
            self._defer(request, response, in_place=self._conversation.framer.is_in_place)
        elif type(response) is PendingAck:
            self._await_ack(request, response)
        else:
            assert not isinstance(response, DeferredResponse | PendingAck)
            self._send(request, response, is_known_cached=True)
        return True

    def _await_frame(self, frame: memoryview, wait: FrameWait) -> None:
        """Keep a frame, which is served again after a wait."""
        if self.memory.request_bytes and not self._conversation.framer.has_rest:
            self.memory.release_request()
        self._waiting_frame = (frame, wait)
        # The wait ends in the middle of another connection's request.
        loop = asyncio.get_running_loop()
        if self._has_departed:
            loop.call_soon(self._cancel_served)
        wait.on_end = lambda: loop.call_soon(self._serve_again, wait)

    def _serve_again(self, wait: FrameWait) -> None:
        """Serve the frame that has waited, unless the client does not read its responses."""
        if self._waiting_frame is None or self._waiting_frame[1] is not wait or self._is_blocked:
            return
        frame, conversation = self._waiting_frame[0], self._conversation
        self._waiting_frame = None
        self.last_active_s = self.clock.elapsed_s()
        try:
            encoded = wait.serve()
            if isinstance(encoded, FrameWait):
                self._await_frame(frame, encoded)
                return
            self._change(Event.RESPOND)
            if encoded is not None:
                self._write(conversation.send_encoded(encoded), is_known_cached=True)
            elif not self._dispatched(conversation.request(frame)):
                return
        except ProtocolViolation as violation:
            self._close_for_violation(violation)
            return
        except Exception:
            self._close_for_failure(conversation.request(frame))
            return
        self._serve()

    def _defer(self, request: Request, response: DeferredResponse, *, in_place: bool) -> None:
        self._change(Event.DEFER)
        memory = self.memory
        if in_place:  # its records are in the read buffer
            memory.hold_request(READ_BUFFER_BYTES)
        elif (
            memory.request_bytes
            and not _needs_frame(request)
            and not self._conversation.framer.has_rest
        ):
            memory.release_request()
        self._deferred, self._served_request = response.response, request
        self._is_cancelled = False
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self._serve_deferred(request, response))
        if self._has_departed:
            self._limit_waits()

    # A login.

    def begin_login(self, login: ScramServer) -> None:
        """Serve only SaslAuthenticate requests, until the login is complete or refused.

        A handler of a request calls this; the response to that request is sent first.
        """
        assert not self.is_broker, "a connection logs in once"
        self._change(Event.AUTHENTICATE)
        self.login = login
        self._login_since_s = self.last_active_s
        self._conversation.framer.frame_bytes_max = LOGIN_BYTES_MAX

    def _serve_login(self) -> None:
        """Serve the SaslAuthenticate requests that were read; their handler advances `login`."""
        conversation, login = self._conversation, self.login
        assert login is not None
        while self._state is _AUTHENTICATING and self._transport is not None:
            try:
                frame = conversation.next_frame()
                if frame is None:
                    return
                if bytes(frame[:2]) != _SASL_AUTHENTICATE:
                    raise ProtocolViolation("another request than SaslAuthenticate during a login")
                request = conversation.request(frame)
            except ProtocolViolation as violation:
                self._close_for_violation(violation)
                return
            try:
                response = self._dispatch(request, self)
                assert isinstance(response, Message)
            except Exception:
                self._close_for_failure(request)
                return
            if login.is_refused:
                self._refuse_login(request, response)
                return
            self._send(request, response)
            if login.username is not None:
                self.login = None
                self.is_broker = True
                self.memory.use_broker_pools()
                self._conversation.framer.frame_bytes_max = self.config.frame_bytes_max
                self._change(Event.AUTHENTICATED)
                self._yield_turn()  # the client may have sent requests behind the login

    def _refuse_login(self, request: Request, response: Message) -> None:
        """Send the response after a delay, which slows guessing down, and close."""
        self._change(Event.DEFER)
        self.login = None

        async def refuse() -> None:
            await self.clock.sleep(self.config.refused_login_ms / 1000)
            self._task = None
            self._send(request, response)
            self._report_close(CloseReason.UNAUTHENTICATED, "the login was refused")
            self.close()

        self._task = asyncio.get_running_loop().create_task(refuse())

    def _yield_turn(self) -> None:
        """Let other connections be served, and continue then."""
        if not self._turn_due:
            self._turn_due = True
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_due = False
        if self._has_more:
            self._has_more = False
            self._turns.waiting -= 1
        if self._acks is not None:
            self._send_acknowledged(self._acks)
        if self._transport is not None:
            self._serve()

    @property
    def has_pending_acks(self) -> bool:
        """Whether responses have to wait for earlier acknowledgements."""
        return self._acks is not None

    def _await_ack(self, request: Request, ack: PendingAck) -> None:
        """Send the response later; the frame is not needed any more."""
        if self._acks is None:
            self._acks = AckQueue(self._yield_turn)
        ack.listener = self.listener
        self._acks.add(request, ack)
        if self.memory.request_bytes:
            self.memory.release_request()
            if kept := self._conversation.framer.kept:
                self.memory.hold_request(kept)
        if self._has_departed and not ack.is_complete:
            self._limit_waits()

    def _send_acknowledged(self, acks: AckQueue) -> None:
        """Send the responses that are complete, in order and in one write."""
        buffers: list[Buffer] = []
        taken = acks.take_complete()
        if not len(acks):
            self._acks = None
        for request, ack in taken:
            try:
                buffers += self._conversation.send(request, ack.take())
            except Exception:
                self._write(buffers)
                buffers = []
                self._close_for_failure(request)
                break
        if taken:
            self.last_active_s = self.clock.elapsed_s()
            if self._state in _HELD:
                self._change(Event.ACKNOWLEDGE)
        self._write(buffers)
        if self._state is State.CLOSING and self._acks is None:
            self.close()

    async def _serve_deferred(self, request: Request, deferred: DeferredResponse) -> None:
        try:
            response = await deferred.response
        except asyncio.CancelledError:
            if self._transport is None:
                raise
            if not self._is_cancelled:
                self.abort()  # nothing else would end the connection
                raise
            self._drop_served(request)
            return
        except ProtocolViolation as violation:
            self._close_for_violation(violation)
            return
        except Exception:
            self._close_for_failure(request)
            return
        self._task = self._deferred = self._served_request = None
        self._change(Event.RESPOND)
        self.last_active_s = self.clock.elapsed_s()
        ack = deferred.ack
        if ack is not None:
            ack.on_response = deferred.on_response
        elif deferred.on_response is not None:
            deferred.on_response(response)
        if self._transport is None:
            return
        if ack is not None:
            self._await_ack(request, ack)
        else:
            self._send(request, response)
        self._serve()

    def _drop_served(self, request: Request) -> None:
        """Serve the next request; the one that was served is cancelled."""
        self._has_dropped = True
        self._task = self._deferred = self._served_request = None
        self._change(Event.RESPOND)
        self._conversation.send(request, None)
        self._serve()

    def _send(
        self, request: Request, response: Response | None, *, is_known_cached: bool = False
    ) -> None:
        try:
            buffers: Sequence[Buffer] = self._conversation.send(request, response)
        except EncodingError:
            self._close_for_failure(request)
        else:
            self._write(buffers, is_known_cached=is_known_cached)

    def _write(self, buffers: Sequence[Buffer], *, is_known_cached: bool = False) -> None:
        """Send buffers and file slices; the latter are cached if they were looked up just now."""
        if buffers and self._transport is not None and not self._has_dropped:
            if self._file_sender is not None and (
                self._file_sender.is_active or (len(buffers) > 1 and has_file_slice(buffers))
            ):
                size = self._file_sender.send(
                    buffers, self.clock.elapsed_s(), is_known_cached=is_known_cached
                )
                self._block_or_unblock()
            else:
                self._transport.writelines(buffers)
                size = sum(map(len, buffers))
            blocked_s = self.clock.elapsed_s() if self._is_blocked else None
            self.memory.account_response(size, blocked_s)

    # Responses with file slices.

    def accepts_file_slices(self) -> bool:
        """Whether responses may have file slices: they are not encrypted, on a real socket."""
        if self._file_sender is None and self._transport is not None:
            watch = self._watch_writable(self._transport, self._advance_files)
            if watch is not None:
                self._file_sender = FileSender(
                    self._transport, watch, self._files_sent, self._close_for_file
                )
        return self._file_sender is not None

    @property
    def _is_sending_files(self) -> bool:
        return self._file_sender is not None and self._file_sender.is_active

    def _advance_files(self) -> None:
        if self._file_sender is not None:
            self._file_sender.advance()

    def _files_sent(self, rest: Sequence[Buffer]) -> None:
        """Serve again; the transport sends what the file sender did not."""
        if self._transport is None:
            return
        if rest:
            self._transport.writelines(rest)
        self._block_or_unblock()
        if self._state is State.CLOSING and self._acks is None:
            self.close()

    @property
    def _is_serving(self) -> bool:
        """Whether a response is pending, or the connection still waits to be admitted."""
        return self._state in _SERVING

    @property
    def _is_blocked(self) -> bool:
        return self._state in _BLOCKED

    def _pause_or_resume_reading(self) -> None:
        """Read exactly while a new request could be served at once."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        has_rest = self._conversation.framer.has_rest
        is_waiting = self._state is not _READY and self._state is not _AUTHENTICATING
        if self.memory.short and not is_waiting and self._has_departed:
            if self._waits_in_vain_for_memory:
                self.abort()
                return
            self._limit_waits()
        pause = is_waiting or self.memory.short or has_rest
        if pause and self._paused_since_s is None:
            self._paused_since_s = self.last_active_s
            transport.pause_reading()
        elif not pause and self._paused_since_s is not None:
            self.memory.frame_pace.skip(self.last_active_s - self._paused_since_s)
            self._paused_since_s = None
            transport.resume_reading()

    def memory_available(self) -> None:
        """Try again to reserve memory for the frame that is being read."""
        self.last_active_s = self.clock.elapsed_s()
        self.memory.account_frame(self._conversation.framer)
        self._pause_or_resume_reading()

    # Closing.

    def _close_for_violation(self, violation: ProtocolViolation) -> None:
        self._report_close(CloseReason.VIOLATION, str(violation))
        self.close()

    def _report_close(self, reason: CloseReason, text: str) -> None:
        if self._on_close_reason is not None:
            self._on_close_reason(self, reason, text)

    def _close_for_failure(self, request: Request) -> None:
        """Close after an error of our own: the outcome is unknown, so no response is sent."""
        _LOG.exception(
            "request failed",
            {
                "peer": self.address,
                "client": request.header.client_id or "",
                "api": request.api.name,
                "version": request.header.api_version,
            },
        )
        self._report_close(CloseReason.FAILURE, f"{request.api.name} failed")
        self.close()

    def _close_for_file(self, reason: str) -> None:
        """Close in the middle of a response, whose bytes cannot be sent."""
        self._report_close(CloseReason.FAILURE, reason)
        self.abort()

    def timeout_reason(self) -> str | None:
        """Return why the connection has to be closed now; None if it may stay."""
        now = self.clock.elapsed_s()
        before, unsent = self._unsent, self._update_unsent(now)
        if unsent < before:
            self.last_active_s = now  # a client that reads slowly is not idle
        if self._file_sender is not None:
            self._file_sender.copy_overdue(now)
        memory, pace = self.memory, self.memory.frame_pace
        arrived = self._conversation.framer.arrived
        is_reading = self._paused_since_s is None
        silent_s = now - self.last_active_s
        if reason := memory.stall_reason(arrived if is_reading else None, unsent, now, silent_s):
            return reason
        if not memory.short:
            self._short_since = None
        elif self._short_since is None or self._short_since[0] != arrived:
            self._short_since = arrived, now  # it has got memory meanwhile, and waits again
        elif reason := memory.wait_reason(now - self._short_since[1]):
            return reason
        if is_reading and pace.is_late(arrived, now):
            return f"request incomplete after {pace.allowed_s(arrived):.0f} s"
        if self.login is not None and now - self._login_since_s > LOGIN_SECONDS:
            return f"login incomplete after {LOGIN_SECONDS:.0f} s"
        if silent_s > BEHIND_SECONDS and self._waits_for_others and self._is_socket_full:
            return f"unread requests fill the socket for {BEHIND_SECONDS:.0f} s"
        idle_s = self.config.idle_ms_max / 1000
        # As in Kafka, a client that waits for a response is idle: nobody knows whether it still
        # exists. What the controller has sent may take long.
        request = self._served_request
        is_working = request is not None and request.api.use is Use.BROKERS
        is_waiting = memory.short or is_working or self._state is State.QUEUED
        if not is_waiting and idle_s >= 0 and now - self.last_active_s > idle_s:
            return f"idle for {idle_s:.0f} s"
        return None

    @property
    def _waits_for_others(self) -> bool:
        request = self._served_request
        is_task = request is not None and request.api in _WAIT_FOR_OTHERS
        return is_task or self._waiting_frame is not None

    @property
    def _is_socket_full(self) -> bool:
        """Whether unread requests may keep the end of the client's bytes out of the socket.

        A quarter of the buffer is enough, because the system counts more than the bytes. A client
        that stays has at most a few requests behind the one that waits.
        """
        assert self._transport is not None
        socket = self._transport.get_extra_info("socket")
        if socket is None:
            return False  # a simulated network
        return 4 * self._unread_bytes >= socket.getsockopt(SOL_SOCKET, SO_RCVBUF)

    @property
    def _unread_bytes(self) -> int:
        """The number of bytes in the socket; unlimited in a simulated network."""
        assert self._transport is not None
        socket = self._transport.get_extra_info("socket")
        if socket is None:
            return 1 << 62
        unread = array("i", [0])
        ioctl(socket.fileno(), FIONREAD, unread)
        return unread[0]

    def _update_unsent(self, now_s: float) -> int:
        unsent = 0 if self._transport is None else self._transport.get_write_buffer_size()
        if self._file_sender is not None:
            unsent += self._file_sender.unsent
        if unsent != self._unsent:
            self._unsent, self._unsent_since_s = unsent, now_s
        return unsent

    def has_stopped_reading(self, seconds: float) -> bool:
        """Whether a response has not moved for this long; the caller polls it."""
        now = self.clock.elapsed_s()
        is_stuck = self._update_unsent(now) > 0 and now - self._unsent_since_s > seconds
        return is_stuck and not self._is_serving

    @property
    def is_closing(self) -> bool:
        """Whether the transport is closed or about to be."""
        return self._transport is None or self._transport.is_closing()

    @property
    def is_idle(self) -> bool:
        """Whether no request is being served.

        Requests behind it do not count, nor do pending acknowledgements: `close` waits for them.
        """
        return not self._is_serving

    def close(self) -> None:
        """Send what was written and what is appended, then close; serve no other request."""
        self._conversation.framer.drop()
        if self._transport is None:
            return
        is_done = self._acks is None and not self._is_sending_files
        if is_done or self._transport.is_closing():
            self._transport.close()
        else:
            self._change(Event.CLOSE)
            self._pause_or_resume_reading()

    def abort(self) -> None:
        """Close at once; written responses may be lost."""
        self.memory.release_all()
        if self._transport is not None:
            self._transport.abort()

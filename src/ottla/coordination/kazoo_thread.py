"""kazoo's client, with its callbacks moved to the event loop.

Invariant: results, watch events and session states reach the event loop in the order in which
kazoo's thread read them. By default kazoo calls back from two threads, so a watch event may arrive
after the data that it announces. The thread sends pings only while the event loop runs: the session
of a broker that is stuck expires, as if its process were dead.

kazoo has no type hints: the part used here is typed in this module, and no other module imports its
client.
"""

import asyncio
import logging
import struct
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, cast

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, WriterNotClosedException
from kazoo.handlers.threading import SequentialThreadingHandler

from ottla.coordination.session import Node, Stat

# Sessions report lost connections themselves.
_KAZOO_LOG: Final = logging.getLogger(f"{__name__}.kazoo")
_KAZOO_LOG.setLevel(logging.ERROR)

# Retry as often as Kafka's brokers do; kazoo's default backs off up to a minute.
_RETRY: Final = {"max_tries": -1, "delay": 0.05, "max_delay": 1.0}


class KazooStat(Protocol):
    """kazoo's ZnodeStat."""

    version: int
    czxid: int
    mzxid: int
    pzxid: int
    ctime: int
    mtime: int
    cversion: int
    aversion: int
    ephemeralOwner: int  # noqa: N815  # as kazoo has it
    dataLength: int  # noqa: N815
    numChildren: int  # noqa: N815


class KazooEvent(Protocol):
    """kazoo's WatchedEvent."""

    type: str


KazooWatch = Callable[[KazooEvent], None]


class KazooResult(Protocol):
    """A result that may not have arrived yet."""

    value: Any  # depends on the operation
    exception: Exception | None

    def rawlink(self, callback: Callable[["KazooResult"], None]) -> None:
        """Call a function when the result arrives."""
        ...


class KazooTransaction(Protocol):
    """Operations that run as one transaction."""

    def create(self, path: str, value: bytes, *, ephemeral: bool, sequence: bool) -> None: ...
    def set_data(self, path: str, value: bytes, version: int) -> None: ...
    def delete(self, path: str, version: int) -> None: ...
    def check(self, path: str, version: int) -> None: ...
    def commit_async(self) -> KazooResult: ...


class Kazoo(Protocol):
    """The part of kazoo's client used here. Version -1 matches any version."""

    client_id: tuple[int, bytes] | None

    def add_listener(self, listener: Callable[[str], None]) -> None: ...
    def start_async(self) -> object: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...
    def create_async(
        self, path: str, value: bytes, *, ephemeral: bool, sequence: bool
    ) -> KazooResult: ...
    def get_async(self, path: str, watch: KazooWatch | None) -> KazooResult: ...
    def set_async(self, path: str, value: bytes, version: int) -> KazooResult: ...
    def delete_async(self, path: str, version: int) -> KazooResult: ...
    def exists_async(self, path: str, watch: KazooWatch | None) -> KazooResult: ...
    def get_children_async(self, path: str, watch: KazooWatch | None) -> KazooResult: ...
    def sync_async(self, path: str) -> KazooResult: ...
    def transaction(self) -> KazooTransaction: ...


_GET_DATA: Final = 4  # the type of a read inside a multiRead request
_FAILED: Final = -1
_NO_NODE: Final = -101
_HEADER: Final = struct.Struct("!iBi")  # type, whether it is the end, error
_LENGTH: Final = struct.Struct("!i")
_STAT: Final = struct.Struct("!qq16xi8xq4xi8x")  # czxid, mzxid, version, owner, children


class _MultiRead:
    """Reads many nodes with one request (multiRead, since ZooKeeper 3.6); kazoo has none."""

    type: Final = 22

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths

    def serialize(self) -> bytes:
        """Encode the request."""
        parts: list[bytes] = []
        for path in self._paths:
            encoded = path.encode()
            parts += (_HEADER.pack(_GET_DATA, 0, -1), _LENGTH.pack(len(encoded)), encoded, b"\0")
        return b"".join((*parts, _HEADER.pack(-1, 1, -1)))

    def deserialize(self, data: bytes, offset: int) -> list[Node | None]:
        """Decode the response; None for a node that does not exist."""
        nodes: list[Node | None] = []
        while True:
            kind, is_end, _ = _HEADER.unpack_from(data, offset)
            offset += _HEADER.size
            if is_end:
                return nodes
            (length,) = _LENGTH.unpack_from(data, offset)  # or an error code
            offset += _LENGTH.size
            if kind == _FAILED:
                if length != _NO_NODE:
                    raise KazooException(f"error {length}")
                nodes.append(None)
                continue
            end = offset + max(0, length)  # -1: no data
            czxid, mzxid, version, owner, children = _STAT.unpack_from(data, end)
            stat = Stat(version, czxid, mzxid, owner, children)
            nodes.append(Node(bytes(data[offset:end]), stat))
            offset = end + _STAT.size


class _Callback(Protocol):
    func: Callable[..., object]
    args: tuple[object, ...]


class _AtOnce:
    """A queue that calls each entry at once, in the thread that puts it."""

    def put(self, call: Callable[[], object]) -> None:
        call()


class _Handler(SequentialThreadingHandler):
    """Runs callbacks in the reading thread, where the order is right.

    That thread must not block, so every callback only schedules work on the event loop.
    """

    def __init__(self) -> None:
        super().__init__()
        self.completion_queue = _AtOnce()

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def dispatch_callback(self, callback: _Callback) -> None:
        callback.func(*callback.args)


class KazooThread:
    """A kazoo client whose callbacks run on the event loop that created it."""

    def __init__(self, hosts: str, session_timeout_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._stuck_after_s = session_timeout_s / 3  # about the time between two pings
        self._beat: asyncio.TimerHandle | None = None
        self.client = cast(
            Kazoo,
            KazooClient(
                hosts,
                timeout=session_timeout_s,
                handler=_Handler(),
                connection_retry=_RETRY,
                logger=_KAZOO_LOG,
            ),
        )
        self._show_life()
        connection = cast(Any, self.client)._connection  # noqa: SLF001 - kazoo has no public way
        self._send_ping: Callable[[float], None] = connection._send_ping  # noqa: SLF001
        connection._send_ping = self._ping  # noqa: SLF001

    def _show_life(self) -> None:
        """Remember that the event loop runs."""
        self._alive_s = time.monotonic()
        self._beat = self._loop.call_later(self._stuck_after_s / 4, self._show_life)

    def _ping(self, connect_timeout_s: float) -> None:
        """Keep the session alive; runs in kazoo's thread."""
        if time.monotonic() - self._alive_s <= self._stuck_after_s:
            self._send_ping(connect_timeout_s)

    def hand_over(self, call: Callable[..., None], *arguments: object) -> None:
        """Schedule a call on the event loop, from any thread."""
        with suppress(RuntimeError):  # the loop is closed, so nobody waits for this call
            self._loop.call_soon_threadsafe(call, *arguments)

    def listen(self, listener: Callable[[str, int], None]) -> None:
        """Call `listener` with every session state and the session id."""

        def hand_over(state: str) -> None:
            identity = self.client.client_id
            self.hand_over(listener, state, identity[0] if identity else 0)

        self.client.add_listener(hand_over)

    def watch(self, told: Callable[[str], None] | None) -> KazooWatch | None:
        """Return a kazoo watch that calls `told` with the type of the event."""
        return None if told is None else lambda event: self.hand_over(told, event.type)

    def read_many(self, paths: Sequence[str]) -> KazooResult:
        """Read many nodes; the value is a list of nodes, None for those that do not exist."""
        client = cast(Any, self.client)
        result: KazooResult = client.handler.async_result()
        client._call(_MultiRead(paths), result)  # noqa: SLF001 - kazoo has no public way
        return result

    def ask(self, result: KazooResult) -> "asyncio.Future[Any]":
        """Return a future for a result; it raises kazoo's exceptions."""
        future: asyncio.Future[Any] = self._loop.create_future()
        result.rawlink(lambda ready: self.hand_over(_settle, future, ready))
        return future

    async def stop(self) -> None:
        """End the session, if the ensemble is reachable, and stop the thread."""
        if self._beat is not None:
            self._beat.cancel()
        stopped = asyncio.Event()

        def stop() -> None:
            # Do not wait for an ensemble that does not answer: the thread ends by itself.
            with suppress(WriterNotClosedException, OSError):
                self.client.stop()
                self.client.close()
            self.hand_over(stopped.set)

        # Not in the executor of the event loop, whose end would wait for a caller that does not.
        threading.Thread(target=stop, name="kazoo stop", daemon=True).start()
        await stopped.wait()


def _settle(future: "asyncio.Future[Any]", result: KazooResult) -> None:
    if future.done():
        return  # the caller was cancelled or has received ConnectionLoss
    if result.exception is not None:
        future.set_exception(result.exception)
    else:
        future.set_result(result.value)

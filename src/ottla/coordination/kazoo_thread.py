"""kazoo's client, with what it has to say handed to the event loop.

Invariant: everything that kazoo's thread reads from its connection (answers, watches, how the
session fares) comes up on the event loop in the order in which it was read. kazoo on its own calls
back from two threads, and then news may come after the data that it announces.

kazoo comes without types: what is used of it is typed here, and nowhere else is it touched.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol, cast

from kazoo.client import KazooClient
from kazoo.exceptions import WriterNotClosedException
from kazoo.handlers.threading import SequentialThreadingHandler

# Kafka's brokers try again as often; the default of kazoo goes up to a minute.
_RETRY: Final = {"max_tries": -1, "delay": 0.05, "max_delay": 1.0}


class KazooStat(Protocol):
    """kazoo's ZnodeStat."""

    version: int
    czxid: int
    mzxid: int
    ephemeralOwner: int  # noqa: N815  # as kazoo has it
    numChildren: int  # noqa: N815


class KazooEvent(Protocol):
    """kazoo's WatchedEvent."""

    type: str


KazooWatch = Callable[[KazooEvent], None]


class KazooResult(Protocol):
    """An answer that may not have come yet."""

    value: Any  # of the type that the operation has
    exception: Exception | None

    def rawlink(self, callback: Callable[["KazooResult"], None]) -> None:
        """Have a function called when the answer is there."""
        ...


class KazooTransaction(Protocol):
    """Operations that are done together."""

    def create(self, path: str, value: bytes, *, ephemeral: bool, sequence: bool) -> None: ...
    def set_data(self, path: str, value: bytes, version: int) -> None: ...
    def delete(self, path: str, version: int) -> None: ...
    def check(self, path: str, version: int) -> None: ...
    def commit_async(self) -> KazooResult: ...


class Kazoo(Protocol):
    """What is used of kazoo's client. A version of -1 is any; watches may be None."""

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


class _Callback(Protocol):
    func: Callable[..., object]
    args: tuple[object, ...]


class _AtOnce:
    """A queue whose entries are called by whoever puts them there."""

    def put(self, call: Callable[[], object]) -> None:
        call()


class _Handler(SequentialThreadingHandler):
    """Calls back from the thread that reads: there the order is right.

    That thread must not be held up, so all that is called hands over to the event loop.
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
    """A client of kazoo's that calls back on the event loop on which it was made."""

    def __init__(self, hosts: str, session_timeout_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self.client = cast(
            Kazoo,
            KazooClient(
                hosts, timeout=session_timeout_s, handler=_Handler(), connection_retry=_RETRY
            ),
        )

    def hand_over(self, call: Callable[..., None], *arguments: object) -> None:
        """Have something called on the event loop. From any thread."""
        with suppress(RuntimeError):  # the loop has been closed: nobody is there to hear of it
            self._loop.call_soon_threadsafe(call, *arguments)

    def listen(self, listener: Callable[[str, int], None]) -> None:
        """Tell a function of the states of the session, with its id."""

        def hand_over(state: str) -> None:
            identity = self.client.client_id
            self.hand_over(listener, state, identity[0] if identity else 0)

        self.client.add_listener(hand_over)

    def watch(self, told: Callable[[str], None] | None) -> KazooWatch | None:
        """A watch of kazoo's that tells a function the type of the event."""
        return None if told is None else lambda event: self.hand_over(told, event.type)

    def ask(self, result: KazooResult) -> "asyncio.Future[Any]":
        """The answer as a future, with kazoo's exceptions."""
        future: asyncio.Future[Any] = self._loop.create_future()
        result.rawlink(lambda ready: self.hand_over(_settle, future, ready))
        return future

    async def stop(self) -> None:
        """End the session, if the ensemble can be reached, and the thread."""
        await self._loop.run_in_executor(None, self._stop)

    def _stop(self) -> None:
        # An ensemble that does not answer is not waited for without end: the thread dies alone.
        with suppress(WriterNotClosedException, OSError):
            self.client.stop()
            self.client.close()


def _settle(future: "asyncio.Future[Any]", result: KazooResult) -> None:
    if future.done():
        return  # whoever asked has gone, or was told that the connection is lost
    if result.exception is not None:
        future.set_exception(result.exception)
    else:
        future.set_result(result.value)

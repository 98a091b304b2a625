"""Sync clients behind an async interface, so that the async scenarios can test them.

Each call runs in a thread, as in an application. So the event loop of the test, in which the broker
runs, is not blocked.
"""

import asyncio
import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterator,
)
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any, Self

from ottla.client.producer.producer_batch import Written
from ottla.client.sync.consumer import Consumer
from ottla.client.sync.producer import Producer
from ottla.client.sync.send_queue import Ack
from ottla.client.sync.transaction import Transaction


class DrivenConsumer:
    """Replaces `ottla.Consumer` in a scenario."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._ours: Consumer[Any, Any] = Consumer(*args, **kwargs)

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._ours.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        await asyncio.to_thread(self._ours.__exit__, kind, error, trace)

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for one in _stepped(iter(self._ours)):
            yield one

    async def batches(self) -> AsyncIterator[Any]:
        async for one in _stepped(self._ours.batches()):
            yield one

    async def arrow(self, **arguments: Any) -> AsyncIterator[Any]:
        async for one in _stepped(self._ours.arrow(**arguments)):
            yield one

    def subscribe(self, *topics: str, **arguments: Any) -> None:
        """Wrap async callbacks of a scenario in functions that wait for them."""
        loop = asyncio.get_running_loop()
        for name in ("on_assigned", "on_revoked", "on_lost"):
            callback = arguments.get(name)
            if inspect.iscoroutinefunction(callback):
                arguments[name] = _waited(callback, loop)
        self._ours.subscribe(*topics, **arguments)

    async def commit_soon(self, *args: Any, **kwargs: Any) -> None:
        begun: Future[None] = await asyncio.to_thread(self._ours.commit_soon, *args, **kwargs)
        await asyncio.wrap_future(begun)

    @asynccontextmanager
    async def committing(self) -> AsyncGenerator[None]:
        block = self._ours.committing()
        await asyncio.to_thread(block.__enter__)
        try:
            yield
        except BaseException as error:
            await asyncio.to_thread(block.__exit__, type(error), error, error.__traceback__)
            raise
        await asyncio.to_thread(block.__exit__, None, None, None)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._ours, name)
        if not callable(found) or name in AT_ONCE:
            return found

        async def called(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(found, *args, **kwargs)

        return called


class DrivenProducer:
    """Replaces `ottla.Producer` in a scenario."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._ours: Producer[Any, Any] = Producer(*args, **kwargs)
        self.metrics = self._ours.metrics

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._ours.__enter__)
        return self

    async def __aexit__(self, *failure: Any) -> None:
        await asyncio.to_thread(self._ours.__exit__, *failure)

    async def send(self, *args: Any, **kwargs: Any) -> Awaitable[Written]:
        return _Result(await asyncio.to_thread(self._ours.send, *args, **kwargs))

    async def flush(self) -> None:
        await asyncio.to_thread(self._ours.flush)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Transaction]:
        block = self._ours.transaction()
        entered = await asyncio.to_thread(block.__enter__)
        try:
            yield entered
        except BaseException as error:
            await asyncio.to_thread(block.__exit__, type(error), error, error.__traceback__)
            raise
        await asyncio.to_thread(block.__exit__, None, None, None)


class _Result:
    def __init__(self, ack: Ack) -> None:
        self._ack = ack

    def __await__(self) -> Generator[Any, Any, Written]:
        return asyncio.to_thread(self._ack.result).__await__()


AT_ONCE = {
    *("assign", "seek", "seek_to_beginning", "seek_to_end", "seek_to_time"),
    *("pause", "resume", "lag", "metrics"),
}


async def _stepped(iterator: Iterator[Any]) -> AsyncIterator[Any]:
    while True:
        yield await asyncio.to_thread(next, iterator)


def _waited(callback: Callable[..., Any], loop: asyncio.AbstractEventLoop) -> Callable[..., None]:
    def waiting(*args: Any) -> None:
        asyncio.run_coroutine_threadsafe(callback(*args), loop).result()

    return waiting

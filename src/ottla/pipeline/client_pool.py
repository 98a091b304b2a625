"""A pool of the clients that a Python worker of Spark keeps from one task to the next.

Invariant: a client is in the pool or borrowed by one task, never both. The client of a task that
failed or was cancelled is closed. After a fork the child starts with an empty pool. The pool keeps
at most CLIENTS_MAX clients, the most recently used ones.
"""

import gc
import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, Generic, Protocol, TypeVar

CLIENTS_MAX: Final = 4
"""Clients that a worker keeps per kind; queries with different settings need different ones."""


class Closeable(Protocol):
    """A client that can be pooled."""

    def close(self) -> None:
        """Close the connections at once."""


C = TypeVar("C", bound=Closeable)


def _freeze_garbage_collector() -> None:
    """Exclude the objects of imported modules from garbage collection, once per process.

    Spark's workers collect garbage after each task. To traverse all imported modules took 40 ms of
    processor time, ten times as much as a small task.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


class ClientPool(Generic[C]):
    """Clients by their settings, in the order of their last use."""

    def __init__(self, make: Callable[[dict[str, object]], C]) -> None:
        self._make = make
        self._clients: dict[tuple[tuple[str, Any], ...], C] = {}
        self._process = os.getpid()

    @contextmanager
    def borrow(self, settings: Mapping[str, object]) -> Generator[C]:
        """Take a client with these settings from the pool, or make one, for the `with` block."""
        if self._process != os.getpid():  # after a fork: the threads are in the parent
            self._clients, self._process = {}, os.getpid()
        key = tuple(sorted(settings.items()))
        client = self._clients.pop(key, None)
        if client is None:
            client = self._make({**settings})
        try:
            yield client
        except BaseException:
            with suppress(Exception):  # the first error is the one to raise
                client.close()
            raise
        self._keep(key, client)
        _freeze_garbage_collector()  # the first task has imported what tasks need

    def close(self) -> None:
        """Close the clients in the pool; borrowed ones belong to their tasks."""
        while self._clients:
            self._clients.popitem()[1].close()

    def _keep(self, key: tuple[tuple[str, Any], ...], client: C) -> None:
        other = self._clients.pop(key, None)  # from a task that ran at the same time
        if other is not None:
            other.close()
        self._clients[key] = client
        while len(self._clients) > CLIENTS_MAX:
            self._clients.pop(next(iter(self._clients))).close()

"""A shelf: the clients that a Python worker of Spark keeps from one task to the next.

Invariant: a client is on the shelf or lent to one task, never both. One whose task failed or was
given up is closed, and the next task gets a new one. What was put there before a fork stays with
the process that did it. At most KEPT_MAX are kept, those that were used last.
"""

import gc
import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, Generic, Protocol, TypeVar

KEPT_MAX: Final = 4
"""So many clients of a kind a worker keeps, of queries with different settings."""


class Closing(Protocol):
    """What can be kept."""

    def close(self) -> None:
        """End it, at once."""


C = TypeVar("C", bound=Closing)


def _spare() -> None:
    """Hide what lives as long as the process from the collector of garbage, once.

    Spark's workers collect after each task: going through all that was imported took 40 ms of
    processor time, ten times as much as a small task.
    """
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


class ClientPool(Generic[C]):
    """Clients by their settings, the one that was used last at the end."""

    def __init__(self, make: Callable[[dict[str, object]], C]) -> None:
        self._make = make
        self._kept: dict[tuple[tuple[str, Any], ...], C] = {}
        self._process = os.getpid()

    @contextmanager
    def lent(self, settings: Mapping[str, object]) -> Generator[C]:
        """A client with these settings, an old one if there is one, for as long as a task lasts."""
        if self._process != os.getpid():  # their threads are not here, their connections not ours
            self._kept, self._process = {}, os.getpid()
        key = tuple(sorted(settings.items()))
        client = self._kept.pop(key, None)
        if client is None:
            client = self._make({**settings})
        try:
            yield client
        except BaseException:
            with suppress(Exception):  # the task fails by what came first
                client.close()
            raise
        self._keep(key, client)
        _spare()  # now that a task has imported all that tasks need

    def close(self) -> None:
        """End all that are kept; those that are lent are their task's."""
        while self._kept:
            self._kept.popitem()[1].close()

    def _keep(self, key: tuple[tuple[str, Any], ...], client: C) -> None:
        beside = self._kept.pop(key, None)  # two tasks at a time: one client is enough
        if beside is not None:
            beside.close()
        self._kept[key] = client
        while len(self._kept) > KEPT_MAX:
            self._kept.pop(next(iter(self._kept))).close()

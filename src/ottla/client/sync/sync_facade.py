"""The synchronous facade: an asynchronous client in a portal, with blocking methods.

Invariant: after its start the client is used only in the portal's thread. The portal opens on entry
of the `with` block and closes on exit, whatever happens. A generated method has the name,
parameters and types of the asynchronous one.
"""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, NoReturn, ParamSpec, Protocol, Self, TypeVar

from ottla.client.loop_affinity import runs_already
from ottla.client.sync.portal import FORKED, Portal
from ottla.transport.failures import NotRunning

P = ParamSpec("P")
R = TypeVar("R")


class Client(Protocol):
    """The asynchronous client of a facade."""

    async def __aenter__(self) -> object: ...

    async def close(self) -> None:
        """Close at once, also when cancelled."""


A_co = TypeVar("A_co", bound=Client, covariant=True)
T = TypeVar("T", bound=Client)


class SyncFacade(Generic[A_co]):
    """The base of the synchronous `Producer`, `Consumer` and `Admin`."""

    def __init__(self, behind: A_co) -> None:
        self._behind = behind
        self._opened: Portal | None = None

    @property
    def _portal(self) -> Portal:
        if self._opened is None:
            raise NotRunning(
                f"the {_noun(self)} is not running",
                "use `with`, which starts it and closes it at the end",
            )
        return self._opened

    def __enter__(self) -> Self:
        """Open the portal and start the client; on failure nothing is left open."""
        if self._opened is not None:
            raise runs_already(_noun(self)) if self._opened.is_here else NotRunning(FORKED)
        self._opened = portal = Portal(f"ottla {_noun(self)}", self._behind.close)
        try:
            portal.run(self._behind.__aenter__())
        except BaseException:
            self._opened = None
            portal.close()
            raise
        return self

    async def __aenter__(self) -> NoReturn:
        """Raise TypeError: `with` starts the client."""
        name = type(self).__name__
        raise TypeError(
            f"start {name} with `with`, or import {name} from ottla to use `async with`"
        )

    async def __aexit__(self, *exception: object) -> None:
        """Do nothing: `async with` never enters."""

    def _shut(self, ending: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Close the client, if it runs, and the portal.

        It may be repeated after an interrupt: the portal is known until it is closed.
        """
        portal = self._opened
        if portal is None:
            return
        try:
            if portal.is_open:  # otherwise it belongs to another process or is closed
                portal.run(ending())
        finally:
            portal.close()
            self._opened = None


def waits(
    method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncFacade[T], P], R]:
    """Make a blocking method of a coroutine method."""

    @functools.wraps(method)
    def waiting(front: SyncFacade[T], *args: P.args, **kwargs: P.kwargs) -> R:
        return front._portal.run(method(front._behind, *args, **kwargs))  # pyright: ignore[reportPrivateUsage] # noqa: SLF001

    return waiting


def calls(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[SyncFacade[T], P], R]:
    """Make a method that runs a plain method in the portal."""

    @functools.wraps(method)
    def calling(front: SyncFacade[T], *args: P.args, **kwargs: P.kwargs) -> R:
        return front._portal.call(method, front._behind, *args, **kwargs)  # pyright: ignore[reportPrivateUsage] # noqa: SLF001

    return calling


def _noun(front: SyncFacade[Any]) -> str:
    return type(front).__name__.lower()

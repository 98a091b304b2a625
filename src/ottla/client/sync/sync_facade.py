"""A front: an asynchronous client in a portal, and its methods as calls that wait.

Invariant: the client behind is touched in the portal's thread alone, except before it starts. The
portal opens when the `with` is entered and closes when it is left, whatever happens in between.
A method that is made here has the name, the parameters and the types of the one behind.
"""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from ottla.client.loop_affinity import runs_already
from ottla.client.sync.portal import FORKED, Portal
from ottla.transport.failures import NotRunning

P = ParamSpec("P")
R = TypeVar("R")


class Client(Protocol):
    """What is behind a front."""

    async def __aenter__(self) -> object: ...

    async def close(self) -> None:
        """End at once, also when it is cancelled."""


A_co = TypeVar("A_co", bound=Client, covariant=True)
T = TypeVar("T", bound=Client)


class SyncFacade(Generic[A_co]):
    """What `Producer`, `Consumer` and `Admin` have in common."""

    def __init__(self, behind: A_co) -> None:
        self._behind = behind
        self._opened: Portal | None = None

    @property
    def _portal(self) -> Portal:
        if self._opened is None:
            raise NotRunning(
                f"the {_noun(self)} does not run", "use `with`: it runs inside of that"
            )
        return self._opened

    def __enter__(self) -> Self:
        """Open the portal and start the client behind; when that fails nothing is left."""
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

    def _shut(self, ending: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """End the client behind, if it runs, and close the portal.

        Who is interrupted in it may do it again: the portal is known until it is closed.
        """
        portal = self._opened
        if portal is None:
            return
        try:
            if portal.is_open:  # else it is another process that has to end it, or that was done
                portal.run(ending())
        finally:
            portal.close()
            self._opened = None


def waits(
    method: Callable[Concatenate[T, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncFacade[T], P], R]:
    """The method of a front that waits for a coroutine of the client behind."""

    @functools.wraps(method)
    def waiting(front: SyncFacade[T], *args: P.args, **kwargs: P.kwargs) -> R:
        return front._portal.run(method(front._behind, *args, **kwargs))  # pyright: ignore[reportPrivateUsage] # noqa: SLF001

    return waiting


def calls(method: Callable[Concatenate[T, P], R]) -> Callable[Concatenate[SyncFacade[T], P], R]:
    """The method of a front that calls one of the client behind, which does not wait."""

    @functools.wraps(method)
    def calling(front: SyncFacade[T], *args: P.args, **kwargs: P.kwargs) -> R:
        return front._portal.call(method, front._behind, *args, **kwargs)  # pyright: ignore[reportPrivateUsage] # noqa: SLF001

    return calling


def _noun(front: SyncFacade[Any]) -> str:
    return type(front).__name__.lower()

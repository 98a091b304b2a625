"""Results: what became of each of many things that were asked for in one call.

Invariant: everything that was asked for has a value or an error, and an error is never taken for
a value: who looks at one that failed is told so by an exception.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar, overload

from ottla.errors import ErrorCode, RequestError

_NOT_THERE: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class Results(Mapping[K, V]):
    """A mapping to values, in which looking at what failed raises its error.

    `or_raise()` gives all values or raises the first error; `succeeded` and `failed` part them.
    """

    __slots__ = ("_told",)

    def __init__(self, told: Mapping[K, V | RequestError]) -> None:
        self._told = dict(told)

    def __getitem__(self, key: K) -> V:
        told = self._told[key]
        if isinstance(told, RequestError):
            raise told
        return told

    def __iter__(self) -> Iterator[K]:
        return iter(self._told)

    def __len__(self) -> int:
        return len(self._told)

    def __contains__(self, key: object) -> bool:
        return key in self._told

    def __repr__(self) -> str:
        return f"Results({self._told})"

    @property
    def told(self) -> dict[K, V | RequestError]:
        """Values and errors, of all that was asked for."""
        return self._told.copy()

    @property
    def succeeded(self) -> dict[K, V]:
        """What has a value."""
        return {key: told for key, told in self._told.items() if not isinstance(told, RequestError)}

    @property
    def failed(self) -> dict[K, RequestError]:
        """What has an error."""
        return {key: told for key, told in self._told.items() if isinstance(told, RequestError)}

    def or_raise(self) -> dict[K, V]:
        """All values; the first error if there is one."""
        for error in self.failed.values():
            raise error
        return self.succeeded


@dataclass(frozen=True)  # slots and type arguments do not go together before Python 3.12
class Listing(Sequence[T]):
    """What all brokers know together, as a sequence; each look raises if one of them did not tell.

    `found` is what the others told all the same.
    """

    found: tuple[T, ...]
    failed: Mapping[int, RequestError]
    """Brokers that did not tell, and why."""

    @property
    def _all(self) -> tuple[T, ...]:
        for error in self.failed.values():
            raise error
        return self.found

    def __iter__(self) -> Iterator[T]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...

    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        return self._all[index]


def refused(code: int, what: object, message: str | None = None) -> RequestError | None:
    """The error of a code from the wire; None when there is none."""
    if not code:
        return None
    known = ErrorCode.of(code)
    text = message or known.text
    if known is ErrorCode.UNKNOWN_SERVER_ERROR and code != known:
        text = f"error {code} of a later Kafka: {text}"
    return RequestError(known, f"{what}: {text}" if what is not None else text)


def check(code: int, what: object, message: str | None = None) -> None:
    """Raise the error of a code from the wire, if it is one."""
    if (error := refused(code, what, message)) is not None:
        raise error


def settled(told: dict[K, RequestError | None]) -> dict[K, RequestError | None]:
    """What a coordinator said of parts; if it is none, or not yet, that is said of the whole."""
    for error in told.values():
        if error is not None and error.code in _NOT_THERE:
            raise error
    return told


def or_none(number: int) -> int | None:
    """A number from the wire, where -1 stands for none."""
    return None if number < 0 else number

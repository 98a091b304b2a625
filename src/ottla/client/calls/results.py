"""Results per key of one call.

Invariant: every key has a value or an error. Reading the value of a key that failed raises its
error, so an error is never mistaken for a value.
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
    """A mapping from keys to values, in which reading a failed key raises its error.

    `or_raise()` returns all values or raises the first error; `succeeded` and `failed` split them.
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
        """Values and errors of all keys."""
        return self._told.copy()

    @property
    def succeeded(self) -> dict[K, V]:
        """The values of the keys that succeeded."""
        return {key: told for key, told in self._told.items() if not isinstance(told, RequestError)}

    @property
    def failed(self) -> dict[K, RequestError]:
        """The errors of the keys that failed."""
        return {key: told for key, told in self._told.items() if isinstance(told, RequestError)}

    def or_raise(self) -> dict[K, V]:
        """Return all values, or raise the first error."""
        for error in self.failed.values():
            raise error
        return self.succeeded


@dataclass(frozen=True)  # slots and Generic do not work together before Python 3.12
class Listing(Sequence[T]):
    """What all brokers returned, as one sequence; reading raises if a broker failed.

    `found` is what the other brokers returned.
    """

    found: tuple[T, ...]
    failed: Mapping[int, RequestError]
    """Errors by broker id."""

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
    """Return the error for a wire code; None for success."""
    if not code:
        return None
    known = ErrorCode.of(code)
    text = message or known.text
    if known is ErrorCode.UNKNOWN_SERVER_ERROR and code != known:
        text = f"unknown error code {code} of a later Kafka version: {text}"
    return RequestError(known, f"{what}: {text}" if what is not None else text)


def check(code: int, what: object, message: str | None = None) -> None:
    """Raise the error of a wire code, if it is one."""
    if (error := refused(code, what, message)) is not None:
        raise error


def settled(told: dict[K, RequestError | None]) -> dict[K, RequestError | None]:
    """Return a coordinator's result per part; NOT_COORDINATOR and the like fail the whole call."""
    for error in told.values():
        if error is not None and error.code in _NOT_THERE:
            raise error
    return told


def or_none(number: int) -> int | None:
    """Return None for -1."""
    return None if number < 0 else number

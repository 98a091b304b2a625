"""Counts the error codes in a response, found through the message tables.

Invariant: every non-zero `error_code` field of a response is counted once, at any depth. Structures
that cannot contain one are skipped.
"""

from collections.abc import Iterator
from typing import Final

from ottla.protocol.schema import Struct


class ResponseErrors:
    """Finds the error codes in responses; the layout of each message class is analysed once."""

    def __init__(self) -> None:
        self._plans: dict[type[Struct], tuple[bool, tuple[str, ...]]] = {}

    def of(self, answer: Struct) -> Iterator[int]:
        """Return the error codes of a response, without NONE."""
        kind = type(answer)
        plan = self._plans.get(kind)
        if plan is None:
            plan = self._plans[kind] = _plan(kind)
        coded, parts = plan
        if coded and (code := getattr(answer, _CODE)):
            yield code
        for part in parts:
            value: object = getattr(answer, part)
            if isinstance(value, Struct):
                yield from self.of(value)
            elif isinstance(value, list | tuple):
                for one in value:  # pyright: ignore[reportUnknownVariableType]
                    assert isinstance(one, Struct)
                    yield from self.of(one)


_CODE: Final = "error_code"


def _plan(kind: type[Struct]) -> tuple[bool, tuple[str, ...]]:
    """Return whether a class has an error code, and which fields have structures with one."""
    parts = tuple(
        field.name for field in kind.FIELDS if field.struct is not None and any(_plan(field.struct))
    )
    return any(field.name == _CODE for field in kind.FIELDS), parts

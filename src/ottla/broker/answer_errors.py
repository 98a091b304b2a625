"""The errors that an answer tells of, found by the tables of the messages.

Invariant: every field `error_code` of an answer counts once, wherever it stands, unless it is 0;
parts that cannot have one are not looked at.
"""

from collections.abc import Iterator
from typing import Final

from ottla.protocol.schema import Struct


class AnswerErrors:
    """Looks for errors in answers; what is known of a class is found out once."""

    def __init__(self) -> None:
        self._plans: dict[type[Struct], tuple[bool, tuple[str, ...]]] = {}

    def of(self, answer: Struct) -> Iterator[int]:
        """The codes, without those that say that all is well."""
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
    """Whether a class has a code, and which of its fields have parts with one."""
    parts = tuple(
        field.name for field in kind.FIELDS if field.struct is not None and any(_plan(field.struct))
    )
    return any(field.name == _CODE for field in kind.FIELDS), parts

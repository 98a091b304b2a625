"""The naming policy for new topics, ottla.topic.name.policy.

Invariant: the check takes time linear in the length of the name and of the templates. Without
templates every legal name is allowed; internal topics always are.

A template is text with placeholders in braces. `{env:dev|prod}` matches one of the words. `{team}`
matches any word of letters, digits, `-` and `_`, so the dots of a template separate its parts.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.cluster.image import INTERNAL_TOPICS
from ottla.errors import ErrorCode, RequestError

_WORD_CHARACTERS: Final = frozenset(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
)

Places = frozenset[int]
"""Numbers of characters of the name that the pieces so far can match."""


class _Words(NamedTuple):
    """Matches one of these words."""

    words: tuple[str, ...]

    def after(self, name: str, before: Places) -> Places:
        return frozenset(
            at + len(word) for at in before for word in self.words if name.startswith(word, at)
        )


class _AnyWord(NamedTuple):
    """Matches one or more word characters."""

    def after(self, name: str, before: Places) -> Places:
        after: set[int] = set()
        for at, character in enumerate(name):
            if (at in before or at in after) and character in _WORD_CHARACTERS:
                after.add(at + 1)
        return frozenset(after)


Piece = _Words | _AnyWord


def pieces(template: str) -> tuple[Piece, ...]:
    """Split a template into pieces; the setting has checked that it is well-formed."""
    found: list[Piece] = []
    rest = template
    while rest:
        text, brace, rest = rest.partition("{")
        if text:
            found.append(_Words((text,)))
        if brace:
            part, _, rest = rest.partition("}")
            _, colon, words = part.partition(":")
            found.append(_Words(tuple(words.split("|"))) if colon else _AnyWord())
    return tuple(found)


def fits(name: str, template: str) -> bool:
    """Whether a name matches a template."""
    places = Places({0})
    for piece in pieces(template):
        places = piece.after(name, places)
    return len(name) in places


def check_policy(name: str, templates: Iterable[str]) -> None:
    """Raise POLICY_VIOLATION with the templates if the name of a new topic matches none of them."""
    allowed = tuple(templates)
    if not allowed or name in INTERNAL_TOPICS or any(fits(name, one) for one in allowed):
        return
    raise RequestError(
        ErrorCode.POLICY_VIOLATION,
        f"Topic name '{name}' does not match ottla.topic.name.policy: {', '.join(allowed)}",
    )

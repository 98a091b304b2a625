"""Which names new topics may have, where the cluster's owners say so: ottla.topic.name.policy.

Invariant: no name takes long to decide about, whatever the templates: the time is linear in the
characters of both. Without templates every legal name passes, and an internal topic always does.

A template is text with parts in braces. `{env:dev|prod}` is one of the words; `{team}` is any
word of letters, digits, `-` and `_`, so that the dots of a template divide its parts.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.cluster.image import INTERNAL_TOPICS
from ottla.errors import ErrorCode, RequestError

_WORD_CHARACTERS: Final = frozenset(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
)

Places = frozenset[int]
"""How many characters of a name may be used up so far."""


class _Words(NamedTuple):
    """One of these comes next."""

    words: tuple[str, ...]

    def after(self, name: str, before: Places) -> Places:
        return frozenset(
            at + len(word) for at in before for word in self.words if name.startswith(word, at)
        )


class _AnyWord(NamedTuple):
    """At least one character of a word comes next."""

    def after(self, name: str, before: Places) -> Places:
        after: set[int] = set()
        for at, character in enumerate(name):
            if (at in before or at in after) and character in _WORD_CHARACTERS:
                after.add(at + 1)
        return frozenset(after)


Piece = _Words | _AnyWord


def pieces(template: str) -> tuple[Piece, ...]:
    """A template taken apart; that it is well-formed its setting has made sure of."""
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
    """Whether a name has the form of a template."""
    places = Places({0})
    for piece in pieces(template):
        places = piece.after(name, places)
    return len(name) in places


def check_policy(name: str, templates: Iterable[str]) -> None:
    """Refuse the name of a new topic that has none of the forms; POLICY_VIOLATION tells them."""
    allowed = tuple(templates)
    if not allowed or name in INTERNAL_TOPICS or any(fits(name, one) for one in allowed):
        return
    raise RequestError(
        ErrorCode.POLICY_VIOLATION,
        f"Topic name '{name}' does not fit ottla.topic.name.policy: {', '.join(allowed)}",
    )

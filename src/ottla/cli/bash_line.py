"""A line that bash is to complete: its words as a command gets them, and what bash puts in.

Invariant: a word is what the shell would make of it, with `:` and `=` inside it. Bash breaks words
at those (COMP_WORDBREAKS) and replaces what is behind the last break alone, so what is offered
begins there, and is quoted as the word is.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_SPECIAL: Final = re.compile(r"([^\w@%+=:,./-])")


class BashLine(NamedTuple):
    """The words up to the cursor, of which the last is to be completed."""

    words: Sequence[str]
    kept: int  # how much of the last word bash leaves as it is
    quote: str  # the one that is open

    def offered(self, value: str) -> str | None:
        """What bash is to put behind what it keeps, so that a value is there; None: it cannot."""
        word = self.words[-1]
        if word.startswith("-") and "=" in word:  # values are told without their option
            value = word[: word.index("=") + 1] + value
        if not value.startswith(word[: self.kept]):
            return None
        rest = value[self.kept :]
        return rest if self.quote else _SPECIAL.sub(r"\\\1", rest)


def bash_line(text: str, breaks: str) -> BashLine:
    """Read a line up to the cursor, where bash breaks words at these characters."""
    words: list[str] = []
    word: str | None = None
    quote, kept, opened = "", 0, 0
    rest = iter(text)
    for char in rest:
        if char == quote:
            quote = ""
        elif char == "\\" and quote != "'":
            word = (word or "") + next(rest, "")
        elif quote:
            word = (word or "") + char
        elif char in "'\"":
            word = word or ""
            quote, opened = char, len(word)
        elif not char.isspace():
            word = (word or "") + char
            kept = len(word) if char in breaks else kept
        elif word is not None:
            words.append(word)
            word, kept = None, 0
    return BashLine([*words, word or ""], opened if quote else kept, quote)

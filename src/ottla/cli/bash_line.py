"""Parses the line that bash is completing, and formats completions for it.

A word is what the shell would make of it, including `:` and `=`. Bash breaks words at those
characters (COMP_WORDBREAKS) and replaces only the part after the last break. A completion therefore
starts there, quoted like the word.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_SPECIAL: Final = re.compile(r"([^\w@%+=:,./-])")


class BashLine(NamedTuple):
    """The words up to the cursor; the last one is to be completed."""

    words: Sequence[str]
    kept: int  # length of the part of the last word that bash keeps
    quote: str  # the open quote

    def offered(self, value: str) -> str | None:
        """Return the text that bash must insert for a value; None if that is not possible."""
        word = self.words[-1]
        if word.startswith("-") and "=" in word:  # values are given without their option
            value = word[: word.index("=") + 1] + value
        if not value.startswith(word[: self.kept]):
            return None
        rest = value[self.kept :]
        return rest if self.quote else _SPECIAL.sub(r"\\\1", rest)


def bash_line(text: str, breaks: str) -> BashLine:
    """Parse a line up to the cursor; bash breaks words at these characters."""
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

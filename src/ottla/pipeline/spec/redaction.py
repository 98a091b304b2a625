"""Hides the values of variables in texts: errors and logs of Spark, of Python steps and of brokers.

Invariant: a hidden text has no value of a variable, neither as it is nor as Python, JSON or a URL
quotes it. Values of fewer than CHARACTERS_MIN characters stay: they are in too many words.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote

CHARACTERS_MIN: Final = 4


class Redaction:
    """Replaces the values of variables by the variables."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        """`values` has the variable of each value, as it is written."""
        found: dict[str, str] = {}
        for value, written in (values or {}).items():
            for form in _forms(value):
                if len(form) >= CHARACTERS_MIN:
                    found.setdefault(form, written)
        self._written = found
        longest_first = sorted(found, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def __bool__(self) -> bool:
        """Whether there is a value to hide."""
        return bool(self._written)

    def hide(self, text: str) -> str:
        """Return a text with variables in place of their values."""
        if not self._written:
            return text
        return self._pattern.sub(lambda found: self._written[found[0]], text)


def _forms(value: str) -> Iterator[str]:
    """Yield a value as texts have it; a log has the lines of a long value one by one."""
    lines: Iterable[str] = value.splitlines() if "\n" in value else ()
    for part in (value, *lines):
        yield part
        yield repr(part)[1:-1]
        yield json.dumps(part)[1:-1]
        yield quote(part, safe="")


NOTHING_HIDDEN: Final = Redaction()

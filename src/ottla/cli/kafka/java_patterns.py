r"""Translates Java's regular expressions for names that Kafka allows.

Invariant: an expression that Java accepts has the same meaning here, or is rejected. Names are
ASCII, so `\d`, `\w` and classes such as `\p{Lower}` and `\p{L}` match only ASCII.
"""

import re
from collections.abc import Mapping
from typing import Final

from ottla.errors import OttlaError

_LOWER, _UPPER, _DIGIT = "a-z", "A-Z", "0-9"
_ALPHA: Final = _LOWER + _UPPER
_PUNCTUATION: Final = r"!-/:-@\[-`{-~"
_SPACE: Final = r" \t\n\x0b\f\r"

_CLASSES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("Lower", "Ll", "IsLl", "IsLowercase", "javaLowerCase"), _LOWER),
    **dict.fromkeys(("Upper", "Lu", "IsLu", "IsUppercase", "javaUpperCase"), _UPPER),
    **dict.fromkeys(("Alpha", "L", "IsL", "IsAlphabetic", "IsLetter"), _ALPHA),
    **dict.fromkeys(("Digit", "N", "IsN", "Nd", "IsNd", "IsDigit"), _DIGIT),
    **dict.fromkeys(("Alnum", "LD"), _ALPHA + _DIGIT),
    "ASCII": r"\x00-\x7f",
    "Punct": _PUNCTUATION,
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Cntrl": r"\x00-\x1f\x7f",
    "XDigit": "0-9a-fA-F",
    **dict.fromkeys(("Space", "IsWhite_Space"), _SPACE),
}
_ESCAPES: Final[Mapping[str, str]] = {
    "z": r"\Z",
    "Z": r"(?=\n?\Z)",
    "e": r"\x1b",
    "R": r"(?:\r\n|[\n\x0b\f\r])",
}
_NOT_HERE: Final = frozenset("GHNX")
_ESCAPE: Final = re.compile(r"\\(?:([pP])(?:\{(\w+)\}|(\w))|k<(\w+)>|Q(.*?)(?:\\E|\Z)|(.))", re.S)


class BadPattern(OttlaError):
    """An expression that is invalid or not supported."""


def compiled(java: str) -> re.Pattern[str]:
    """Compile a Java expression; raises BadPattern with Java's message if it is invalid."""
    try:
        return re.compile(translated(java), re.ASCII)
    except (re.error, OverflowError, RecursionError):
        raise BadPattern(f"{java} is an invalid regex.") from None


def translated(java: str) -> str:
    """Translate a Java expression to Python's syntax."""
    found: list[str] = []
    at, in_class = 0, False
    while at < len(java):
        if java[at] == "\\":
            escape = _ESCAPE.match(java, at)
            if escape is None:  # a backslash at the end
                raise BadPattern(f"{java} is an invalid regex.")
            found.append(_escape(java, escape, in_class=in_class))
            at = escape.end()
            continue
        one = java[at]
        if in_class and (one == "[" or java.startswith("&&", at)):
            raise BadPattern(f"{java}: nested character classes are not supported")
        if one in "[]":
            in_class = one == "["
            if java.startswith(("[]", "[^]"), at):  # the first ] is a literal
                end = java.index("]", at) + 1
                found.append(java[at:end])
                at = end
                continue
        if not in_class and java.startswith("(?<", at) and java[at + 3 : at + 4] not in ("=", "!"):
            found.append("(?P<")
            at += 3
            continue
        found.append(one)
        at += 1
    return "".join(found)


def _escape(java: str, found: re.Match[str], *, in_class: bool) -> str:
    kind, name, letter, group, quoted, other = found.groups()
    if kind is not None:
        inside = _CLASSES.get(name or letter)
        if inside is None:
            raise BadPattern(f"{java}: character class {found[0]} is not supported")
        if not in_class:
            return f"[{'^' if kind == 'P' else ''}{inside}]"
        if kind == "P":
            raise BadPattern(f"{java}: {found[0]} within a character class is not supported")
        return inside
    if group is not None:
        return f"(?P={group})"
    if quoted is not None:
        return re.escape(quoted)
    if other in _NOT_HERE:
        raise BadPattern(f"{java}: {found[0]} is not supported")
    if other == "h":
        return r" \t" if in_class else r"[ \t]"
    return found[0] if in_class else _ESCAPES.get(other, found[0])

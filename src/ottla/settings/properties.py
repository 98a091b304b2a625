"""Reading the text of a Java properties file, as java.util.Properties does.

Invariant: every entry knows its line, the last of several entries with one key counts, and a
text that Java would refuse yields a problem with its line and no entry. The caller opens the
file and decodes it; here is only text.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.settings.invalid_settings import InvalidSettings, Origin, Problem

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX: Final = frozenset("0123456789abcdefABCDEF")

OVERRIDE: Final = Origin("--override")


class Entry(NamedTuple):
    """One setting as somebody gave it: text from a file, any object from Python."""

    name: str
    value: object
    origin: Origin | None = None

    def __repr__(self) -> str:
        # The value may be a password.
        return f"Entry({self.name}, {self.origin})"


class Properties(NamedTuple):
    """What a text held: its entries in order, what is wrong with it, what is odd about it."""

    entries: tuple[Entry, ...] = ()
    problems: tuple[Problem, ...] = ()
    notices: tuple[Problem, ...] = ()


def read_properties(text: str, file: str) -> Properties:
    """The entries of a text; `file` is the name to print in messages."""
    entries: dict[str, Entry] = {}
    problems: list[Problem] = []
    notices: list[Problem] = []
    for line, logical_line in _logical_lines(text.removeprefix("\ufeff")):
        origin = Origin(file, line)
        raw_key, raw_value = _split(logical_line)
        try:
            key = _unescape(raw_key)
        except ValueError as error:
            problems.append(Problem("", str(error), origin))
            continue
        try:
            value = _unescape(raw_value)
        except ValueError as error:
            problems.append(Problem(key, str(error), origin))
            continue
        if earlier := entries.pop(key, None):
            assert earlier.origin is not None
            lines = f"lines {earlier.origin.line} and {line}"
            notices.append(Problem(key, f"set twice, in {lines}; the last one counts", origin))
        entries[key] = Entry(key, value, origin)
    return Properties(tuple(entries.values()), tuple(problems), tuple(notices))


def read_override(text: str) -> Entry:
    """The entry of `--override key=value`. Raises InvalidSettings, without the text: who knows."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise InvalidSettings([Problem("", "found no key=value", OVERRIDE)])
    return Entry(key.strip(), value, OVERRIDE)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines joined where one ends in an odd number of backslashes, each with its first number."""
    joined = ""
    first = 0
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = line.lstrip(_BLANKS)
        # As in Java, nothing before it makes a line the first, even after a lone backslash.
        if not joined:
            if not line or line[0] in "#!":
                continue
            first = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
        else:
            yield first, joined + line
            joined = ""
    if joined:
        yield first, joined


def _split(line: str) -> tuple[str, str]:
    """Key and value, still escaped: up to the first separator, and from behind it."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return line[:end], rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    characters: list[str] = []
    at = 0
    while at < len(text):
        character = text[at]
        at += 1
        if character != "\\":
            characters.append(character)
            continue
        escaped = text[at : at + 1]
        at += 1
        if escaped == "u":
            digits = text[at : at + 4]
            if len(digits) < 4 or not _HEX.issuperset(digits):
                raise ValueError(r"malformed \uXXXX: four hexadecimal digits have to follow")
            characters.append(chr(int(digits, 16)))
            at += 4
        else:
            characters.append(_ESCAPES.get(escaped, escaped))
    return _paired("".join(characters))


def _paired(text: str) -> str:
    """Java writes a character beyond U+FFFF as two escapes, which Python has to join."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise ValueError(r"malformed \uXXXX: half of a surrogate pair") from None

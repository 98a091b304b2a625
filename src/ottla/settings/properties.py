"""Parser of Java properties files, compatible with java.util.Properties.

Invariant: every entry has its line number, and the last entry of a key applies. Text that Java
rejects yields a problem with its line and no entry. The caller reads and decodes the file.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.settings.invalid_settings import InvalidSettings, Origin, Problem

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_HEX: Final = frozenset("0123456789abcdefABCDEF")

OVERRIDE: Final = Origin("--override")


class Entry(NamedTuple):
    """A setting before parsing: text from a file, or any object from Python."""

    name: str
    value: object
    origin: Origin | None = None

    def __repr__(self) -> str:
        # Without the value, which can be a password.
        return f"Entry({self.name}, {self.origin})"


class Properties(NamedTuple):
    """The entries of a file in order, its errors and its warnings."""

    entries: tuple[Entry, ...] = ()
    problems: tuple[Problem, ...] = ()
    notices: tuple[Problem, ...] = ()


def read_properties(text: str, file: str) -> Properties:
    """Parse the text of a properties file; `file` is its name in messages."""
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
            notices.append(Problem(key, f"set twice, in {lines}; the last value applies", origin))
        entries[key] = Entry(key, value, origin)
    return Properties(tuple(entries.values()), tuple(problems), tuple(notices))


def read_override(text: str) -> Entry:
    """Parse `--override key=value`. Raises InvalidSettings, which does not contain the text."""
    key, separator, value = text.partition("=")
    if not separator or not key.strip():
        raise InvalidSettings([Problem("", "expected key=value", OVERRIDE)])
    return Entry(key.strip(), value, OVERRIDE)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield logical lines with the number of their first line; a backslash continues a line."""
    joined = ""
    first = 0
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = line.lstrip(_BLANKS)
        # As in Java, a line after an empty continuation starts a new logical line.
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
    """Split a line at the first separator; key and value are still escaped."""
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
                raise ValueError(r"malformed \uXXXX: expected four hexadecimal digits")
            characters.append(chr(int(digits, 16)))
            at += 4
        else:
            characters.append(_ESCAPES.get(escaped, escaped))
    return _paired("".join(characters))


def _paired(text: str) -> str:
    """Join surrogate pairs, which Java uses for characters above U+FFFF."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise ValueError(r"malformed \uXXXX: unpaired surrogate") from None

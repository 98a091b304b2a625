"""Parser of sasl.jaas.config: a Java login module and its options.

Invariant: no class is loaded, and no error message contains a value of the text.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";
"""

import re
from collections.abc import Mapping
from typing import Final

from ottla.settings.config_types import BadValue

FORM: Final = '<login module> required username="..." password="...";'

_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_SKIPPED: Final = re.compile(r"(?:\s+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_LEXEME: Final = re.compile(
    r""""(?P<double>(?:[^"\\\n]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.)*)'|[=;]|[^\s=;"']+"""
)
_ESCAPE: Final = re.compile(r"\\(?:(?P<octal>[0-3]?[0-7]{1,2})|(?P<other>.))")
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


def read_jaas(text: str) -> Mapping[str, str]:
    """Return the options of the login module. Raises BadValue."""
    lexemes = _lexemes(text)
    if len(lexemes) < 3 or lexemes[1].lower() not in _FLAGS:
        raise BadValue("does not begin with a login module and `required`")
    if lexemes[-1] != ";":
        raise BadValue("`;` is missing at the end")
    options: dict[str, str] = {}
    between = lexemes[2:-1]
    if ";" in between:
        raise BadValue("more than one login module")
    while between:
        if len(between) < 3 or between[1] != "=" or between[2] == "=":
            raise BadValue("an option is not name=value")
        options[between[0]] = _plain(between[2])
        del between[:3]
    return options


def _lexemes(text: str) -> list[str]:
    """Split the text into words, signs and quoted strings, with their quotes."""
    found: list[str] = []
    position = _end(_SKIPPED.match(text))
    while position < len(text):
        lexeme = _LEXEME.match(text, position)
        if lexeme is None:
            raise BadValue("unclosed quote")
        found.append(lexeme[0])
        position = _end(_SKIPPED.match(text, lexeme.end()))
    return found


def _end(found: "re.Match[str] | None") -> int:
    assert found is not None, "the pattern also matches empty text"
    return found.end()


def _plain(lexeme: str) -> str:
    """Return a word, or the content of a quoted string with Java's escapes resolved."""
    if lexeme[0] not in "\"'":
        return lexeme
    return _ESCAPE.sub(_character, lexeme[1:-1])


def _character(escape: "re.Match[str]") -> str:
    if escape["octal"]:
        return chr(int(escape["octal"], 8))
    return _ESCAPED.get(escape["other"], escape["other"])

"""Parses the columns of a source, in Spark's DDL: `device STRING, at TIMESTAMP NOT NULL`.

Spark parses the text again when the pipeline starts. This parser knows the same types, so that a
mistake is reported without Java, with the column at which it is.
"""

import re
from typing import Final, NamedTuple

from ottla.pipeline.spec.problems import did_you_mean, shown

# fmt: off
TYPES: Final = frozenset({
    "BOOLEAN", "TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG", "FLOAT",
    "REAL", "DOUBLE", "DECIMAL", "DEC", "NUMERIC", "STRING", "BINARY", "DATE", "TIME", "TIMESTAMP",
    "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "VARIANT", "VOID", "INTERVAL", "ARRAY", "MAP", "STRUCT",
})
# fmt: on
NESTED: Final = frozenset({"ARRAY", "MAP", "STRUCT", "VARIANT"})
"""The types that a value of CSV cannot have."""

_SAME: Final = {
    "BYTE": "TINYINT",
    "SHORT": "SMALLINT",
    "INTEGER": "INT",
    "LONG": "BIGINT",
    "REAL": "FLOAT",
    "DEC": "DECIMAL",
    "NUMERIC": "DECIMAL",
    "TIMESTAMP_LTZ": "TIMESTAMP",
}
_INTERVAL_UNITS: Final = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
_FOREIGN: Final = {
    "VARCHAR": "STRING",
    "CHAR": "STRING",
    "TEXT": "STRING",
    "STR": "STRING",
    "UUID": "STRING",
    "JSON": "STRING",
    "BOOL": "BOOLEAN",
    "INT64": "LONG",
    "INT32": "INT",
    "FLOAT64": "DOUBLE",
    "DATETIME": "TIMESTAMP",
    "BYTES": "BINARY",
    "NUMBER": "DOUBLE",
}
"""Types of other systems, with the type that Spark's parsers have instead."""

_TOKEN: Final = re.compile(
    r"(?P<space>\s+)|(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<quoted>`(?:[^`]|``)*`)"
    r"|(?P<number>-?[0-9]+)|(?P<text>'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\")|(?P<mark>[<>(),:])"
)


class Column(NamedTuple):
    """A column: its name, its type without parameters, and whether it is NOT NULL."""

    name: str
    type: str
    is_required: bool = False


class SchemaSyntaxError(ValueError):
    """A text that is not a schema; `offset` is the character of the mistake."""

    def __init__(self, what: str, offset: int) -> None:
        super().__init__(what)
        self.offset = offset


class _Token(NamedTuple):
    kind: str
    text: str
    offset: int


def parse_columns(text: str) -> tuple[Column, ...]:
    """Parse the columns of a schema; raises SchemaSyntaxError."""
    parser = _Parser(text)
    found: dict[str, Column] = {}
    while True:
        at = parser.token.offset
        column = parser.column()
        if column.name.casefold() in found:
            raise SchemaSyntaxError(f"column {shown(column.name)} is there twice", at)
        found[column.name.casefold()] = column
        if parser.token.kind == "end":
            return tuple(found.values())
        parser.expect(",", "a comma between columns")


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = iter([*_tokens(text), _Token("end", "", len(text))])
        self.token = next(self._tokens)

    def column(self) -> Column:
        name = self._name()
        if self.token.text == ":":
            self._next()
        kind = self._type()
        return Column(name, kind, is_required=self._constraints())

    def _name(self) -> str:
        token = self.token
        if token.kind not in ("word", "quoted"):
            raise self._wrong("a column name")
        self._next()
        return token.text[1:-1].replace("``", "`") if token.kind == "quoted" else token.text

    def _type(self) -> str:
        token = self.token
        if token.kind != "word":
            raise self._wrong("a type such as STRING, LONG, DOUBLE or TIMESTAMP")
        name = token.text.upper()
        if name not in TYPES:
            if name in _FOREIGN:
                hint = f"; use {_FOREIGN[name]}"
            else:
                hint = did_you_mean(name, TYPES) or "; use a type such as STRING, LONG or DOUBLE"
            raise SchemaSyntaxError(f"unknown type {shown(token.text)}{hint}", token.offset)
        self._next()
        match name:
            case "ARRAY":
                self._parameters_in_brackets(1, "ARRAY<STRING>")
            case "MAP":
                self._parameters_in_brackets(2, "MAP<STRING, DOUBLE>")
            case "STRUCT":
                self._struct()
            case "INTERVAL":
                self._interval()
            case "DECIMAL" | "DEC" | "NUMERIC":
                self._numbers(2)
            case "TIME":
                self._numbers(1)
            case "STRING":
                if self._is_word("COLLATE"):
                    self._next()
                    self._name()
            case _:
                pass
        return _SAME.get(name, name)

    def _parameters_in_brackets(self, count: int, example: str) -> None:
        self.expect("<", f"<, as in {example}")
        for number in range(count):
            if number:
                self.expect(",", f"a comma, as in {example}")
            self._type()
        self.expect(">", f">, as in {example}")

    def _struct(self) -> None:
        self.expect("<", "<, as in STRUCT<a: INT, b: STRING>")
        if self.token.text == ">":
            self._next()
            return
        while True:
            self.column()
            if self.token.text != ",":
                break
            self._next()
        self.expect(">", "> at the end of STRUCT<…>")

    def _interval(self) -> None:
        for _ in range(2):
            if self.token.text.upper() not in _INTERVAL_UNITS:
                raise self._wrong("a unit, as in INTERVAL DAY TO SECOND")
            self._next()
            if not self._is_word("TO"):
                return
            self._next()

    def _numbers(self, count_max: int) -> None:
        if not self._is_mark("("):
            return
        self._next()
        for number in range(count_max):
            if self.token.kind != "number":
                raise self._wrong("a number")
            self._next()
            if not self._is_mark(",") or number + 1 == count_max:
                break
            self._next()
        self.expect(")", "a closing parenthesis")

    def _constraints(self) -> bool:
        """Parse what follows a type; returns whether it is NOT NULL."""
        is_required = False
        while self._is_kind("word"):
            if self._is_word("NOT"):
                self._next()
                if not self._is_word("NULL"):
                    raise self._wrong("NULL after NOT")
                self._next()
                is_required = True
            elif self._is_word("COMMENT"):
                self._next()
                if not self._is_kind("text"):
                    raise self._wrong("a text in quotes after COMMENT")
                self._next()
            else:
                raise self._wrong("a comma, NOT NULL or COMMENT after the type")
        return is_required

    def _is_kind(self, kind: str) -> bool:
        return self.token.kind == kind

    def _is_mark(self, mark: str) -> bool:
        return self.token.kind == "mark" and self.token.text == mark

    def _is_word(self, word: str) -> bool:
        return self.token.kind == "word" and self.token.text.upper() == word

    def expect(self, mark: str, what: str) -> None:
        """Go on after a mark; raises SchemaSyntaxError if another token is there."""
        if not self._is_mark(mark):
            raise self._wrong(what)
        self._next()

    def _next(self) -> None:
        self.token = next(self._tokens)

    def _wrong(self, what: str) -> SchemaSyntaxError:
        found = "the end" if self.token.kind == "end" else shown(self.token.text)
        return SchemaSyntaxError(f"expected {what}, found {found}", self.token.offset)


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise SchemaSyntaxError(f"unexpected character {shown(text[at])}", at)
        kind = match.lastgroup or ""
        if kind != "space":
            found.append(_Token(kind, match[0], at))
        at = match.end()
    return found

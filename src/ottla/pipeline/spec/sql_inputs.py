"""Finds the tables that a SQL query reads, and what a check of the graph needs, without Spark.

This is not a SQL parser. It knows where a table name can be: after FROM, JOIN and TABLE, and after
a comma in a list of tables. Spark parses the query when the pipeline is validated with Java, and
its result has precedence.

Invariant: names of common table expressions, functions and other catalogs are not inputs.
"""

import re
from typing import Final, NamedTuple

from ottla.pipeline.spec.problems import shown

_TOKEN: Final = re.compile(
    r"(?P<space>\s+|--[^\n]*|/\*.*?\*/)"
    r"|(?P<text>[rR]'[^']*'|[rR]\"[^\"]*\"|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<word>[^\W\d]\w*)|(?P<name>`(?:[^`]|``)*`)"
    r"|(?P<number>\d\w*(?:\.\d+)?)|(?P<mark>\|>|.)",
    re.DOTALL,
)
_CLOSING: Final = {")": "(", "]": "["}
_FUNCTIONS_WITH_FROM: Final = frozenset(
    {"EXTRACT", "TRIM", "SUBSTRING", "SUBSTR", "OVERLAY", "POSITION"}
)
_FIRST_WORDS: Final = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE", "("})
# fmt: off
_AFTER_TABLES: Final = frozenset({
    "WHERE", "GROUP", "HAVING", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET",
    "WINDOW", "UNION", "INTERSECT", "EXCEPT", "MINUS", "SELECT", "WITH", "QUALIFY", "LATERAL",
    "PIVOT", "UNPIVOT", "ON", "USING", "|>",
})
# fmt: on


class SqlError(ValueError):
    """A text that cannot be SQL; `offset` is the character of the mistake."""

    def __init__(self, what: str, offset: int) -> None:
        super().__init__(what)
        self.offset = offset


class SqlInputs(NamedTuple):
    """What a query reads."""

    names: tuple[str, ...]
    """The tables, as they are written, each once."""
    offsets: tuple[int, ...]
    """The character at which each of them is."""
    combines: str | None
    """GROUP BY, JOIN or the like, if a row of the result is not made of one row of an input."""


class Token(NamedTuple):
    """A word, a mark, a name in backquotes, a text or a number."""

    kind: str
    text: str
    offset: int

    @property
    def upper(self) -> str:
        """The keyword, in upper case; empty for texts and quoted names."""
        return self.text.upper() if self.kind in ("word", "mark") else ""

    @property
    def name(self) -> str:
        """The name, without backquotes."""
        return self.text[1:-1].replace("``", "`") if self.kind == "name" else self.text


def tokens(text: str) -> list[Token]:
    """Split SQL into tokens without space and comments; raises SqlError if a pair is not closed."""
    found: list[Token] = []
    opened: list[Token] = []
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        if kind == "space":
            continue
        token = Token(kind, match[0], match.start())
        if token.text in ("'", '"', "`"):
            raise SqlError(f"the quote {token.text} has no end", token.offset)
        if token.text == "/" and text.startswith("/*", token.offset):
            raise SqlError("the comment /* has no end", token.offset)
        if kind == "mark" and token.text in "([":
            opened.append(token)
        if kind == "mark" and token.text in _CLOSING:
            before = opened.pop().text if opened else ""
            if before != _CLOSING[token.text]:
                raise SqlError(f"{token.text} closes nothing", token.offset)
        found.append(token)
    if opened:
        raise SqlError(f"{opened[-1].text} is not closed", opened[-1].offset)
    return found


def check_condition(text: str) -> None:
    """Check what can be checked of a SQL condition; raises SqlError."""
    found = tokens(text)
    if not found:
        raise SqlError("the condition is empty", 0)
    _check_single(found)
    if found[0].upper in ("SELECT", "WITH"):
        raise SqlError("expected a condition on a row, not a query", 0)


def sql_inputs(text: str) -> SqlInputs:
    """Return the tables that a query reads; raises SqlError if it cannot be a query."""
    found = tokens(text)
    if not found:
        raise SqlError("the query is empty", 0)
    _check_single(found)
    found = [one for one in found if one.text != ";"]
    if found[0].upper not in _FIRST_WORDS:
        what = f"a step is a query and begins with SELECT or WITH, not with {shown(found[0].text)}"
        raise SqlError(what, found[0].offset)
    common = _common_tables(found)
    names: dict[str, tuple[str, int]] = {}
    for token in _tables(found):
        folded = token.name.casefold()
        # In its own definition, the name of a common table expression is that of a table.
        if folded not in common or token.offset in common[folded]:
            names.setdefault(folded, (token.name, token.offset))
    return SqlInputs(
        tuple(name for name, _ in names.values()),
        tuple(offset for _, offset in names.values()),
        _combines(found),
    )


def _check_single(found: list[Token]) -> None:
    for at, token in enumerate(found):
        if token.text == ";" and token.kind == "mark" and at + 1 < len(found):
            raise SqlError("expected one statement: remove the semicolon", token.offset)


def _common_tables(found: list[Token]) -> dict[str, range]:
    """Return the common table expressions with the characters of their definitions.

    They are written WITH name AS (…), name (a, b) AS (…).
    """
    names: dict[str, range] = {}
    for at, token in enumerate(found):
        if token.upper != "AS" or at + 1 == len(found) or found[at + 1].text != "(":
            continue
        before = at - 1
        if found[before].text == ")":  # a list of columns
            before = _opening(found, before) - 1
        if before >= 1 and found[before - 1].upper in ("WITH", ","):
            body = range(found[at + 1].offset, found[_closing(found, at + 1)].offset)
            names[found[before].name.casefold()] = body
        elif before >= 1 and found[before - 1].upper == "RECURSIVE":
            names[found[before].name.casefold()] = range(0)
    return names


def _opening(found: list[Token], at: int) -> int:
    """Return the index of the parenthesis that another one closes."""
    depth = 0
    for index in range(at, -1, -1):
        depth += _depth(found[index])
        if depth == 0:
            return index
    raise AssertionError("tokens() has checked the parentheses")


def _closing(found: list[Token], at: int) -> int:
    """Return the index of the parenthesis that closes another one."""
    depth = 0
    for index in range(at, len(found)):
        depth += _depth(found[index])
        if depth == 0:
            return index
    raise AssertionError("tokens() has checked the parentheses")


def _depth(token: Token) -> int:
    if token.kind != "mark":
        return 0
    return (token.text == "(") - (token.text == ")")


def _tables(found: list[Token]) -> list[Token]:
    """Return the tokens that name tables."""
    tables: list[Token] = []
    # For each open parenthesis: the word before it, and whether a comma separates tables.
    levels: list[tuple[str, bool]] = [("", False)]
    for at, token in enumerate(found):
        before = found[at - 1].upper if at else ""
        word, in_tables = levels[-1]
        if token.kind == "mark" and token.text == "(":
            is_table = before == "JOIN" or (in_tables and before in ("FROM", ",", "("))
            levels.append((before, is_table))
            continue
        if token.kind == "mark" and token.text == ")":
            levels.pop()
            continue
        if token.upper in ("FROM", "JOIN"):
            is_function = token.upper == "FROM" and word in _FUNCTIONS_WITH_FROM
            is_comparison = token.upper == "FROM" and before == "DISTINCT"
            if not is_function and not is_comparison:
                levels[-1] = (word, True)
            continue
        if token.upper in _AFTER_TABLES:
            levels[-1] = (word, False)
        follows = before in ("JOIN", "TABLE") or (in_tables and before in ("FROM", ",", "("))
        if follows and _is_table(found, at):
            tables.append(token)
    return tables


def _is_table(found: list[Token], at: int) -> bool:
    """Whether a token is a table of this pipeline: not a function, a keyword or catalog.table."""
    token = found[at]
    after = found[at + 1].text if at + 1 < len(found) else ""
    if token.kind not in ("word", "name") or after in ("(", "."):
        return False
    return token.upper not in ("LATERAL", "VALUES", "TABLE", "SELECT", "WITH")


def _combines(found: list[Token]) -> str | None:
    for token, after in zip(found, [*found[1:], Token("", "", 0)], strict=True):
        match token.upper, after.upper:
            case "GROUP", "BY":
                return "GROUP BY"
            case (("JOIN" | "INTERSECT" | "EXCEPT" | "MINUS"), _):
                return token.upper
            case "SELECT", "DISTINCT":
                return "DISTINCT"
            case _:
                continue
    return None

"""Parses YAML to plain values and remembers the line and column of each of them.

Invariant: a value is not lost and not guessed. Plain scalars follow YAML 1.2: `on` and `no` are
text, and a time is text. A duplicate key, a merge key and a tag are problems.

PyYAML's node graph has the positions; its constructor, which drops them, is not used.
"""

import re
from typing import Final, NamedTuple, TypeAlias, cast

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from ottla.pipeline.spec.problems import Path, PipelineProblem, Position, shown

VALUES_MAX: Final = 100_000
"""Aliases can make a small file expand to billions of values."""

_STANDARD_TAG: Final = "tag:yaml.org,2002:"
_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS: Final = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


class Plain(NamedTuple):
    """A scalar without quotes that YAML reads as a number, a boolean or null."""

    text: str
    value: int | float | bool | None


Value: TypeAlias = "dict[str, Value] | list[Value] | str | Plain"


class _Place(NamedTuple):
    key: Position | None
    value: Position
    node: Node


class Positions:
    """The positions of the values of a file, by path."""

    def __init__(self, text: str = "") -> None:
        self._text = text
        self._places: dict[Path, _Place] = {}

    def add(self, path: Path, key: Node | None, value: Node) -> None:
        """Remember where a value is."""
        place = _Place(None if key is None else _position(key), _position(value), value)
        self._places.setdefault(path, place)

    def locate(self, problem: PipelineProblem) -> PipelineProblem:
        """Return the problem with its position; a missing value is at the part that lacks it."""
        path = problem.path
        while path and path not in self._places:
            path = path[:-1]
        place = self._places.get(path)
        if place is None:
            return problem
        if path != problem.path:  # the value does not exist
            return problem._replace(position=place.key or place.value)
        if problem.at_key and place.key is not None:
            return problem._replace(position=place.key)
        return problem._replace(position=self._in_text(place, problem.offset))

    def _in_text(self, place: _Place, offset: int) -> Position:
        """Return the position of a character of a text, on whichever line it is.

        YAML joins the lines of a text and removes their indentation. It keeps the other characters,
        so the n-th of them in the text is the n-th in the file. If escapes make a difference, the
        position is that of the whole text.
        """
        node = place.node
        if not isinstance(node, ScalarNode):
            return place.value
        start, end = node.start_mark.index, node.end_mark.index
        if node.style in ("|", ">"):
            start = self._text.find("\n", start, end)
        elif node.style is not None:
            start, end = start + 1, end - 1
        raw, value = self._text[start:end], str(node.value)
        if "".join(raw.split()) != "".join(value.split()):
            return place.value
        before = len("".join(value[:offset].split()))
        visible = [at for at, one in enumerate(raw) if not one.isspace()]
        at = start + (visible[before] if before < len(visible) else len(raw.rstrip()))
        line_start = self._text.rfind("\n", 0, at) + 1
        return Position(self._text.count("\n", 0, at) + 1, at - line_start + 1)


class Document(NamedTuple):
    """A parsed file. Without a value, the problems say why."""

    value: "Value | None"
    positions: Positions
    problems: list[PipelineProblem]


def parse_yaml(text: str) -> Document:
    """Parse the text of a YAML file with one document."""
    positions = Positions(text)
    try:
        root: Node | None = yaml.SafeLoader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        return Document(None, positions, [_syntax_problem(error, text)])
    except yaml.YAMLError as error:  # a character that YAML does not allow
        what = f"not valid YAML: {' '.join(str(error).split())}"
        return Document(None, positions, [PipelineProblem((), what)])
    except RecursionError:
        return Document(None, positions, [PipelineProblem((), "nested too deeply")])
    if root is None:
        what = "the file is empty: a pipeline needs at least name, sources and sinks"
        return Document(None, positions, [PipelineProblem((), what)])
    reader = _Reader(positions)
    try:
        value = reader.value(root, (), None)
    except _TooLarge:
        what = f"more than {VALUES_MAX:,} values, or an alias that contains itself"
        return Document(None, positions, [PipelineProblem((), what)])
    return Document(value, positions, reader.problems)


class _TooLarge(Exception):
    """The document has too many values."""


class _Reader:
    def __init__(self, positions: Positions) -> None:
        self.problems: list[PipelineProblem] = []
        self._positions = positions
        self._count = 0

    def value(self, node: Node, path: Path, key: Node | None) -> Value:
        self._count += 1
        if self._count > VALUES_MAX or len(path) > 100:
            raise _TooLarge
        self._positions.add(path, key, node)
        if not node.tag.startswith(_STANDARD_TAG):
            self.problems.append(PipelineProblem(path, f"the tag {node.tag} is not supported"))
        match node:
            case MappingNode():
                return self._mapping(node, path)
            case SequenceNode():
                items = cast("list[Node]", node.value)
                return [self.value(one, (*path, at), None) for at, one in enumerate(items)]
            case _:
                return _scalar(cast("ScalarNode", node))

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Value]:
        found: dict[str, Value] = {}
        first: dict[str, Node] = {}
        for key, one in cast("list[tuple[Node, Node]]", node.value):
            if not isinstance(key, ScalarNode):
                position = _position(key)
                what = "a key must be text"
                self.problems.append(PipelineProblem(path, what, position=position))
                continue
            name = str(key.value)
            if name == "<<" and key.style is None:
                what = "merge keys (<<) are not supported: repeat the keys, or use an alias (*)"
                self.problems.append(PipelineProblem(path, what, position=_position(key)))
                continue
            if name in first:
                line = _position(first[name]).line
                what = f"duplicate key {shown(name)}: it is already in line {line}"
                self.problems.append(PipelineProblem(path, what, position=_position(key)))
                continue
            first[name] = key
            found[name] = self.value(one, (*path, name), key)
        return found


def _scalar(node: ScalarNode) -> Value:
    text = str(node.value)
    if node.style is not None:  # quoted, or a block
        return text
    if text in _NULL:
        return Plain(text, None)
    if text in _BOOLEANS:
        return Plain(text, _BOOLEANS[text])
    if _INTEGER.fullmatch(text):
        return Plain(text, int(text, 0) if text[:2] in ("0o", "0x") else int(text))
    if _FLOAT.fullmatch(text):
        return Plain(text, float(text))
    return text


def _syntax_problem(error: yaml.MarkedYAMLError, text: str) -> PipelineProblem:
    mark = error.problem_mark or error.context_mark
    position = None if mark is None else Position(mark.line + 1, mark.column + 1)
    why = error.problem or error.context or "not valid YAML"
    if "found character '\\t'" in why:
        why = "a tab cannot indent YAML: use spaces"
    elif "mapping values are not allowed" in why:
        above = None if mark is None else _line_above(text, mark)
        why = (
            "a colon followed by a space is not allowed here: put the text in quotes"
            if above is None
            else f"this line is indented more than line {above}, which has a value already: align "
            f"it with line {above}, or put a text with a colon in quotes"
        )
    context = f" ({error.context})" if error.context and error.problem else ""
    return PipelineProblem((), f"not valid YAML: {why}{context}", position=position)


def _line_above(text: str, colon: yaml.Mark) -> int | None:
    """Return the number of the line above one whose key is indented too much; None if it is not.

    Empty lines and comments between them do not count.
    """
    lines = text.splitlines()
    line = lines[colon.line]
    for number in range(colon.line, 0, -1):
        above = lines[number - 1]
        if not above.strip() or above.lstrip().startswith("#"):
            continue
        is_key = ":" not in line[: colon.column]
        has_value = not above.rstrip().endswith(":")
        return number if is_key and has_value and _indent(line) > _indent(above) else None
    return None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _position(node: Node) -> Position:
    return Position(node.start_mark.line + 1, node.start_mark.column + 1)

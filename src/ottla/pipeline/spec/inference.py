"""Infers the format and the schema of a topic from a sample of its values.

`ottla pipeline init` writes the result into a pipeline file, where it is read and corrected by a
person. Nothing is inferred when a pipeline starts.

A column gets the type that most of its values have. Values of other types are reported: a pipeline
with this schema makes dead letters of their records.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

_TIMESTAMP: Final = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:?\d\d)?", re.ASCII
)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONG: Final = range(-(2**63), 2**63)
_DEPTH_MAX: Final = 20
"""Values that are nested deeper stay texts."""


class Inferred(NamedTuple):
    """The format of a topic's values."""

    format: str
    """json, text or binary."""
    schema: str
    """The columns of json, or the name of the column."""
    notes: tuple[str, ...] = ()
    """What the schema does not fit."""


def infer(values: Sequence[bytes | None]) -> Inferred:
    """Infer the format of a sample: JSON if at least half of the values are JSON objects."""
    given = [one for one in values if one is not None]
    objects = [one for one in map(_object, given) if one]
    if objects and len(objects) * 2 >= len(given):
        notes: list[str] = []
        if wrong := len(values) - len(objects):
            verb = "is" if wrong == 1 else "are"
            notes.append(f"{wrong} of {len(values)} records {verb} not a JSON object")
        return Inferred("json", _columns(objects, (), notes), tuple(notes))
    notes = [] if len(given) == len(values) else ["some records have no value"]
    is_text = all(_text(one) is not None for one in given)
    return Inferred("text", "line", tuple(notes)) if is_text else Inferred("binary", "value")


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _object(value: bytes) -> dict[str, Any] | None:
    try:
        found: object = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def _columns(objects: Iterable[Mapping[str, Any]], path: tuple[str, ...], notes: list[str]) -> str:
    """Return the columns of objects, in the order in which they were seen."""
    columns: dict[str, tuple[str, list[Any]]] = {}  # Spark ignores the case of names
    for one in objects:
        for name, value in one.items():
            if not name.isprintable() or not name:
                _note(notes, f"a field with the name {name!r} is left out")
                continue
            first, values = columns.setdefault(name.casefold(), (name, []))
            if first != name:
                _note(notes, f"fields {first} and {name} are the same column in Spark")
            if value is not None:
                values.append(value)
    separator = ": " if path else " "
    return ", ".join(
        f"{_name(name)}{separator}{_type(values, (*path, name), notes)}"
        for name, values in columns.values()
    )


def _note(notes: list[str], text: str) -> None:
    if text not in notes:
        notes.append(text)


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`{}`".format(name.replace("`", "``"))


def _type(values: list[Any], path: tuple[str, ...], notes: list[str]) -> str:
    """Return the type that most values have."""
    families = Counter(map(_family, values))
    if not families or len(path) > _DEPTH_MAX:
        return "STRING"
    family, count = families.most_common(1)[0]
    chosen = [one for one in values if _family(one) == family]
    match family:
        case "object":
            fields = _columns(chosen, path, notes)
            found = f"STRUCT<{fields}>" if fields else "MAP<STRING, STRING>"
        case "array":
            elements = [item for one in chosen for item in one if item is not None]
            found = f"ARRAY<{_type(elements, (*path, '[]'), notes)}>"
        case "number":
            is_whole = all(isinstance(one, int) and one in _LONG for one in chosen)
            found = "BIGINT" if is_whole else "DOUBLE"
        case "boolean":
            found = "BOOLEAN"
        case _:
            found = _text_type(chosen)
    if count < len(values) and found != "STRING":
        others = f"{len(values) - count} of {len(values)} values"
        _note(notes, f"{'.'.join(path)}: {found} does not fit {others}")
    return found


def _family(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case dict():
            return "object"
        case list():
            return "array"
        case _:
            return "text"


def _text_type(values: list[str]) -> str:
    for kind, pattern in (("TIMESTAMP", _TIMESTAMP), ("DATE", _DATE)):
        if all(pattern.fullmatch(one) for one in values):
            return kind
    return "STRING"

"""Parses and checks Avro schemas.

Invariant: a returned schema is accepted by the Avro library and can represent a value. Anything
else raises BadSchema with the reason, whatever the library raises.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, cast

import msgspec


class BadSchema(ValueError):
    """Not a valid Avro schema; the text says why."""


class _Part(NamedTuple):
    """What a schema type has besides its type."""

    name: str
    kinds: tuple[type, ...]
    told: str


_TYPES: Final = (str, Mapping, list)
_FIELDS: Final = _Part("fields", (list,), "a list of fields")
_PARTS: Final = {
    "record": _FIELDS,
    "error": _FIELDS,
    "enum": _Part("symbols", (list,), "a list of names"),
    "array": _Part("items", _TYPES, "a schema"),
    "map": _Part("values", _TYPES, "a schema"),
    "fixed": _Part("size", (int,), "a number of bytes"),
}
"""The library accepts a record without fields, and reports other errors only as a Python name."""

_TOO_DEEP: Final = "invalid Avro schema: it is nested too deeply"


def schema_of(given: str | Mapping[str, object]) -> dict[str, object]:
    """Return an Avro schema as parsed JSON; raises BadSchema for text that is not JSON."""
    if not isinstance(given, str):
        return dict(given)
    try:
        return msgspec.json.decode(given)
    except msgspec.DecodeError as error:
        raise BadSchema(f"invalid Avro schema: {given!r:.80} is not JSON: {error}") from error
    except RecursionError:
        raise BadSchema(_TOO_DEEP) from None


def parsed(given: str | Mapping[str, object]) -> Any:
    """Return a schema parsed by the library; raises BadSchema."""
    from fastavro import parse_schema
    from fastavro.schema import UnknownType

    found = schema_of(given)
    try:
        _check(found)
        return parse_schema(found)
    except BadSchema:
        raise
    except RecursionError:
        raise BadSchema(_TOO_DEEP) from None
    except UnknownType as error:
        name: object = error.name  # or the object that has it
        kind = cast("Any", name)["type"] if isinstance(name, Mapping) else name
        raise _bad(f"unknown type {_shown(kind)}") from error
    # The library may raise anything for an invalid schema.
    except Exception as error:
        raise _bad(str(error)) from error


def _bad(why: str) -> BadSchema:
    return BadSchema(f"invalid Avro schema: {why}")


def _check(schema: object) -> None:
    """Find errors that the library accepts silently or cannot explain."""
    match schema:
        case str():
            pass  # a name, which the library looks up
        case []:
            raise _bad("a union must have at least one type")
        case list():
            _check_each(cast("list[object]", schema))
        case Mapping():
            _check_object(cast("Mapping[str, object]", schema))
        case _:
            raise _bad(f"{_shown(schema)} is not a type name, an object or a list")


def _check_object(schema: Mapping[str, object]) -> None:
    kind = schema.get("type")
    if not isinstance(kind, str):
        raise _bad(f"{_shown(schema)}: 'type' must be the name of a type")
    if not isinstance(schema.get("name", ""), str):
        raise _bad(f"{_shown(schema)}: 'name' must be a string")
    if (part := _PARTS.get(kind)) is None:
        return
    value = schema.get(part.name)
    if not isinstance(value, part.kinds) or isinstance(value, bool):
        raise _bad(f"{_shown(schema)}: '{part.name}' must be {part.told}")
    if part.kinds is _TYPES:
        _check(value)
    elif part is _FIELDS:
        fields = cast("list[object]", value)
        _check_each(cast("Any", one)["type"] for one in fields if _has_type(one))


def _has_type(field: object) -> bool:
    """Whether to check further: the library explains errors of other fields."""
    return isinstance(field, Mapping) and "type" in field


def _check_each(schemas: Iterable[object]) -> None:
    for one in schemas:
        _check(one)


def _shown(part: object) -> str:
    """Return a part of a schema as shortened JSON."""
    from json import dumps

    return f"{dumps(part, default=repr, ensure_ascii=False):.80}"

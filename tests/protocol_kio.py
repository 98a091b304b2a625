"""Adapter from Ottla's messages to those of kio, an independent implementation.

kio has one class per version. Both have the fields in the order of Kafka's definitions, and kio
omits `_ms` in the names of times. `tamed` replaces values that kio cannot represent:

- an error code is one of kio's table, a time span at most 10**14 ms (exact in a timedelta), a point
  in time is whole seconds up to the year 9999, or -1 where kio has None for it;
- -1 for a point in time where kio has no None, and no negative points in time but -1.
"""

import io
from collections.abc import Callable, Iterator
from dataclasses import Field as DataclassField
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any, Final, cast, get_args
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from ottla.ids import ZERO_UUID
from ottla.protocol.message import Message
from ottla.protocol.schema import Field, Kind, Struct

# kio distinguishes entities by attributes, not by types, so this is Any.
Entity = Any

_CODES: Final[tuple[int, ...]] = tuple(int(code) for code in ErrorCode)
_SPAN_MS_MAX: Final = 10**14
_SECONDS_MAX: Final = 253_402_300_799


def entity_of(cls: type[Message], version: int) -> type[Entity] | None:
    """Return kio's class of a message version; None if kio does not have it."""
    name = cls.__name__
    if cls.API is not None:
        folder = cls.API.module
        module = "request" if name.endswith("Request") else "response"
    else:
        folder = "".join(f"_{c.lower()}" if c.isupper() else c for c in name)[1:]
        module = "data"
    try:
        return getattr(import_module(f"kio.schema.{folder}.v{version}.{module}"), name)
    except ModuleNotFoundError:
        return None


def write(entity: Entity) -> bytes:
    """Encode with kio."""
    out = io.BytesIO()
    write_entity: Callable[[io.BytesIO, Entity], None] = entity_writer(entity.__class__)
    write_entity(out, entity)
    return out.getvalue()


def read(cls: type[Entity], raw: bytes) -> tuple[Entity, int]:
    """Decode with kio; return the entity and the end position."""
    return entity_reader(cls)(raw, 0)


def _pairs(
    cls: type[Struct], entity: type[Entity], version: int
) -> list[tuple[Field, DataclassField[Any]]]:
    ours = [field for field in cls.FIELDS if version in field.versions]
    theirs = fields(entity)
    names = [field.name for field in ours], [field.name for field in theirs]
    assert len(ours) == len(theirs), names
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.name.removesuffix("_ms") == other.name.strip("_").removesuffix("_ms"), names
    return list(zip(ours, theirs, strict=True))


def differing_nullability(
    cls: type[Struct], entity: type[Entity], version: int, path: str = ""
) -> Iterator[str]:
    """Yield the fields that only Ottla or only kio allows to be null in this version."""
    for mine, other in _pairs(cls, entity, version):
        name = f"{path}.{mine.name}" if path else mine.name
        # kio has None for the zero UUID and the time -1, which are not null on the wire.
        replaced = other.metadata.get("kafka_type") in ("uuid", "datetime_i64")
        is_nullable = _optional(other) and not replaced
        if is_nullable is not (version in mine.nullable):
            yield f"{name} is {'' if is_nullable else 'not '}nullable in kio"
        if mine.struct is not None:
            yield from differing_nullability(mine.struct, _nested(other), version, name)


def _nested(field: DataclassField[Any]) -> type[Entity]:
    """The class inside `X`, `X | None`, `tuple[X, ...]` and `tuple[X, ...] | None`."""
    return _inside(field.type)


def _inside(found: Any) -> Any:
    if not is_dataclass(found):
        return _inside(next(a for a in get_args(found) if a is not type(None)))
    return cast("type[Entity]", found)


def _optional(field: DataclassField[Any]) -> bool:
    return type(None) in getattr(field.type, "__args__", ())


def _known_code(code: int) -> int:
    return code if code in _CODES else _CODES[code % len(_CODES)]


def _tame(value: Any, _: Field, other: DataclassField[Any]) -> Any:
    match other.metadata["kafka_type"]:
        case "error_code":
            return _known_code(value)
        case "timedelta_i64":
            return value if abs(value) <= _SPAN_MS_MAX else value % _SPAN_MS_MAX
        case "datetime_i64":
            if value == -1 and _optional(other):
                return value
            return abs(value) // 1000 % _SECONDS_MAX * 1000
        case _:
            return value


def _convert(value: Any, other: DataclassField[Any]) -> Any:
    match other.metadata["kafka_type"]:
        case "error_code":
            return ErrorCode(value)
        case "timedelta_i32" | "timedelta_i64":
            return timedelta(milliseconds=value)
        case "datetime_i64":
            return None if value == -1 else datetime.fromtimestamp(value // 1000, UTC)
        case "uuid":
            return None if value == ZERO_UUID else UUID(bytes=bytes(value))
        case _:
            return value


def _walk(
    value: Struct,
    entity: type[Entity],
    version: int,
    plain: Callable[[Any, Field, DataclassField[Any]], Any],
    made: Callable[[Struct, type[Entity], dict[str, Any]], Any],
    names: Callable[[Field, DataclassField[Any]], str],
) -> Any:
    """Rebuild a structure from its leaves."""
    out: dict[str, Any] = {}
    for field, other in _pairs(type(value), entity, version):
        item: Any = getattr(value, field.name)
        name = names(field, other)
        if item is None:
            if field.kind is not Kind.STRUCT or version in field.nullable:
                out[name] = None
            continue  # a missing tagged structure: kio has a default for it
        if field.kind is Kind.ARRAY:
            if field.struct is None:
                out[name] = tuple(plain(i, field, other) for i in item)
            else:
                inner = _nested(other)
                out[name] = tuple(_walk(i, inner, version, plain, made, names) for i in item)
        elif field.kind is Kind.STRUCT:
            out[name] = _walk(item, _nested(other), version, plain, made, names)
        else:
            out[name] = plain(item, field, other)
    return made(value, entity, out)


def tamed(message: Message, entity: type[Entity]) -> Message:
    """Return the message with values that kio can represent."""
    return _walk(
        message,
        entity,
        int(entity.__version__),
        _tame,
        lambda value, _, out: type(value)(**out),
        lambda field, _: field.name,
    )


def converted(message: Message, entity: type[Entity]) -> Entity:
    """Convert the message to kio's entity."""
    return _walk(
        message,
        entity,
        int(entity.__version__),
        lambda item, _, other: _convert(item, other),
        lambda _, cls, out: cls(**out),
        lambda _, other: other.name,
    )

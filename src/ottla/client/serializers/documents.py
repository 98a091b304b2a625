"""Structured values: JSON, typed JSON, Avro, Protobuf.

Invariant: a value is written completely or refused: no field is dropped and no number truncated.
Exception: JSON has no NaN and infinity; null is written for them. The bytes have no schema registry
prefix. Optional libraries are imported on use.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from io import BytesIO
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Protocol,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)
from uuid import UUID

import msgspec

from ottla.client.serializers.avro_schema import parsed
from ottla.client.serializers.serde import Serde, check_kind
from ottla.release import how_to_install

if TYPE_CHECKING:
    from google.protobuf.message import Message

    M = TypeVar("M", bound=Message)

T = TypeVar("T")

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""What JSON can represent."""

AvroScalar: TypeAlias = (
    bool | int | float | str | bytes | Decimal | UUID | datetime | date | time | None
)
AvroDatum: TypeAlias = "AvroScalar | Sequence[AvroDatum] | Mapping[str, AvroDatum]"
"""What Avro can represent; a record is a mapping."""


@overload
def json_of(kind: type[T]) -> Serde[T]: ...


@overload
def json_of(kind: UnionType) -> Serde[Any]: ...  # type checkers cannot infer its type


def json_of(kind: type[T] | UnionType) -> Serde[T]:
    """JSON of a class: a msgspec Struct, a dataclass, a pydantic model, a TypedDict, `list[Order]`.

    Decoding checks the fields and their types. For a union such as `Cat | Dog`, msgspec must be
    able to distinguish them: by Struct tags, or by their JSON types.
    """
    if hasattr(kind, "model_validate_json"):
        return cast("Serde[T]", _pydantic(cast("type[_PydanticModel]", kind)))
    decode = msgspec.json.Decoder(kind).decode
    encode = msgspec.json.Encoder().encode
    # `list[Order]` is not a class and has no instances to check.
    record = kind if isinstance(kind, type) and _is_record(kind) else None

    def write(topic: str, value: T) -> bytes:
        if record is not None:
            check_kind(value, record)
        return encode(value)

    def read(topic: str, data: bytes) -> T:
        return decode(data)

    return Serde(write, read)


def _is_record(kind: type) -> bool:
    return is_dataclass(kind) or issubclass(kind, msgspec.Struct)


def _json() -> Serde[Json]:
    encode: Callable[[Json], bytes] = msgspec.json.Encoder().encode
    decode: Callable[[bytes], Json] = msgspec.json.Decoder().decode

    def write(topic: str, value: Json) -> bytes:
        return encode(value)

    def read(topic: str, data: bytes) -> Json:
        return decode(data)

    return Serde(write, read)


JSON: Final = _json()
"""JSON of any structure, decoded to dicts, lists, strings, numbers and booleans."""


class _PydanticModel(Protocol):
    def model_dump_json(self) -> str: ...

    @classmethod
    def model_validate_json(cls, json_data: bytes) -> "_PydanticModel": ...


def _pydantic(kind: type[_PydanticModel]) -> Serde[_PydanticModel]:
    def write(topic: str, value: _PydanticModel) -> bytes:
        check_kind(value, kind)
        return value.model_dump_json().encode()

    def read(topic: str, data: bytes) -> _PydanticModel:
        return kind.model_validate_json(data)

    return Serde(write, read)


def avro(
    schema: str | Mapping[str, object], *, read_as: str | Mapping[str, object] | None = None
) -> Serde[AvroDatum]:
    """Avro's binary encoding of a schema, given as JSON text or parsed JSON.

    `read_as` is the reader's schema if it differs from the writer's: new fields get their default,
    removed ones are skipped. An invalid schema raises ValueError with the reason. Requires Ottla's
    extra avro.
    """
    try:
        from fastavro import (
            schemaless_reader,  # pyright: ignore[reportUnknownVariableType]
            schemaless_writer,  # pyright: ignore[reportUnknownVariableType]
        )
        from fastavro.validation import validate
    except ModuleNotFoundError as missing:
        raise _extra_missing("avro", missing) from missing
    written = parsed(schema)
    wanted = None if read_as is None else parsed(read_as)

    def write(topic: str, value: AvroDatum) -> bytes:
        # The writer alone would write 1 for 1.5, and an int that no reader accepts for 2**40.
        validate(value, written, raise_errors=True)
        out = BytesIO()
        schemaless_writer(out, written, value, strict_allow_default=True)
        return out.getvalue()

    def read(topic: str, data: bytes) -> AvroDatum:
        source = BytesIO(data)
        datum = cast("AvroDatum", schemaless_reader(source, written, wanted))
        if left := len(data) - source.tell():
            raise ValueError(f"{left} bytes after the datum: it was written with another schema")
        return datum

    return Serde(write, read)


def protobuf(kind: "type[M]") -> "Serde[M]":
    """Protobuf messages of a class generated by protoc.

    Requires Ottla's extra protobuf.
    """
    try:
        from google.protobuf.message import Message
    except ModuleNotFoundError as missing:
        raise _extra_missing("protobuf", missing) from missing
    if not issubclass(kind, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{kind.__name__} is not a Protobuf message class")

    def write(topic: str, value: "M") -> bytes:
        check_kind(value, kind)
        # Deterministic map order: equal keys must have equal bytes to go to the same partition.
        return value.SerializeToString(deterministic=True)

    def read(topic: str, data: bytes) -> "M":
        return kind.FromString(data)

    return Serde(write, read)


def _extra_missing(extra: str, missing: ModuleNotFoundError) -> ModuleNotFoundError:
    text = f"{extra} needs a library that is not installed: {how_to_install(extra)}"
    return ModuleNotFoundError(text, name=missing.name)

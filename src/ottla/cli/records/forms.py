"""Formats keys and values.

Invariant: bytes that do not match the format are shown as text or base64. Null is handled by the
caller.
"""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from struct import Struct
from typing import Final, NamedTuple, TypeAlias, cast
from uuid import UUID

from ottla.cli.output import Json
from ottla.cli.records.form_names import Form, Seen
from ottla.cli.records.payloads import shown

ToJson: TypeAlias = Callable[[bytes], Json]
ToBytes: TypeAlias = Callable[[bytes], bytes]


class SchemaFile(NamedTuple):
    """An Avro schema and its file."""

    path: str
    text: str


_PLAIN: Final = {
    Seen.TEXT: Form.TEXT,
    Seen.JSON: Form.JSON,
    Seen.HEX: Form.HEX,
    Seen.BASE64: Form.BASE64,
}
_INT_SIZES: Final = (1, 2, 4, 8)
_FLOATS: Final = {4: Struct(">f"), 8: Struct(">d")}


def to_json(form: Seen, schema: SchemaFile | None = None) -> ToJson:
    """Return the conversion to JSON; raises ValueError with the file name for a bad schema."""
    match form:
        case Seen.AVRO:
            return _avro(schema)
        case Seen.INT:
            return _int
        case Seen.FLOAT:
            return _float
        case _:
            plain = _PLAIN[form]
            return lambda data: shown(data, plain)


def to_bytes(form: Seen, schema: SchemaFile | None = None) -> ToBytes | None:
    """Return the conversion to bytes; None if they are printed as they are."""
    if form is Seen.TEXT:
        return None
    if form is Seen.HEX:
        return lambda data: data.hex().encode()
    if form is Seen.BASE64:
        return b64encode
    make = to_json(form, schema)

    def printed(data: bytes) -> bytes:
        found = make(data)
        if isinstance(found, str) and form is not Seen.AVRO:
            return data if form is Seen.JSON else found.encode()
        if found == {"base64": b64encode(data).decode("ascii")}:
            return b64encode(data)
        return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()

    return printed


def _int(data: bytes) -> Json:
    if len(data) not in _INT_SIZES:
        return shown(data, Form.TEXT)
    return int.from_bytes(data, "big", signed=True)


def _float(data: bytes) -> Json:
    layout = _FLOATS.get(len(data))
    if layout is None:
        return shown(data, Form.TEXT)
    (found,) = layout.unpack(data)
    return found if isfinite(found) else str(found)


def _avro(schema: SchemaFile | None) -> ToJson:
    from ottla.client.serializers.documents import avro

    if schema is None:
        raise ValueError("decoding Avro requires a schema: use --key-schema or --value-schema")
    try:
        read = avro(schema.text).deserialize
    except ValueError as error:
        raise ValueError(f"{schema.path}: {error}") from error

    def decoded(data: bytes) -> Json:
        try:
            return _plain(read("", data))
        # A decoder may raise anything for bytes of another schema.
        except Exception:
            return shown(data, Form.TEXT)

    return decoded


def _plain(value: object) -> Json:
    """Convert Avro values to JSON values."""
    match value:
        case bytes():
            return {"base64": b64encode(value).decode("ascii")}
        case None | bool() | int() | str():
            return value
        case float():
            return value if isfinite(value) else str(value)
        case Decimal() | UUID():
            return str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case Mapping():
            fields = cast("Mapping[str, object]", value)
            return {name: _plain(one) for name, one in fields.items()}
        case _:
            return [_plain(one) for one in cast("Sequence[object]", value)]

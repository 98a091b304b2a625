"""Records of the internal topics as Kafka's tools print them: JSON with Kafka's names.

Invariant: a record has the fields of its version; tagged fields are omitted if they have their
default.
"""

import re
from base64 import b64encode
from collections.abc import Container, Sequence
from json import dumps
from struct import Struct as Layout
from typing import Final, TypeAlias, cast

from ottla.cli.output import Json
from ottla.errors import OttlaError, ProtocolViolation
from ottla.ids import Uuid
from ottla.protocol import offsets_topic
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from ottla.protocol.coordinator_records import CoordinatorRecordTypes
from ottla.protocol.message import Message
from ottla.protocol.schema import Field, Struct

_NUMBER: Final = Layout(">h")
_CONSUMER: Final = "consumer"
_EMBEDDED: Final[dict[str, type[Message]]] = {
    "subscription": ConsumerProtocolSubscription,
    "assignment": ConsumerProtocolAssignment,
}

# An escaped backslash is matched as a pair, so that what follows it stays as it is.
_ESCAPE: Final = re.compile(r"\\(?:u00[01][0-9a-f]|.)")
_UPPER: Final = {rf"\u00{code:02x}": rf"\u00{code:02X}" for code in range(0x20)}

Shown: TypeAlias = tuple[str | None, str | None]
"""Key and value; None is not printed."""


def shown(
    types: CoordinatorRecordTypes, key: bytes | None, value: bytes | None, offset: int
) -> Shown:
    """Return a record's key and value as Kafka's dump tool prints them.

    If a record cannot be decoded, an error message takes the place of its key.
    """
    if key is None:
        raise OttlaError(
            f"Failed to decode message at offset {offset} using the specified decoder "
            "(message had a missing key)"
        )
    try:
        message = types.decode_key(key)
        if message is None:
            number = _number(key)
            return f"Unknown record type {number} at offset {offset}, skipping.", None
        shown_key = _text({"type": _first(key), "data": fields(message, 0)})
        if value is None:
            return shown_key, "<DELETE>"
        content = types.decode_value(message, value)
    except ProtocolViolation as error:
        return f"Error at offset {offset}, skipping. {error}", None
    data = fields(content, int(_first(value)))
    if isinstance(content, offsets_topic.GroupMetadataValue) and content.protocol_type == _CONSUMER:
        data["members"] = [
            {**cast("dict[str, Json]", shown_member), **_told(member)}
            for member, shown_member in zip(
                content.members, cast("Sequence[Json]", data["members"]), strict=True
            )
        ]
    return shown_key, _text({"version": _first(value), "data": data})


def formatted(
    types: CoordinatorRecordTypes,
    allowed: Container[int],
    key: bytes | None,
    value: bytes | None,
    offset: int,
) -> str:
    """Return a record as the message formatters of Kafka's console consumer print it.

    It is empty if the record has no key, or a type that is unknown or not allowed.
    """
    if key is None:
        return ""
    try:
        message = types.decode_key(key)
        number = _number(key)
        if message is None or number not in allowed:
            return ""
        content = None if value is None else types.decode_value(message, value)
    except ProtocolViolation as error:
        raise OttlaError(f"Could not read record at offset {offset} due to: {error}") from None
    found: dict[str, Json] = {"key": {"type": number, "data": fields(message, 0)}, "value": None}
    if content is not None and value is not None:
        version = _number(value)
        found["value"] = {"version": version, "data": fields(content, version)}
    return _text(found)


def _number(data: bytes) -> int:
    return _NUMBER.unpack_from(data)[0]


def _first(data: bytes) -> str:
    return str(_number(data))


def _text(value: Json) -> str:
    """Return JSON as Java's library writes it: without spaces, and with upper-case escapes."""
    text = dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _ESCAPE.sub(lambda found: _UPPER.get(found[0], found[0]), text)


def _told(member: offsets_topic.MemberMetadata) -> dict[str, Json]:
    """Decode the subscription and assignment of a consumer group member, if valid."""
    found: dict[str, Json] = {}
    for name, cls in _EMBEDDED.items():
        data: bytes = getattr(member, name)
        try:
            version = int(_first(data)) if len(data) >= _NUMBER.size else -1
            if version in cls.VERSIONS:
                read, _ = cls.decode_prefix(data, version, _NUMBER.size)
                found[name] = fields(read, version)
        except ProtocolViolation:
            continue  # other clients may store other formats
    return found


def fields(struct: Struct, version: int) -> dict[str, Json]:
    """Return the fields of a version with Kafka's names."""
    return {
        camel(field.name): _plain(getattr(struct, field.name), version)
        for field in struct.FIELDS
        if version in field.versions and not _is_left_out(field, struct, version)
    }


def _is_left_out(field: Field, struct: Struct, version: int) -> bool:
    if version not in field.tagged:
        return False
    value = getattr(struct, field.name)
    default = field.default
    return value == (default() if field.fresh and callable(default) else default)


def camel(name: str) -> str:
    """Convert commit_timestamp to commitTimestamp."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _plain(value: object, version: int) -> Json:
    match value:
        case Struct():
            return fields(value, version)
        case Uuid():
            return str(value)
        case bytes():
            return b64encode(value).decode("ascii")
        case None | bool() | int() | float() | str():
            return value
        case _:
            assert isinstance(value, Sequence), f"unsupported field type: {type(value)}"
            return [_plain(each, version) for each in cast("Sequence[object]", value)]

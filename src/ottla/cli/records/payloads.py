"""Keys and values of `ottla log dump`, in the requested format.

Invariant: a payload that does not match its format is shown in another one, and bytes that are not
text are never mixed with text.
"""

import json
import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Final, cast

from ottla.cli.output import Json
from ottla.cli.records.form_names import Decoder, Form
from ottla.errors import ProtocolViolation
from ottla.ids import Uuid
from ottla.protocol import offsets_topic, transactions_topic
from ottla.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_embedded,
)
from ottla.protocol.coordinator_records import CoordinatorRecordTypes
from ottla.protocol.schema import Struct

_CONSUMER: Final = "consumer"


_TOPICS: Final[Mapping[str, CoordinatorRecordTypes]] = {
    "__consumer_offsets": offsets_topic.TYPES,
    "__transaction_state": transactions_topic.TYPES,
}


def records_of(decoder: Decoder, topic: str | None) -> CoordinatorRecordTypes | None:
    """Return the record types to decode; None for an unknown topic."""
    match decoder:
        case Decoder.OFFSETS:
            return offsets_topic.TYPES
        case Decoder.TRANSACTIONS:
            return transactions_topic.TYPES
        case Decoder.AUTO:
            return None if topic is None else _TOPICS.get(topic)


def shown(data: bytes | None, form: Form) -> Json:
    """Format bytes. What is not text becomes {"base64": …} in text formats."""
    if data is None:
        return None
    match form:
        case Form.HEX:
            return data.hex()
        case Form.BASE64:
            return b64encode(data).decode("ascii")
        case Form.TEXT | Form.JSON:
            try:
                text = data.decode("utf-8")
            except UnicodeDecodeError:
                return {"base64": b64encode(data).decode("ascii")}
            return text if form is Form.TEXT else _parsed(text)


def _parsed(text: str) -> Json:
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return text


def _refuse(constant: str) -> Json:
    raise ValueError(f"{constant} is not JSON")


def _finite(digits: str) -> Json:
    value = float(digits)
    return value if math.isfinite(value) else _refuse(digits)


def decoded(
    types: CoordinatorRecordTypes, key: bytes | None, value: bytes | None
) -> tuple[Json, Json] | None:
    """Decode the key and value of an internal topic; None for an unknown type."""
    if key is None:
        return None
    try:
        message = types.decode_key(key)
        if message is None:
            return None
        content = None if value is None else types.decode_value(message, value)
    except ProtocolViolation:
        return None
    shown_key: dict[str, Json] = {"type": type(message).__name__, **_fields(message)}
    if content is None:
        return shown_key, None
    shown_value = _fields(content)
    if isinstance(content, offsets_topic.GroupMetadataValue) and content.protocol_type == _CONSUMER:
        shown_value["members"] = [_member(member) for member in content.members]
    return shown_key, shown_value


def _fields(struct: Struct) -> dict[str, Json]:
    return {field.name: _plain(getattr(struct, field.name)) for field in struct.FIELDS}


def _plain(value: object) -> Json:
    match value:
        case Struct():
            return _fields(value)
        case Uuid():
            return str(value)
        case bytes():
            return {"base64": b64encode(value).decode("ascii")}
        case None | bool() | int() | float() | str():
            return value
        case _:
            assert isinstance(value, Sequence), f"unsupported field type: {type(value)}"
            return [_plain(each) for each in cast("Sequence[object]", value)]


def _member(member: offsets_topic.MemberMetadata) -> Json:
    """Return a member of a classic group with its subscription and assignment."""
    fields = _fields(member)
    for name, data, cls in (
        ("subscription", member.subscription, ConsumerProtocolSubscription),
        ("assignment", member.assignment, ConsumerProtocolAssignment),
    ):
        try:
            fields[name] = _fields(decode_embedded(cls, data))
        except ProtocolViolation:
            continue  # other clients may store anything
    return fields

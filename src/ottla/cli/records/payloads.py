"""Keys and values of records in the forms in which a person or a program asks for them.

Invariant: a payload that is not what its form expects is shown in another form rather than not at
all, and bytes that are no text are never mixed with text that is.
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
    """The types of records that are decoded; None: they are of no topic that is known."""
    match decoder:
        case Decoder.OFFSETS:
            return offsets_topic.TYPES
        case Decoder.TRANSACTIONS:
            return transactions_topic.TYPES
        case Decoder.AUTO:
            return None if topic is None else _TOPICS.get(topic)


def shown(data: bytes | None, form: Form) -> Json:
    """Bytes in a form. What is no text becomes {"base64": …} in the forms that expect one."""
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
    """Key and value of an internal topic; None when they are not of a type that is known."""
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
            assert isinstance(value, Sequence), f"no field holds {type(value)}"
            return [_plain(each) for each in cast("Sequence[object]", value)]


def _member(member: offsets_topic.MemberMetadata) -> Json:
    """A member of a classic group of consumers, with what it subscribed to and was assigned."""
    fields = _fields(member)
    for name, data, cls in (
        ("subscription", member.subscription, ConsumerProtocolSubscription),
        ("assignment", member.assignment, ConsumerProtocolAssignment),
    ):
        try:
            fields[name] = _fields(decode_embedded(cls, data))
        except ProtocolViolation:
            continue  # other clients put there what they like
    return fields

"""Serializers and deserializers: Java's formats, JSON, Avro, Protobuf.

A `Serde[T]` has both directions, for producers and consumers. A function works as well: `(topic,
value) -> bytes | None` for a producer, `(topic, bytes) -> T` for a consumer.
"""

from ottla.client.serializers.documents import (
    JSON,
    AvroDatum,
    Json,
    avro,
    json_of,
    protobuf,
)
from ottla.client.serializers.java_forms import (
    BOOLEAN,
    BYTES,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    SHORT,
    STRING,
    UUID_TEXT,
    VOID,
    uuid_text,
)
from ottla.client.serializers.serde import (
    DeserializationFailed,
    Deserializer,
    Part,
    Serde,
    SerializationFailed,
    Serializer,
    deserialize,
    deserializer_of,
    serialize,
    serializer_of,
)
from ottla.client.serializers.text import string

__all__ = [
    "BOOLEAN",
    "BYTES",
    "DOUBLE",
    "FLOAT",
    "INT",
    "JSON",
    "LONG",
    "SHORT",
    "STRING",
    "UUID_TEXT",
    "VOID",
    "AvroDatum",
    "DeserializationFailed",
    "Deserializer",
    "Json",
    "Part",
    "Serde",
    "SerializationFailed",
    "Serializer",
    "avro",
    "deserialize",
    "deserializer_of",
    "json_of",
    "protobuf",
    "serialize",
    "serializer_of",
    "string",
    "uuid_text",
]

"""Option values of commands that print records.

A value is the word that users type. Nothing else is imported for it.
"""

from enum import StrEnum


class Form(StrEnum):
    """How bytes are printed."""

    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"


class Decoder(StrEnum):
    """The internal topics that can be decoded."""

    AUTO = "auto"
    OFFSETS = "offsets"
    TRANSACTIONS = "transactions"


class Seen(StrEnum):
    """The format of keys or values."""

    TEXT = "text"
    JSON = "json"
    AVRO = "avro"
    INT = "int"
    FLOAT = "float"
    HEX = "hex"
    BASE64 = "base64"

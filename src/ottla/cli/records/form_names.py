"""What can be asked of a command that shows records: how bytes are shown, what is decoded.

Invariant: a value is the word that people type. Nothing else is imported for it.
"""

from enum import StrEnum


class Form(StrEnum):
    """How bytes are shown."""

    TEXT = "text"
    JSON = "json"
    HEX = "hex"
    BASE64 = "base64"


class Decoder(StrEnum):
    """The topics whose records have a format of their own."""

    AUTO = "auto"
    OFFSETS = "offsets"
    TRANSACTIONS = "transactions"


class Seen(StrEnum):
    """What the bytes of a key or a value are, for who shows them."""

    TEXT = "text"
    JSON = "json"
    AVRO = "avro"
    INT = "int"
    FLOAT = "float"
    HEX = "hex"
    BASE64 = "base64"

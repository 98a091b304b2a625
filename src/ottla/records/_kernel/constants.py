"""Sizes of a record batch, types of JSON fields, and the reasons for which a record is rejected.

constants.pxd has the same values for the compiled modules. This module is never compiled.
"""

from enum import IntEnum

HEADER_SIZE = 61  # bytes of a batch header; the encoders leave room for it
LENGTH_END = 12  # base offset and batch length; the length counts the bytes after it
CRC_END = 21  # the CRC covers everything from here on
COMPRESSION_MASK = 0x07  # bits of the attributes
LOG_APPEND_TIME = 0x08
CONTROL = 0x20
RECORD_SIZE_MIN = 7  # length, attributes, timestamp, offset, key, value, headers: a byte each
RECORD_OVERHEAD_MAX = 26  # bytes of a record's lengths, deltas and attributes, at most
HEADERS_MAX = 0xFFFF  # per record: two compressed bytes must not become millions of objects
INT32_MAX = 0x7FFFFFFF
NO_TIMESTAMP = -1

# The types of the fields of JSON objects.
JSON_STRING = 1
JSON_BOOLEAN = 2
JSON_INT = 3
JSON_LONG = 4
JSON_DOUBLE = 5
JSON_TIMESTAMP = 6
JSON_DATE = 7
JSON_OTHER = -2  # in place of a position: not parsed; -1 is an exception
JSON_NUMBER_SIZE_MAX = 63  # of the text of a number
JSON_EXPONENT_MAX = 200  # of such a number, so that it is finite


class JsonType(IntEnum):
    """The type of a field of JSON objects."""

    STRING = JSON_STRING
    BOOLEAN = JSON_BOOLEAN
    INT = JSON_INT
    LONG = JSON_LONG
    DOUBLE = JSON_DOUBLE
    TIMESTAMP = JSON_TIMESTAMP
    DATE = JSON_DATE


# Why a record is corrupt: an index into REASONS.
BAD_COUNT = 1
BAD_LENGTH = 2
BAD_TIMESTAMP = 3
BAD_OFFSET = 4
BAD_KEY = 5
BAD_VALUE = 6
BAD_HEADERS = 7
BAD_HEADER_KEY = 8
BAD_HEADER_VALUE = 9
BAD_END = 10
BAD_TAIL = 11
REASONS = (
    "valid",
    "the batch declares more records than its bytes can hold",
    "the record length is malformed or exceeds the batch",
    "the timestamp delta is malformed",
    "the offset delta is malformed or out of order",
    "the key length is invalid",
    "the value length is invalid",
    "the header count is invalid",
    "a header key is missing or its length is invalid",
    "a header value has an invalid length",
    "the fields do not fill the record length",
    "bytes follow the last record",
)

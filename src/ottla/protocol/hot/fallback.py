"""When a hand-written codec leaves a message to the compiled codec."""

import struct
from typing import Final

from ottla.errors import ProtocolViolation

HEAD_BYTES_MAX: Final = 16 * 1024
"""The most bytes between two runs of records that are written by hand.

A hand-written writer concatenates `bytes`, which is the fastest way only while they are few.
"""


class NotPlain(Exception):
    """The message has a part that only the compiled codec handles."""


# Raised by a hand-written codec that met a part it does not handle, or misread the bytes after it.
# The compiled codec then decides whether the message is valid.
READ_ERRORS: Final = (NotPlain, ProtocolViolation, struct.error, IndexError, UnicodeDecodeError)
WRITE_ERRORS: Final = (NotPlain, struct.error, IndexError, AttributeError, TypeError, ValueError)

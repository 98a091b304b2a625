"""What is raised when records cannot be read or may not be written.

Invariant: whatever bytes come in, nothing but these leaves this folder; a message names the
record or the batch, never repeats its content.
"""

from collections.abc import Sequence
from typing import Final

from ottla.errors import ErrorCode, OttlaError, RequestError


class CorruptRecords(OttlaError):
    """The bytes are not a batch, or not the records that the batch promises."""

    def __init__(self, message: str, record: int | None = None) -> None:
        super().__init__(message if record is None else f"record {record}: {message}")
        self.record = record  # counted from 0 within its batch; None: the batch as a whole


class UnsupportedMagic(CorruptRecords):
    """A message set of format 0 or 1, which Kafka stopped writing in 0.11 and dropped in 4.0."""

    def __init__(self, magic: int) -> None:
        super().__init__(f"message format {magic} is not supported, only record batches (magic 2)")
        self.magic = magic

    def __reduce__(self) -> tuple[type["UnsupportedMagic"], tuple[int]]:
        return UnsupportedMagic, (self.magic,)


class ColumnsTooLarge(OttlaError):
    """A column would hold more than its 32-bit offsets can count: 2 GiB of keys or of values."""


class InvalidRecords(RequestError):
    """A produced batch breaks a rule; nothing of it may be appended.

    `record_errors` holds (index in the batch, message) for the records at fault, as the
    response's RecordErrors do; empty when the batch as a whole is refused.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        record_errors: Sequence[tuple[int, str]] = (),
    ) -> None:
        super().__init__(code, message)
        self.record_errors = tuple(record_errors)


class CorruptCompression(OttlaError):
    """The compressed bytes are damaged, cut short, or followed by bytes that do not belong."""


class DecompressionLimitExceeded(OttlaError):
    """The compressed bytes hold more than the caller allows; nothing beyond that was produced."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit

    def __str__(self) -> str:
        return f"the compressed data holds more than {self.limit} bytes"


class TakesLong(Exception):
    """To check a batch would hold up everybody else; nothing was found wrong with it so far."""


UNREADABLE: Final = (CorruptRecords, CorruptCompression, DecompressionLimitExceeded)
"""Why the records of a batch that is stored cannot be read."""

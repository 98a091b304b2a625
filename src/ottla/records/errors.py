"""Errors of reading and validating records.

Invalid bytes raise only these errors. A message names the record or the batch, and never has its
content.
"""

from collections.abc import Sequence
from typing import Final

from ottla.errors import ErrorCode, OttlaError, RequestError

SHOWN_MAX: Final = 3
"""Invalid records that a message describes."""


class CorruptRecords(OttlaError):
    """The bytes are not a record batch, or its records are corrupt."""

    def __init__(self, message: str, record: int | None = None) -> None:
        super().__init__(message if record is None else f"record {record}: {message}")
        self.record = record  # its index in the batch; None for the batch as a whole


class UnsupportedMagic(CorruptRecords):
    """A message set of format 0 or 1, which Kafka stopped writing in 0.11 and dropped in 4.0."""

    def __init__(self, magic: int) -> None:
        super().__init__(f"message format {magic} is not supported, only record batches (magic 2)")
        self.magic = magic

    def __reduce__(self) -> tuple[type["UnsupportedMagic"], tuple[int]]:
        return UnsupportedMagic, (self.magic,)


class ColumnsTooLarge(OttlaError):
    """The keys, values or headers exceed the 2 GiB of a column with 32-bit offsets."""


class InvalidRecords(RequestError):
    """A produced batch is invalid, so none of its records is appended.

    `record_errors` has (index in the batch, message) for each invalid record, as RecordErrors in
    the response. It is empty if the batch as a whole is invalid.
    """

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        record_errors: Sequence[tuple[int, str]] = (),
    ) -> None:
        super().__init__(code, message)
        self.record_errors = tuple(record_errors)


def described_errors(errors: Sequence[tuple[int, str]]) -> str:
    """Return a message with the first invalid records of a batch, at most three as in Kafka."""
    first = "; ".join(f"record {index}: {message}" for index, message in errors[:SHOWN_MAX])
    return f"the batch has invalid records: {first}{'; …' if len(errors) > SHOWN_MAX else ''}"


class CorruptCompression(OttlaError):
    """The compressed bytes are damaged, truncated or followed by other bytes."""


class DecompressionLimitExceeded(OttlaError):
    """The decompressed data exceeds the caller's limit."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit

    def __str__(self) -> str:
        return f"the decompressed data has more than {self.limit} bytes"


class WouldBlock(Exception):
    """The check of a batch would block the event loop; no error has been found so far."""


UNREADABLE: Final = (CorruptRecords, CorruptCompression, DecompressionLimitExceeded)
"""The errors of reading the records of a stored batch."""

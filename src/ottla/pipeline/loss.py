"""Data loss: records that were deleted before a query has read them.

Invariant: a loss raises DataLost, or it is logged.
"""

from typing import Final

from ottla.errors import ErrorCode, RequestError

HINT: Final = "Set failOnDataLoss=false to continue with the records that are left."


class DataLost(Exception):
    """Records that were not read yet do not exist any more."""


def is_missing(error: RequestError) -> bool:
    """Return whether an error says that a topic or partition does not exist."""
    return error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

"""Loss: what is said when records are gone before they were read.

Invariant: a loss is an error, or it is logged: never passed over in silence.
"""

from typing import Final

from ottla.errors import ErrorCode, RequestError

GOES_ON: Final = "With failOnDataLoss=false the query goes on with what there is."


class DataLost(Exception):
    """Records that were not read yet are gone."""


def is_gone(error: RequestError) -> bool:
    """Whether an error says that a topic or partition is not there."""
    return error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)

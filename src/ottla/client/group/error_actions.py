"""What a member does about an error of its group's coordinator.

Invariant: every error has one action, the same as in Kafka's Java consumer. An error that is not
listed is retried if the table of errors marks it as retriable, and is final otherwise.
"""

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from ottla.errors import ErrorCode


class ErrorAction(Enum):
    """What to do before rejoining the group."""

    FINAL = auto()  # raise it to the application
    AGAIN = auto()  # retry after a backoff
    ELSEWHERE = auto()  # retry after a new coordinator lookup
    REJOIN = auto()  # rejoin at once with what is owned
    REGENERATE = auto()  # partitions are lost; rejoin at once as the same member
    RENEW = auto()  # partitions are lost; rejoin at once as a new member


LOSSES: Final = frozenset({ErrorAction.REGENERATE, ErrorAction.RENEW})

_REACTIONS: Final[Mapping[ErrorCode, ErrorAction]] = MappingProxyType(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorAction.ELSEWHERE,
        ErrorCode.NOT_COORDINATOR: ErrorAction.ELSEWHERE,
        ErrorCode.NETWORK_EXCEPTION: ErrorAction.ELSEWHERE,
        ErrorCode.REQUEST_TIMED_OUT: ErrorAction.ELSEWHERE,
        ErrorCode.REBALANCE_IN_PROGRESS: ErrorAction.REJOIN,
        ErrorCode.ILLEGAL_GENERATION: ErrorAction.REGENERATE,
        ErrorCode.UNKNOWN_MEMBER_ID: ErrorAction.RENEW,
        ErrorCode.FENCED_MEMBER_EPOCH: ErrorAction.RENEW,
    }
)


def error_action(error: ErrorCode) -> ErrorAction:
    """Return the action for an error."""
    listed = _REACTIONS.get(error)
    if listed is not None:
        return listed
    return ErrorAction.AGAIN if error.retriable else ErrorAction.FINAL

"""What a member does about an error of its group's coordinator.

Invariant: every error has one reaction, and it is that of Kafka's Java consumer. One that is not
listed passes if the table of errors says so, and is final otherwise.
"""

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import Final

from ottla.errors import ErrorCode


class Reaction(Enum):
    """What to do before the group is joined again."""

    FINAL = auto()  # tell the application
    AGAIN = auto()  # the same, after a pause
    ELSEWHERE = auto()  # the same, after the coordinator was looked up anew
    REJOIN = auto()  # join at once, with what is owned
    REGENERATE = auto()  # what is owned is lost; join at once, as the same member
    RENEW = auto()  # what is owned is lost; join at once, as a new member


LOSSES: Final = frozenset({Reaction.REGENERATE, Reaction.RENEW})

_REACTIONS: Final[Mapping[ErrorCode, Reaction]] = MappingProxyType(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.ELSEWHERE,
        ErrorCode.NOT_COORDINATOR: Reaction.ELSEWHERE,
        ErrorCode.NETWORK_EXCEPTION: Reaction.ELSEWHERE,
        ErrorCode.REQUEST_TIMED_OUT: Reaction.ELSEWHERE,
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction.REJOIN,
        ErrorCode.ILLEGAL_GENERATION: Reaction.REGENERATE,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.RENEW,
        ErrorCode.FENCED_MEMBER_EPOCH: Reaction.RENEW,
    }
)


def reaction(error: ErrorCode) -> Reaction:
    """What to do about an error."""
    listed = _REACTIONS.get(error)
    if listed is not None:
        return listed
    return Reaction.AGAIN if error.retriable else Reaction.FINAL

"""The error of each request in each state of a group, as a table.

It states what Kafka's coordinator is expected to return. `test_classic.py` checks our coordinator,
and `test_kafka_agrees.py` checks Kafka.
"""

from collections.abc import Callable
from typing import Protocol

from ottla.errors import ErrorCode

NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
ILLEGAL = ErrorCode.ILLEGAL_GENERATION
REBALANCE = ErrorCode.REBALANCE_IN_PROGRESS
NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND
NON_EMPTY = ErrorCode.NON_EMPTY_GROUP
INCONSISTENT = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
REQUIRED = ErrorCode.MEMBER_ID_REQUIRED
WAITS = None  # no response yet

STATES = ("none", "simple", "empty", "preparing", "completing", "stable")


class Situation(Protocol):
    """A group in one of the states, with a follower where there are members.

    Missing arguments default to the member and the generation of the group.
    """

    @property
    def member(self) -> str: ...

    def join(self, member_id: str) -> ErrorCode | None: ...

    def sync(
        self,
        member_id: str | None = None,
        *,
        ahead: int = 0,
        protocol_type: str = "consumer",
        protocol_name: str = "range",
    ) -> ErrorCode | None: ...

    def heartbeat(self, member_id: str | None = None, *, ahead: int = 0) -> ErrorCode: ...

    def leave(self, member_id: str | None = None) -> ErrorCode: ...

    def commit(
        self, member_id: str | None = None, *, ahead: int = 0, producer_id: int | None = None
    ) -> ErrorCode: ...

    def commit_alone(self, member_id: str = "", *, producer_id: int | None = None) -> ErrorCode:
        """Commit with generation -1."""
        ...

    def delete(self) -> ErrorCode: ...

    def delete_offsets(self) -> ErrorCode: ...


REQUESTS: dict[str, Callable[[Situation], ErrorCode | None]] = {
    "join as new": lambda s: s.join(""),
    "join as a stranger": lambda s: s.join("stranger"),
    "join again": lambda s: s.join(s.member),
    "sync": lambda s: s.sync(),
    "sync as a stranger": lambda s: s.sync("stranger"),
    "sync of the last generation": lambda s: s.sync(ahead=-1),
    "sync of the next generation": lambda s: s.sync(ahead=1),
    "sync with another type": lambda s: s.sync(protocol_type="connect"),
    "sync with another protocol": lambda s: s.sync(protocol_name="mine"),
    "heartbeat": lambda s: s.heartbeat(),
    "heartbeat of a stranger": lambda s: s.heartbeat("stranger"),
    "heartbeat of the last generation": lambda s: s.heartbeat(ahead=-1),
    "leave": lambda s: s.leave(),
    "leave as a stranger": lambda s: s.leave("stranger"),
    "commit": lambda s: s.commit(),
    "commit of a stranger": lambda s: s.commit("stranger"),
    "commit of the last generation": lambda s: s.commit(ahead=-1),
    "commit by nobody": lambda s: s.commit_alone(),
    "commit by a member without generation": lambda s: s.commit_alone(s.member),
    "commit in a transaction": lambda s: s.commit(producer_id=1),
    "commit in a transaction, last generation": lambda s: s.commit(ahead=-1, producer_id=1),
    "commit in a transaction by nobody": lambda s: s.commit_alone(producer_id=1),
    "delete": lambda s: s.delete(),
    "delete offsets": lambda s: s.delete_offsets(),
}

# Expected errors by request and by the states in STATES. A commit to a missing group has generation
# 0; from version 9 on the error is GROUP_ID_NOT_FOUND.
TABLE: dict[str, tuple[ErrorCode | None, ...]] = {
    "join as new": (REQUIRED,) * 6,
    "join as a stranger": (UNKNOWN,) * 6,
    "join again": (UNKNOWN, UNKNOWN, UNKNOWN, WAITS, NONE, NONE),
    "sync": (UNKNOWN, UNKNOWN, UNKNOWN, REBALANCE, WAITS, NONE),
    "sync as a stranger": (UNKNOWN,) * 6,
    "sync of the last generation": (UNKNOWN, UNKNOWN, UNKNOWN, ILLEGAL, ILLEGAL, ILLEGAL),
    "sync of the next generation": (UNKNOWN, UNKNOWN, UNKNOWN, ILLEGAL, ILLEGAL, ILLEGAL),
    "sync with another type": (UNKNOWN,) * 3 + (INCONSISTENT,) * 3,
    "sync with another protocol": (UNKNOWN,) * 3 + (INCONSISTENT,) * 3,
    "heartbeat": (UNKNOWN, UNKNOWN, UNKNOWN, REBALANCE, NONE, NONE),
    "heartbeat of a stranger": (UNKNOWN,) * 6,
    "heartbeat of the last generation": (UNKNOWN, UNKNOWN, UNKNOWN, ILLEGAL, ILLEGAL, ILLEGAL),
    "leave": (UNKNOWN, UNKNOWN, UNKNOWN, NONE, NONE, NONE),
    "leave as a stranger": (UNKNOWN,) * 6,
    "commit": (NOT_FOUND, UNKNOWN, UNKNOWN, NONE, REBALANCE, NONE),
    "commit of a stranger": (NOT_FOUND,) + (UNKNOWN,) * 5,
    "commit of the last generation": (NONE, NONE, UNKNOWN, ILLEGAL, ILLEGAL, ILLEGAL),
    "commit by nobody": (NONE, NONE, NONE, UNKNOWN, UNKNOWN, UNKNOWN),
    "commit by a member without generation": (NONE, NONE, NONE, ILLEGAL, ILLEGAL, ILLEGAL),
    "commit in a transaction": (ILLEGAL, UNKNOWN, UNKNOWN, NONE, NONE, NONE),
    "commit in a transaction, last generation": (NONE, NONE, UNKNOWN) + (ILLEGAL,) * 3,
    "commit in a transaction by nobody": (NONE,) * 6,
    "delete": (NOT_FOUND, NONE, NONE, NON_EMPTY, NON_EMPTY, NON_EMPTY),
    "delete offsets": (NOT_FOUND, NONE, NONE, NONE, NONE, NONE),
}

CASES = [
    (name, state, expected)
    for name, row in TABLE.items()
    for state, expected in zip(STATES, row, strict=True)
]

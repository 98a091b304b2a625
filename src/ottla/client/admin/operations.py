"""Operations that may be allowed or denied, as the wire numbers them.

Invariant: a number that is not known here is UNKNOWN, and never taken for another operation.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import Final

NOT_ASKED: Final = -(1 << 31)
"""In place of operations: nobody asked for them."""


class Operation(IntEnum):
    """What may be done to a resource."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15

    @classmethod
    def _missing_(cls, value: object) -> "Operation":
        return cls.UNKNOWN


def operations(bits: int) -> frozenset[Operation] | None:
    """The operations of which the bits are set; None when nobody asked."""
    return None if bits == NOT_ASKED else frozenset(_of(bits))


def _of(bits: int) -> Iterator[Operation]:
    for number in range(32):
        if bits >> number & 1:
            yield Operation(number)

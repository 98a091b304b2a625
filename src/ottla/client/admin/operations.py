"""Operations that may be allowed or denied, as the wire numbers them.

Invariant: every bit that is set is an operation, of a later Kafka too.
"""

from collections.abc import Iterator
from typing import Final

from ottla.client.admin.kinds import Kind

NOT_ASKED: Final = -(1 << 31)
"""In place of operations: nobody asked for them."""


class Operation(Kind):
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


def operations(bits: int) -> frozenset[Operation] | None:
    """The operations of which the bits are set; None when nobody asked."""
    return None if bits == NOT_ASKED else frozenset(_of(bits))


def _of(bits: int) -> Iterator[Operation]:
    for number in range(32):
        if bits >> number & 1:
            yield Operation(number)

"""ACL operations, as on the wire.

Invariant: every set bit is an operation, also of a later Kafka version.
"""

from collections.abc import Iterator
from typing import Final

from ottla.client.admin.kinds import Kind

NOT_ASKED: Final = -(1 << 31)
"""The bit field if operations were not requested."""


class Operation(Kind):
    """An operation on a resource."""

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
    """Return the operations of the set bits; None if not requested."""
    return None if bits == NOT_ASKED else frozenset(_of(bits))


def _of(bits: int) -> Iterator[Operation]:
    for number in range(32):
        if bits >> number & 1:
            yield Operation(number)

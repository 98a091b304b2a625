"""Kinds of things, as the wire numbers them.

Invariant: a number that is not known here is UNKNOWN, and never taken for another kind.
"""

from enum import IntEnum


class Kind(IntEnum):
    """One of some; every class of them has UNKNOWN, which is what a later Kafka may say."""

    @classmethod
    def _missing_(cls, value: object) -> "Kind":
        return cls["UNKNOWN"]

"""Enumerations as on the wire.

Invariant: an unknown number is UNKNOWN and never mistaken for another value.
"""

from enum import IntEnum


class Kind(IntEnum):
    """The base of wire enumerations; each has UNKNOWN for values of later Kafka versions."""

    @classmethod
    def _missing_(cls, value: object) -> "Kind":
        return cls["UNKNOWN"]

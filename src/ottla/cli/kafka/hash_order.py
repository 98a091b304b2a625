"""The order in which Kafka's tools come to what they hold in a java.util.HashMap.

Invariant: it depends on the keys and on how many they are, and not on chance: keys stand by the
low bits of their hashes, and those with the same bits in the order in which they came.
"""

from collections.abc import Iterable


def in_hash_order(names: Iterable[str], capacity: int = 16) -> list[str]:
    """The names as a HashMap gives them that began with room for so many."""
    given = [*dict.fromkeys(names)]
    room = 1
    while room < capacity:
        room *= 2
    while len(given) > room * 3 // 4:
        room *= 2
    return sorted(given, key=lambda name: _spread(name) & (room - 1))


def _spread(name: str) -> int:
    """What HashMap makes of String.hashCode: the upper half counts in the lower."""
    units = name.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2])) & 0xFFFFFFFF
    return value ^ value >> 16

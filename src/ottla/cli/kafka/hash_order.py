"""The order in which Kafka's tools come to what they hold in a java.util.HashMap.

Invariant: it depends on the keys and on how they came, and not on chance. Keys stand by the low
bits of their hashes; those with the same bits in the order in which they were put, or in the
reverse of it where they came by computeIfAbsent. Bins of so many keys that Java makes trees of them
are not looked at: names of topics, settings and files do not come to that.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

_CROWDED: Final = 8
"""A bin with so many keys lets a small table grow."""
_LARGE: Final = 64
"""A table of so many bins does not grow for that."""


def in_hash_order(
    names: Iterable[str], capacity: int = 16, *, is_computed: bool = False
) -> list[str]:
    """The names as a HashMap gives them that began with room for so many.

    `is_computed` is for a map that is filled by computeIfAbsent: a new key stands before the others
    of its bin, and the map grows one key later.
    """
    room = 1
    while room < capacity:
        room *= 2
    bins: dict[int, list[str]] = {}
    for count, name in enumerate(dict.fromkeys(names)):
        if is_computed and count > room * 3 // 4:
            room *= 2
            bins = _spread_out(bins, room)
        place = bins.setdefault(_spread(name) & (room - 1), [])
        is_crowded = len(place) >= _CROWDED - is_computed and room < _LARGE
        place.insert(0 if is_computed else len(place), name)
        is_full = not is_computed and count + 1 > room * 3 // 4
        for _ in range(is_crowded + is_full):
            room *= 2
            bins = _spread_out(bins, room)
    return [name for index in sorted(bins) for name in bins[index]]


def _spread_out(bins: dict[int, list[str]], room: int) -> dict[int, list[str]]:
    """The same names in more bins; those that stay together keep their order."""
    wider: dict[int, list[str]] = defaultdict(list)
    for names in bins.values():
        for name in names:
            wider[_spread(name) & (room - 1)].append(name)
    return wider


def _spread(name: str) -> int:
    """What HashMap makes of String.hashCode: the upper half counts in the lower."""
    units = name.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2])) & 0xFFFFFFFF
    return value ^ value >> 16

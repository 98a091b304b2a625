"""Iteration order of a java.util.HashMap, in which Kafka's tools print names.

Invariant: the order depends only on the keys and on how they were inserted. Keys are ordered by the
low bits of their hashes. Keys with the same bits are in insertion order, or reversed if they were
inserted by computeIfAbsent. Bins that Java converts to trees are not modelled, because names of
topics, settings and files do not produce them.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

_CROWDED: Final = 8
"""A bin with this many keys makes a small table grow."""
_LARGE: Final = 64
"""A table with this many bins no longer grows because of one bin."""


def in_hash_order(
    names: Iterable[str], capacity: int = 16, *, is_computed: bool = False
) -> list[str]:
    """Return names in the iteration order of a HashMap with this initial capacity.

    `is_computed` is for a map filled by computeIfAbsent: a new key goes to the front of its bin,
    and the map grows one key later.
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
    """Distribute the names over more bins; names in the same bin keep their order."""
    wider: dict[int, list[str]] = defaultdict(list)
    for names in bins.values():
        for name in names:
            wider[_spread(name) & (room - 1)].append(name)
    return wider


def _spread(name: str) -> int:
    """Return HashMap's hash of a string: hashCode with its upper half mixed into the lower."""
    units = name.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[at : at + 2])) & 0xFFFFFFFF
    return value ^ value >> 16

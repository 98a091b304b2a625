"""Iteration order of Java's hash tables, and Java's order of strings.

Invariant: a table yields its keys by bucket and, within a bucket, in insertion order; keys added by
`computeIfAbsent` come first. It doubles when it is more than three quarters full, or when a bucket
of a small table gets its ninth key, and never shrinks.

Java converts a bucket of nine keys into a tree once the table has 64 buckets, which changes its
order. That requires nine keys with equal low hash bits and is not reproduced.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, TypeVar

from ottla.ids import TopicPartition

K = TypeVar("K")

_BUCKETS_AT_FIRST: Final = 16
_BUCKETS_BEFORE_TREES: Final = 64
_CHAIN_MAX: Final = 8
_WORD: Final = 0xFFFF_FFFF


def text_order(text: str) -> bytes:
    """Return a sort key for Java's order of strings: by UTF-16 code units, not code points."""
    return text.encode("utf-16-be", "surrogatepass")


def partition_order(partition: TopicPartition) -> tuple[bytes, int]:
    """Return a sort key: by topic, then by partition number."""
    return text_order(partition.topic), partition.partition


def text_hash(text: str) -> int:
    """Return `String.hashCode` as an unsigned number."""
    units = text.encode("ascii") if text.isascii() else memoryview(_units(text)).cast("H")
    code = 0
    for unit in units:
        code = (31 * code + unit) & _WORD
    return code


def _units(text: str) -> bytes:
    """Return UTF-16 in native byte order without a byte order mark, for a cast to 16 bits."""
    return text.encode("utf-16", "surrogatepass")[2:]


def partition_hash(partition: TopicPartition) -> int:
    """Return `TopicPartition.hashCode` as an unsigned number."""
    return (31 * (31 + partition.partition) + text_hash(partition.topic)) & _WORD


class HashOrder(Generic[K]):
    """A set with the iteration order of Java's `HashMap` and `HashSet`."""

    __slots__ = ("_buckets", "_hash_of", "_size")

    def __init__(self, hash_of: Callable[[K], int], keys: Iterable[K] = ()) -> None:
        self._hash_of = hash_of
        self._buckets: list[list[K]] = [[] for _ in range(_BUCKETS_AT_FIRST)]
        self._size = 0
        for key in keys:
            self.add(key)

    def __iter__(self) -> Iterator[K]:
        for bucket in self._buckets:
            yield from bucket

    def __len__(self) -> int:
        return self._size

    def add(self, key: K) -> None:
        """Add a key at the end of its bucket."""
        bucket = self._bucket(key)
        if key in bucket:
            return
        bucket.append(key)
        if len(bucket) > _CHAIN_MAX and len(self._buckets) < _BUCKETS_BEFORE_TREES:
            self._double()
        self._size += 1
        if self._size > len(self._buckets) * 3 // 4:
            self._double()

    def compute(self, key: K) -> None:
        """Add a key at the start of its bucket, as `computeIfAbsent` does.

        The table is resized before the insertion and not after it, also for a present key, and a
        bucket of eight counts as full.
        """
        if self._size > len(self._buckets) * 3 // 4:
            self._double()
        bucket = self._bucket(key)
        if key in bucket:
            return
        bucket.insert(0, key)
        if len(bucket) >= _CHAIN_MAX and len(self._buckets) < _BUCKETS_BEFORE_TREES:
            self._double()
        self._size += 1

    def discard(self, key: K) -> None:
        """Remove a key."""
        bucket = self._bucket(key)
        if key in bucket:
            bucket.remove(key)
            self._size -= 1

    def _bucket(self, key: K) -> list[K]:
        code = self._hash_of(key)
        return self._buckets[(code ^ code >> 16) & (len(self._buckets) - 1)]

    def _double(self) -> None:
        keys = list(self)
        self._buckets = [[] for _ in range(2 * len(self._buckets))]
        for key in keys:
            self._bucket(key).append(key)

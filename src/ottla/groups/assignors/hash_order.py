"""The order in which Java's hash tables are iterated, and in which Java compares text.

Invariant: a table yields its keys by bucket and, within a bucket, in the order they came; those
that were computed come first. It doubles when more than three quarters of it are taken, or when a
bucket of a small table gets its ninth key, and never shrinks.

Java turns a bucket of nine keys into a tree once the table has 64 buckets, and then orders it in
another way. That takes nine keys with equal low bits of their hashes and is not imitated.
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
    """A sort key that orders text as Java does: by UTF-16 code units, not by code points."""
    return text.encode("utf-16-be", "surrogatepass")


def partition_order(partition: TopicPartition) -> tuple[bytes, int]:
    """A sort key: by topic, then by number."""
    return text_order(partition.topic), partition.partition


def text_hash(text: str) -> int:
    """`String.hashCode`, as a number without sign."""
    units = text.encode("ascii") if text.isascii() else memoryview(_units(text)).cast("H")
    code = 0
    for unit in units:
        code = (31 * code + unit) & _WORD
    return code


def _units(text: str) -> bytes:
    """UTF-16 in the byte order of this machine, as a cast to 16 bits reads it; without a mark."""
    return text.encode("utf-16", "surrogatepass")[2:]


def partition_hash(partition: TopicPartition) -> int:
    """`TopicPartition.hashCode`, as a number without sign."""
    return (31 * (31 + partition.partition) + text_hash(partition.topic)) & _WORD


class HashOrder(Generic[K]):
    """A set with the order of Java's `HashMap` and `HashSet`."""

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
        """Put a key in, behind those of its bucket."""
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
        """Put a key in as `computeIfAbsent` does: before those of its bucket.

        It looks for room before and not after, also for a key that is there already, and takes a
        bucket of eight for full.
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
        """Take a key out."""
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

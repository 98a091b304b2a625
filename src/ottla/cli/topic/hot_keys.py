"""The keys that make a partition larger than others: a sample of its newest records.

Invariant: a key is hot if it has at least a tenth of the sampled records of its partition. Records
without a key are not counted as a key: producers spread them over the partitions.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from ottla.cli.escapes import escaped
from ottla.cli.records.newest import newest_records
from ottla.ids import TopicPartition

SAMPLE_RECORDS: Final = 1000
"""Read from each skewed partition."""

PARTITIONS_MAX: Final = 10
"""Sampled at most, so that a topic with many skewed partitions does not keep the command busy."""

HOT_SHARE: Final = 0.1
SHOWN_MAX: Final = 3
KEY_CHARACTERS_MAX: Final = 60


class HotKey(NamedTuple):
    """A key, and its share of the sampled records."""

    key: str
    share: float


def hot_keys(keys: Iterable[bytes | None]) -> tuple[HotKey, ...]:
    """Return the hot keys of a sample, the hottest first."""
    counts = Counter(keys)
    total = counts.total()
    return tuple(
        HotKey(shown_key(key), count / total)
        for key, count in counts.most_common(SHOWN_MAX + 1)
        if key is not None and count >= HOT_SHARE * total
    )[:SHOWN_MAX]


def shown_key(key: bytes) -> str:
    """Return a key as text: UTF-8, else hexadecimal; long keys are cut."""
    try:
        text = escaped(key.decode())
    except UnicodeDecodeError:
        text = f"0x{key.hex()}"
    return text if len(text) <= KEY_CHARACTERS_MAX else f"{text[: KEY_CHARACTERS_MAX - 1]}…"


async def found_hot_keys(
    settings: Mapping[str, object], partitions: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[HotKey, ...]]:
    """Read samples of partitions, and return the hot keys of each."""
    sampled = sorted(partitions)[:PARTITIONS_MAX]
    keys: dict[TopicPartition, list[bytes | None]] = {one: [] for one in sampled}
    if sampled:
        for record in await newest_records(settings, sampled, SAMPLE_RECORDS):
            keys[record.topic_partition].append(record.key)
    return {one: hot_keys(some) for one, some in keys.items()}


def keys_shown(keys: Iterable[HotKey]) -> str:
    """Return hot keys in words; empty without any."""
    shown = ", ".join(f"{one.key} ({one.share:.0%})" for one in keys)
    return f"hot keys: {shown}" if shown else ""

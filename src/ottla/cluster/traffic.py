"""The traffic of partitions in bytes per second, as a broker returns it to other brokers and tools.

A broker returns the traffic that it has measured as a config of itself (`TRAFFIC_CONFIG`), because
Kafka's protocol has no field for it. Partitions without traffic are omitted.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

TRAFFIC_CONFIG: Final = "ottla.traffic"
"""The config in which a broker returns its traffic."""

Key = tuple[str, int]
"""A topic and a partition number."""


class Rates(NamedTuple):
    """The traffic of clients with a partition, in bytes per second."""

    bytes_in: int = 0  # of producers
    bytes_out: int = 0  # to consumers


class InvalidTraffic(ValueError):
    """A broker has returned something else than its traffic."""


class _Traffic(msgspec.Struct, frozen=True):
    seconds: int
    topics: dict[str, list[tuple[int, int, int]]]


def format_traffic(seconds: float, rates: Mapping[Key, Rates]) -> str:
    """Return the value of the config; the rates were measured over so many seconds."""
    topics: dict[str, list[tuple[int, int, int]]] = {}
    for (topic, index), one in sorted(rates.items()):
        topics.setdefault(topic, []).append((index, one.bytes_in, one.bytes_out))
    return msgspec.json.encode(_Traffic(round(seconds), topics)).decode()


def parse_traffic(value: str) -> dict[Key, Rates]:
    """Return the rates in the value of the config; raises InvalidTraffic."""
    try:
        found = msgspec.json.decode(value, type=_Traffic)
    except msgspec.DecodeError as error:
        raise InvalidTraffic(f"{TRAFFIC_CONFIG}: {error}") from error
    return {
        (topic, index): Rates(bytes_in, bytes_out)
        for topic, rows in found.topics.items()
        for index, bytes_in, bytes_out in rows
    }


def total_traffic(brokers: Iterable[Mapping[Key, Rates]]) -> dict[Key, Rates]:
    """Return the traffic of each partition with all brokers.

    Several brokers have traffic with a partition if its leader has changed while they measured, or
    if consumers read from followers.
    """
    found: dict[Key, Rates] = {}
    for rates in brokers:
        for key, one in rates.items():
            before = found.get(key, Rates())
            found[key] = Rates(before.bytes_in + one.bytes_in, before.bytes_out + one.bytes_out)
    return found

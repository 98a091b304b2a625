"""Compares the replicas of partitions.

Invariant: batches are compared up to the high watermark of each replica, by offset and checksum.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.client.partitions import Partition, partition
from ottla.errors import OttlaError
from ottla.records.batch import batches


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a replica returned."""

    high_watermark: int
    records: bytes


NOTHING: Final = Fetched(-1, b"")


class OffsetsDiffer(OttlaError):
    """Two replicas have other offsets at the same place."""


@dataclass(slots=True)
class Compared:
    """How far a partition is compared."""

    next_offset: int
    complaints: list[str]


def compare(name: object, replicas: Mapping[int, Fetched], offset: int) -> Compared:
    """Compare the batches of all replicas from an offset. Raises OffsetsDiffer."""
    found = Compared(offset, [])
    rows = {broker: batches(one.records, lenient=True) for broker, one in replicas.items()}
    while rows:
        first: tuple[int, int, int, int] | None = None
        for broker, row in rows.items():
            batch = next(row, None)
            header = None if batch is None else batch.header
            if header is None or header.last_offset >= replicas[broker].high_watermark:
                return found
            last, crc = header.last_offset, header.crc
            if first is None:
                first = (broker, last, header.next_offset, crc)
            elif first[1] != last:
                raise OffsetsDiffer(
                    f"partition {name}: replica {first[0]}'s offset {first[1]} doesn't match "
                    f"replica {broker}'s offset {last}"
                )
            elif first[3] != crc:
                found.complaints.append(
                    f"partition {name} has unmatched checksum at offset {last}; replica "
                    f"{first[0]}'s checksum {first[3]}; replica {broker}'s checksum {crc}"
                )
        assert first is not None
        found.next_offset = first[2]
    return found


class Verification:
    """The state of all partitions."""

    def __init__(
        self, replicas: Mapping[Partition, Sequence[int]], offsets: Mapping[Partition, int]
    ) -> None:
        self._replicas = replicas
        self.offsets = dict(offsets)

    def step(self, fetched: Mapping[int, Mapping[Partition, Fetched]]) -> tuple[list[str], str]:
        """Compare what the brokers returned; returns complaints and a report."""
        lag, where, complaints = -1, "", list[str]()
        for key, brokers in self._replicas.items():
            found = {one: fetched.get(one, {}).get(key, NOTHING) for one in brokers}
            compared = compare(partition(*key), found, self.offsets[key])
            complaints += compared.complaints
            self.offsets[key] = compared.next_offset
            end = max(one.high_watermark for one in found.values())
            if end - compared.next_offset > lag:
                lag = end - compared.next_offset
                where = f"{partition(*key)} at offset {compared.next_offset}"
        count = len(self._replicas)
        return complaints, f"max lag is {lag} for partition {where} among {count} partitions"

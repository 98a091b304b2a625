"""The load of a topic's partitions, and which of them are skewed.

Invariant: a partition is marked if it has more than twice the mean of its topic, in bytes or in new
records. With two partitions none can. Bytes and new records count only if there are enough that
chance does not double a share.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SKEW: Final = 2.0
NEW_RECORDS_MEAN_MIN: Final = 10
"""Per partition on average: with a mean of ten, chance exceeds twenty in 1 of 600 cases."""

SIZE_MEAN_MIN: Final = 10 * 16_384
"""Per partition on average: ten batches of a producer (batch.size), which are placed by chance."""

_MEAN_MIN: Final = {"size": SIZE_MEAN_MIN, "rate": NEW_RECORDS_MEAN_MIN}


@dataclass(frozen=True, slots=True)
class Load:
    """A partition's size on its leader and its first and end offsets; None if unknown."""

    size_bytes: int | None = None
    first_offset: int | None = None
    end_offset: int | None = None
    records_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """Two reads of end offsets, some seconds apart."""

    before: Mapping[int, int]
    after: Mapping[int, int]
    seconds: float

    def new_records(self) -> dict[int, int]:
        """Return the new records per partition; none if the end offset decreased."""
        return {
            index: max(0, end - self.before[index])
            for index, end in self.after.items()
            if index in self.before
        }

    def rates(self) -> dict[int, float]:
        """Return the records per second."""
        if self.seconds <= 0:
            return {}
        return {index: new / self.seconds for index, new in self.new_records().items()}


def skewed(sizes: Mapping[int, int], look: Look | None) -> dict[int, dict[str, float]]:
    """Return the partitions above twice the mean: "size" or "rate", and the factor."""
    found: dict[int, dict[str, float]] = {}
    for what, values in (("size", sizes), ("rate", look.new_records() if look else {})):
        mean = sum(values.values()) / len(values) if values else 0.0
        if mean < _MEAN_MIN[what]:
            continue
        for index, value in values.items():
            if value > SKEW * mean:
                found.setdefault(index, {})[what] = value / mean
    return found


def bytes_shown(count: int | None) -> str:
    """Format a size."""
    if count is None:
        return "-"
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def rate_shown(rate: float | None) -> str:
    """Format a rate."""
    if rate is None:
        return "-"
    return f"{rate:.0f}" if rate >= 10 or not rate else f"{rate:.1f}"

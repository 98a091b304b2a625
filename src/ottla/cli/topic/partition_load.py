"""What the partitions of a topic carry, and which of them carries too much.

Invariant: a partition is marked when it has more than twice the mean of its topic, of bytes or of
new records. Of two partitions none can have that. New records count once there are enough of them
that chance alone does not double a share.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SKEW: Final = 2.0
NEW_RECORDS_MEAN_MIN: Final = 10
"""For each partition, on average: of a share of ten, chance makes more than twenty in 1 of 600."""


@dataclass(frozen=True, slots=True)
class Load:
    """A partition's size on its leader, and where its records begin and end; None: not known."""

    size_bytes: int | None = None
    first_offset: int | None = None
    end_offset: int | None = None
    records_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """Two looks at the ends of partitions, so many seconds apart."""

    before: Mapping[int, int]
    after: Mapping[int, int]
    seconds: float

    def new_records(self) -> dict[int, int]:
        """How many came to each; what ends earlier than before was cut or made anew: none."""
        return {
            index: max(0, end - self.before[index])
            for index, end in self.after.items()
            if index in self.before
        }

    def rates(self) -> dict[int, float]:
        """Records a second."""
        if self.seconds <= 0:
            return {}
        return {index: new / self.seconds for index, new in self.new_records().items()}


def skewed(sizes: Mapping[int, int], look: Look | None) -> dict[int, dict[str, float]]:
    """The partitions above twice the mean: by what, "size" or "rate", and how often the mean."""
    found: dict[int, dict[str, float]] = {}
    for what, values in (("size", sizes), ("rate", look.new_records() if look else {})):
        mean = sum(values.values()) / len(values) if values else 0.0
        if not mean or (what == "rate" and mean < NEW_RECORDS_MEAN_MIN):
            continue
        for index, value in values.items():
            if value > SKEW * mean:
                found.setdefault(index, {})[what] = value / mean
    return found


def bytes_shown(count: int | None) -> str:
    """A size for people."""
    if count is None:
        return "-"
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def rate_shown(rate: float | None) -> str:
    """A rate for people."""
    if rate is None:
        return "-"
    return f"{rate:.0f}" if rate >= 10 or not rate else f"{rate:.1f}"

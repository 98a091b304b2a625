"""What the data directory around a partition tells of it.

Invariant: only what is written there is taken for known. A folder that was copied to another place
has no surroundings, and nothing is judged by them then.
"""

from dataclasses import dataclass, field
from typing import Final

from ottla.errors import StorageFailure
from ottla.ids import Offset, TopicPartition
from ottla.inspection.findings import Level
from ottla.inspection.text_files import offsets_in
from ottla.log.disk import Disk
from ottla.log.names import (
    CLEAN_SHUTDOWN,
    CLEANED_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    RECOVERY_POINTS,
)

# Topics that every broker compacts, whatever else is known of them.
_COMPACTED_TOPICS: Final = frozenset(
    ("__consumer_offsets", "__transaction_state", "__share_group_state")
)


@dataclass(frozen=True, slots=True)
class DirectoryContext:
    """A partition as its data directory sees it."""

    known: bool = False  # whether it lies in a data directory
    clean: bool = False  # whether the broker has stopped, and said that all is on the device
    compacted: bool = False  # offsets may be missing
    recovery_point: int = 0
    log_start: int | None = None

    @property
    def strictly(self) -> Level:
        """What a thing is that a broker which runs, or died, leaves behind but a clean stop never.

        The next start mends it.
        """
        return Level.DAMAGE if self.clean else Level.NOTE


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The checkpoints of a data directory, those that can be read."""

    path: str
    known: bool
    clean: bool
    offsets: dict[str, dict[TopicPartition, Offset]] = field(
        default_factory=dict[str, dict[TopicPartition, Offset]]
    )

    @classmethod
    def read(cls, disk: Disk, path: str) -> "Checkpoints":
        """Read what is there; a folder that is none has nothing to tell."""
        names = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS, CLEANED_OFFSETS)
        try:
            present = set(disk.names(path))
            if not present & {META_PROPERTIES, *names}:
                return cls(path, known=False, clean=False)
            offsets = {name: offsets_in(disk, f"{path}/{name}") for name in names}
        except (FileNotFoundError, StorageFailure):
            return cls(path, known=False, clean=False)
        return cls(path, True, CLEAN_SHUTDOWN in present, offsets)

    def around(self, partition: TopicPartition | None, *, compacted: bool) -> DirectoryContext:
        """What it tells of a partition; `compacted` when the user says so."""
        if partition is None:
            return DirectoryContext(compacted=compacted)
        compacted = compacted or partition.topic in _COMPACTED_TOPICS
        if not self.known:
            return DirectoryContext(compacted=compacted)
        return DirectoryContext(
            known=True,
            clean=self.clean,
            compacted=compacted or partition in self.offsets[CLEANED_OFFSETS],
            recovery_point=self.offsets[RECOVERY_POINTS].get(partition, 0),
            log_start=self.offsets[LOG_START_OFFSETS].get(partition),
        )

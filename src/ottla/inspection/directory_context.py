"""What the data directory of a partition says about it.

Invariant: only what is in the files counts. A copy outside of a data directory has no context and
is not compared with one.
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

# Internal topics are always compacted.
_COMPACTED_TOPICS: Final = frozenset(
    ("__consumer_offsets", "__transaction_state", "__share_group_state")
)


@dataclass(frozen=True, slots=True)
class DirectoryContext:
    """What is known about a partition from its data directory."""

    known: bool = False  # it is in a data directory
    clean: bool = False  # there is a clean shutdown mark
    compacted: bool = False  # gaps between offsets are allowed
    recovery_point: int = 0
    log_start: int | None = None

    @property
    def crash_level(self) -> Level:
        """The level of what a running or killed broker leaves, but a clean shutdown never does.

        The next start of the broker repairs it.
        """
        return Level.DAMAGE if self.clean else Level.NOTE


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The readable checkpoints of a data directory."""

    path: str
    known: bool
    clean: bool
    offsets: dict[str, dict[TopicPartition, Offset]] = field(
        default_factory=dict[str, dict[TopicPartition, Offset]]
    )

    @classmethod
    def read(cls, disk: Disk, path: str) -> "Checkpoints":
        """Read the checkpoints; a directory without any has no context."""
        names = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_START_OFFSETS, CLEANED_OFFSETS)
        try:
            present = set(disk.names(path))
            if not present & {META_PROPERTIES, *names}:
                return cls(path, known=False, clean=False)
            offsets = {name: offsets_in(disk, f"{path}/{name}") for name in names}
        except (FileNotFoundError, StorageFailure):
            return cls(path, known=False, clean=False)
        return cls(path, True, CLEAN_SHUTDOWN in present, offsets)

    def context(self, partition: TopicPartition | None, *, compacted: bool) -> DirectoryContext:
        """The context of a partition; `compacted` if the user says so."""
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

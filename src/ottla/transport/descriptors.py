"""How many connections the limit of open files allows.

Invariant: a connection is refused before it takes a file descriptor that the log may need next. The
log needs more as it grows, so that existing connections may become too many: the ones that have
been idle longest are then closed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ottla.errors import RAISE_OPEN_FILES
from ottla.transport.admission import Refusal

OTHER_DESCRIPTORS: Final = 64
"""For all but connections and log files.

An idle broker has 32 of them open: the event loop, listeners, and the reserve for directory syncs.
The others are for 16 connections of the metrics page, temporary files and pipes to child processes.
"""

ROLL_DESCRIPTORS: Final = 3
"""What a partition needs when its segment rolls: the new file, and two indexes of the old one."""


def connections_max(limit: int, open_files: int, partitions: int) -> int:
    """Return how many connections fit beside the files of the log.

    Every partition can roll its segment once more. If there are too many partitions for that, the
    connections get half of the free descriptors.
    """
    free = max(limit - OTHER_DESCRIPTORS - open_files, 0)
    return free - min(ROLL_DESCRIPTORS * partitions, free // 2)


@dataclass(frozen=True, slots=True)
class Descriptors:
    """The file descriptors of a process, counted when they are needed."""

    limit: Callable[[], int | None]  # of open files; None: unlimited
    open_files: Callable[[], int]  # of the log
    partitions: Callable[[], int]
    connections: Callable[[], int]  # of all listeners, also those that wait for admission

    @property
    def connections_max(self) -> int | None:
        """How many connections the limit allows; None if there is no limit."""
        limit = self.limit()
        if limit is None:
            return None
        return connections_max(limit, self.open_files(), self.partitions())

    @property
    def excess(self) -> int:
        """How many connections are over the limit, because the log has grown."""
        allowed = self.connections_max
        return 0 if allowed is None else max(self.connections() - allowed, 0)

    @property
    def reason(self) -> str:
        """Why there cannot be more connections."""
        return (
            f"the limit of {self.limit()} open files allows {self.connections_max} connections; "
            f"{RAISE_OPEN_FILES}"
        )

    def refusal(self) -> Refusal | None:
        """Return why a new connection is refused, if it is."""
        allowed = self.connections_max
        is_refused = allowed is not None and self.connections() >= allowed
        return Refusal(self.reason, is_final=True) if is_refused else None


UNLIMITED: Final = Descriptors(lambda: None, lambda: 0, lambda: 0, lambda: 0)
"""For a broker that shares its process, and its limit, with a test."""

"""The limits of the process that a broker runs in: open files and memory."""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CGROUP_MEMORY_FILES: Final = (
    "/sys/fs/cgroup/memory.max",  # version 2, as a container sees its own
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",  # version 1
)

OPEN_FILES_OF_MACOS: Final = 10_240
"""OPEN_MAX of macOS: the largest soft limit that it accepts if the hard limit is unlimited."""


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Limits and use; None means unlimited or unknown."""

    open_files_max: Callable[[], int | None]
    open_files: Callable[[], int]  # of the log
    memory_bytes: int | None


UNLIMITED: Final = ProcessLimits(lambda: None, lambda: 0, None)
"""For a broker that shares its process, and its limits, with a test."""


def raise_open_file_limit() -> None:
    """Raise the soft limit of open files to the hard one: connections and segments need many."""
    with suppress(ImportError):
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        for soft in (most, OPEN_FILES_OF_MACOS):
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, most))
                return


def open_files_max() -> int | None:
    """Return the present limit of open files, which an operator can change with prlimit."""
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def memory_bytes() -> int | None:
    """Return the memory of the machine, or of the container if that is less."""
    found: list[int] = []
    with suppress(OSError, ValueError, AttributeError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for path in CGROUP_MEMORY_FILES:
        with suppress(OSError, ValueError):  # `max` is not a number
            found.append(int(Path(path).read_text()))
    return min(found, default=None)

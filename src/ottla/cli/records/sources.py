"""Where lines come from: stdin, or files, with how far they are read.

Invariant: all files are open before the first line is read, so that one that is missing is told
before anything is done; all are closed at the end. The bar is on stderr, when that is a terminal
and there are files, and leaves no trace.
"""

import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from ottla.cli.failures import Failed, Misused
from ottla.cli.progress import progress


@dataclass(frozen=True, slots=True)
class Sources:
    """Open files, and who hears how much was read."""

    descriptors: Sequence[int]
    read: Callable[[int], object]


@contextmanager
def opened(paths: Sequence[Path]) -> Generator[Sources]:
    """Files for as long as the `with` lasts; stdin when none is named."""
    if not paths:
        if sys.stdin is None:
            raise Failed("there is nothing to read: stdin is closed")
        yield Sources([sys.stdin.fileno()], lambda size: None)
        return
    with ExitStack() as stack:
        descriptors: list[int] = []
        for path in paths:
            try:
                file = stack.enter_context(path.open("rb", buffering=0))
            except OSError as error:
                raise Misused(f"{path}: {error.strerror}") from None
            descriptors.append(file.fileno())
        total = sum(os.fstat(one).st_size for one in descriptors)
        yield Sources(descriptors, stack.enter_context(progress(total, in_bytes=True)))

"""Opens the input: stdin or files, with progress.

Invariant: every file is opened once before the first line is read, so that a missing one is
reported at once. Then one is open at a time, because there may be more than a process may open;
pipes cannot be reopened and stay open. All are closed at the end. The progress bar is on stderr,
only on a terminal and with files.
"""

import os
import stat
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from ottla.cli.failures import Failed, Misused
from ottla.cli.progress import progress


@dataclass(frozen=True, slots=True)
class Sources:
    """Open files, each until the next, and a callback for the bytes read."""

    descriptors: Iterable[int]
    read: Callable[[int], object]


@contextmanager
def opened(paths: Sequence[Path]) -> Generator[Sources]:
    """Open files for the `with` block; stdin if none is named."""
    if not paths:
        if sys.stdin is None:
            raise Failed("nothing to read: stdin is closed")
        yield Sources([sys.stdin.fileno()], lambda size: None)
        return
    with ExitStack() as stack:
        total, files = 0, list[Path | FileIO]()
        for path in paths:
            try:
                file = path.open("rb", buffering=0)
            except OSError as error:
                raise Misused(f"{path}: {error.strerror}") from None
            about = os.fstat(file.fileno())
            total += about.st_size
            if stat.S_ISREG(about.st_mode):
                file.close()
                files.append(path)
            else:
                files.append(stack.enter_context(file))
        descriptors = stack.enter_context(closing(_one_by_one(files)))
        yield Sources(descriptors, stack.enter_context(progress(total, in_bytes=True)))


def _one_by_one(files: Sequence[Path | FileIO]) -> Generator[int]:
    """Yield the descriptors of files; closed ones are open until the next."""
    for file in files:
        if isinstance(file, Path):
            with file.open("rb", buffering=0) as again:
                yield again.fileno()
        else:
            yield file.fileno()

"""Progress of long work.

Invariant: the bar is on stderr, only on a terminal, and is removed at the end. Otherwise nothing is
imported for it.
"""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager


@contextmanager
def progress(total: float, *, in_bytes: bool = False) -> Generator[Callable[[float], object]]:
    """Yield a function that is called with the amount of finished work."""
    if not sys.stderr.isatty():
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn()) if in_bytes else ()
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=total)
        yield lambda amount: shown.advance(task, amount)

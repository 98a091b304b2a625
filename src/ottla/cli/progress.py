"""How far long work is, for who watches it.

Invariant: the bar is on stderr, when that is a terminal, and leaves no trace. Otherwise nothing is
imported for it.
"""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager


@contextmanager
def progress(total: float, *, in_bytes: bool = False) -> Generator[Callable[[float], object]]:
    """What is told how much more is done, for as long as the `with` lasts."""
    if not sys.stderr.isatty():
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn()) if in_bytes else ()
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=total)
        yield lambda amount: shown.advance(task, amount)

"""How far a measurement is, for who watches it.

Invariant: the bar is on stderr, when that is a terminal, and leaves no trace.
"""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager


@contextmanager
def progress(total: int) -> Generator[Callable[[int], object]]:
    """What is told how many more are done, for as long as the `with` lasts."""
    if not sys.stderr.isatty():
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("", total=total)
        yield lambda count: shown.advance(task, count)

"""Shows a running collector: one line on a terminal, and problems with files on stderr.

Invariant: a problem is printed once until it is solved. What the producer waits for is a warning of
the client, which is printed as for other commands.
"""

import sys
from contextlib import ExitStack
from typing import Any

from ottla.cli.collect.collector import Counts
from ottla.cli.escapes import printable
from ottla.cli.result import complain


class ProgressLine:
    """Shows counts during the `with` block."""

    def __init__(self, topic: str, *, is_quiet: bool) -> None:
        self._topic = topic
        self._is_shown = sys.stderr.isatty() and not is_quiet
        self._live: Any = None
        self._before: tuple[float, int] | None = None
        self._told: set[tuple[str, str]] = set()
        self._resources = ExitStack()

    def __enter__(self) -> "ProgressLine":
        if self._is_shown:
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True, highlight=False, markup=False, emoji=False)
            self._live = self._resources.enter_context(
                Live(console=console, auto_refresh=False, transient=True)
            )
        return self

    def __exit__(self, *exception: object) -> None:
        self._resources.close()

    def show(self, counts: Counts, now_s: float) -> None:
        """Show the counts, and problems that are new."""
        for problem in counts.problems:
            if problem not in self._told:
                path, why = problem
                complain(f"{path}: {why}; it is tried again")
        self._told = {*counts.problems}
        if self._live is not None:
            from rich.text import Text

            text = progress_text(self._topic, counts, self._rate(counts, now_s))
            self._live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)

    def _rate(self, counts: Counts, now_s: float) -> float:
        before, self._before = self._before, (now_s, counts.bytes)
        if before is None or now_s <= before[0]:
            return 0.0
        return (counts.bytes - before[1]) / (now_s - before[0])


def progress_text(topic: str, counts: Counts, bytes_per_s: float) -> str:
    """Return the line for a terminal."""
    files = "1 file" if counts.files == 1 else f"{counts.files:,} files"
    lines = "1 line" if counts.lines == 1 else f"{counts.lines:,} lines"
    parts = [
        f"{files} to {printable(topic)}",
        lines,
        f"{counts.bytes / 1e6:,.1f} MB",
        f"{bytes_per_s / 1e6:,.1f} MB/s",
        f"{counts.behind_bytes / 1e6:,.1f} MB behind",
    ]
    if counts.waiting_s >= 1:
        parts.append(f"waiting for the brokers for {counts.waiting_s:.0f} s")
    return "   ".join(parts)

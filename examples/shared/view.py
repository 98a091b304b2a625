"""Shows the state of an example: a live view on a terminal, elsewhere a line every ten seconds."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from shared.example import Example, Topic
from shared.monitor import Snapshot

PICTURE_WIDTH: Final = 100
LINE_INTERVAL_S: Final = 10.0
VERBATIM: Final[Mapping[str, Any]] = {"highlight": False, "markup": False, "emoji": False}
"""For consoles that show names and paths as they are, also with brackets."""


def render(example: Example, snapshot: Snapshot) -> RenderableType:
    """The live view."""
    heading = Text.assemble(
        (f"Ottla {example.name}", "bold"),
        f"   broker {snapshot.broker or '…'}   {snapshot.elapsed_s:.0f} s   ",
        (snapshot.stage, "green" if snapshot.stage == "running" else "yellow"),
    )
    counts = Text.assemble(
        (f"{_since(snapshot)}   ", "dim"),
        (f"{snapshot.input_count:,}", "bold"),
        f" {example.input.label} ({snapshot.input_per_s:,.0f}/s)",
    )
    parts: list[RenderableType] = [heading, counts]
    if snapshot.progress:
        parts.append(_progress_table(snapshot))
    for output in example.outputs:
        state = snapshot.output(output.label)
        counts.append("   ").append(f"{state.count:,}", f"bold {output.style}")
        counts.append(f" {output.label}")
        if output.panel is not None:
            rows = output.panel(state.latest) if state.latest else Text("none yet", style="dim")
            parts.append(Panel(rows, title=f"latest {output.label}", title_align="left"))
    hint = Text("Ctrl-C stops the example. The next start continues from here.", style="dim")
    return Group(*parts, _path_table(snapshot.paths), hint)


def _progress_table(snapshot: Snapshot) -> RenderableType:
    part, *headings = snapshot.progress[0].headings
    table = Table(part, box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        table.add_column(heading, justify="right", min_width=9)
    for one in snapshot.progress:
        table.add_row(one.name, *one.cells(snapshot.input_total))
    return table


def _path_table(paths: Mapping[str, str]) -> RenderableType:
    table = Table(box=None, pad_edge=False, show_header=False)
    for label, path in paths.items():
        table.add_row(Text(label, style="dim"), Text(path, overflow="fold"))
    return table


def status_line(example: Example, snapshot: Snapshot) -> str:
    """The state in one line."""
    counts = [f"{snapshot.output(one.label).count:,} {one.label}" for one in example.outputs]
    counts.insert(0, f"{snapshot.input_count:,} {example.input.label}")
    lag = _or_dots(snapshot.lag)
    return f"{snapshot.elapsed_s:4.0f} s  {snapshot.stage}: {', '.join(counts)}, lag {lag}"


def summary(example: Example, snapshot: Snapshot) -> str:
    """The counts of this run and of all runs, and where the data is."""
    counts = {example.input.label: (snapshot.input_count, snapshot.input_total)}
    places = {example.input.label: f"topic {example.input.name}"}
    paths = dict(snapshot.paths)
    for output in example.outputs:
        state = snapshot.output(output.label)
        counts[output.label] = (state.count, state.total)
        is_topic = isinstance(output, Topic)
        places[output.label] = f"topic {output.name}" if is_topic else paths.pop(output.label)
    rows = {_since(snapshot): f"{'this run':>12}{'all runs':>12}"}
    for label, (count, total) in counts.items():
        rows[label] = f"{count:>12,}{total:>12,}  {places[label]}"
    rows["lag"] = f"{_or_dots(snapshot.lag):>12} {example.input.label}"
    rows |= {label: f"  {path}" for label, path in paths.items()}
    width = max(map(len, rows))
    return "\n".join(f"  {label:<{width}}{text}" for label, text in rows.items())


def _since(snapshot: Snapshot) -> str:
    """From when the run counts. The times of readings are in UTC, too."""
    return f"since {snapshot.since:%H:%M:%S} UTC" if snapshot.since else "since the start"


def _or_dots(number: int | None) -> str:
    return "…" if number is None else f"{number:,}"


class Screen:
    """Shows snapshots of an example during the `with` block."""

    def __init__(self, example: Example, output: TextIO, **options: Any) -> None:
        """`options` are those of rich's Console."""
        self.snapshot = Snapshot()
        self._example = example
        self._console = Console(file=output, **VERBATIM, **options)
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            # PySpark's threads write to stderr, and that belongs into the log file.
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._line_s = -LINE_INTERVAL_S

    @property
    def is_live(self) -> bool:
        """Whether the output is a terminal."""
        return self._console.is_terminal

    def __enter__(self) -> "Screen":
        if self.is_live:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.is_live:
            self._live.stop()

    def show(self, snapshot: Snapshot) -> None:
        """Show a state: at once on a terminal, else if its stage is new or ten seconds are over."""
        is_new_stage = snapshot.stage != self.snapshot.stage
        self.snapshot = snapshot
        if self.is_live:
            self._live.update(render(self._example, snapshot), refresh=True)
        elif is_new_stage or snapshot.elapsed_s >= self._line_s + LINE_INTERVAL_S:
            self._line_s = snapshot.elapsed_s
            self.print(status_line(self._example, snapshot))

    def show_stage(self, stage: str) -> None:
        """Show the last state with another stage."""
        self.show(replace(self.snapshot, stage=stage))

    def show_summary(self) -> None:
        """Print the summary, if a broker was started."""
        if self.snapshot.broker:
            self.print(summary(self._example, self.snapshot))

    def print(self, text: str) -> None:
        """Print a text without wrapping it."""
        self._console.print(text, soft_wrap=True)

    def save_picture(self, path: Path) -> None:
        """Write the live view as an SVG image."""
        with open(os.devnull, "w") as nowhere:
            console = Console(
                record=True, width=PICTURE_WIDTH, file=nowhere, force_terminal=True, **VERBATIM
            )
            console.print(render(self._example, replace(self.snapshot, stage="running")))
            console.save_svg(str(path), title="make run")

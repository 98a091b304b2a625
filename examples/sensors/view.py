"""What one sees: the picture on a terminal, a line now and then elsewhere, and the summary.

Invariant: everything that is shown is in a `Sight`; to show it asks nobody and changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sensors.progress import Progress
from sensors.topics import ALERTS, DEAD_LETTERS, READINGS

AVERAGES_SHOWN: Final = 6
ALERTS_SHOWN: Final = 6


@dataclass(slots=True)
class Sight:
    """How things are at a moment."""

    stage: str = "starting"
    broker: str = ""
    places: Mapping[str, str] = field(default_factory=dict[str, str])
    elapsed_s: float = 0.0
    readings: int = 0
    readings_per_s: float = 0.0
    averages: int = 0
    alerts: int = 0
    dead_letters: int = 0
    latest_averages: Sequence[Mapping[str, Any]] = ()
    latest_alerts: Sequence[Mapping[str, Any]] = ()
    queries: Sequence[Progress] = ()
    in_topic: int = 0  # readings, from the first one on

    @property
    def lag(self) -> int | None:
        """Of the query that is farthest behind; None until each has told how far it is."""
        if not self.queries or any(query.batch is None for query in self.queries):
            return None
        return self.in_topic - min(query.done for query in self.queries)


def picture(sight: Sight) -> RenderableType:
    """What a terminal shows."""
    head = Text.assemble(
        ("Ottla sensors", "bold"),
        f"   broker {sight.broker or '…'}   {sight.elapsed_s:.0f} s   ",
        (sight.stage, "green" if sight.stage == "running" else "yellow"),
    )
    counts = Text.assemble(
        (f"{sight.readings:,}", "bold"),
        f" readings ({sight.readings_per_s:,.0f}/s)   ",
        (f"{sight.averages:,}", "bold"),
        " averages   ",
        (f"{sight.alerts:,}", "bold red"),
        " alerts   ",
        (f"{sight.dead_letters:,}", "bold yellow"),
        " dead letters",
    )
    parts: list[RenderableType] = [
        head,
        counts,
        _queries(sight.queries, sight.in_topic),
        Panel(_averages(sight.latest_averages), title="latest averages", title_align="left"),
        Panel(_alerts(sight.latest_alerts), title="alerts", title_align="left"),
        _places(sight.places),
        Text("Ctrl-C ends it; the next start goes on from there.", style="dim"),
    ]
    return Group(*parts)


def _queries(queries: Sequence[Progress], in_topic: int) -> RenderableType:
    table = Table("query", box=None, pad_edge=False, header_style="dim")
    for heading in ("batch", "batch time", "rows/s", "lag", "too late"):
        table.add_column(heading, justify="right", min_width=9)
    for one in queries:
        if one.batch is None:
            table.add_row(one.name, "…", "", "", "…")
            continue
        table.add_row(
            one.name,
            f"{one.batch:,}",
            f"{one.batch_ms / 1000:.1f} s",
            f"{one.rows_per_s:,.0f}",
            f"{in_topic - one.done:,}",
            f"{one.too_late:,}" if one.too_late else "",
        )
    return table


def _averages(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    if not rows:
        return Text("none yet: they come with the first micro-batch", style="dim")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("device", "from", "to"):
        table.add_column(heading)
    for heading in ("temperature", "vibration", "readings"):
        table.add_column(heading, justify="right")
    hottest = sorted(rows, key=lambda row: -row["temperature"])
    for row in hottest[:AVERAGES_SHOWN]:
        table.add_row(
            Text(row["device"]),
            f"{row['start']:%H:%M:%S}",
            f"{row['end']:%H:%M:%S}",
            f"{row['temperature']:.2f} °C",
            f"{row['vibration']:.3f} g",
            f"{row['readings']}",
        )
    more = len(rows) - AVERAGES_SHOWN
    return Group(table, Text(f"the hottest; {more} more", style="dim")) if more > 0 else table


def _alerts(alerts: Sequence[Mapping[str, Any]]) -> RenderableType:
    if not alerts:
        return Text("none yet", style="dim")
    table = Table(box=None, pad_edge=False, show_header=False)
    for alert in list(alerts)[-ALERTS_SHOWN:]:
        table.add_row(
            Text(alert["device"], style="red"),
            Text(alert["at"][11:19]),
            Text(f"{alert['signal']} {alert['value']:.2f}"),
            Text(f"usually {alert['mean']:.2f} ± {alert['deviation']:.2f}", style="dim"),
        )
    return table


def _places(places: Mapping[str, str]) -> RenderableType:
    table = Table(box=None, pad_edge=False, show_header=False)
    for what, where in places.items():
        table.add_row(Text(what, style="dim"), Text(where, overflow="fold"))
    return table


def line(sight: Sight) -> str:
    """What is printed now and then where there is no terminal."""
    return (
        f"{sight.elapsed_s:4.0f} s  {sight.stage}: {sight.readings:,} readings, "
        f"{sight.averages:,} averages, {sight.alerts:,} alerts, "
        f"{sight.dead_letters:,} dead letters, lag {_count(sight.lag)}"
    )


def _count(number: int | None) -> str:
    return "…" if number is None else f"{number:,}"


def summary(sight: Sight) -> str:
    """What is left where, at the end."""
    counts = {
        "readings in": f"{sight.readings:,}  (topic {READINGS})",
        "averages written": f"{sight.averages:,}",
        "alerts": f"{sight.alerts:,}  (topic {ALERTS})",
        "dead letters": f"{sight.dead_letters:,}  (topic {DEAD_LETTERS})",
        "lag": f"{_count(sight.lag)} readings",
    }
    rows = [*counts.items(), *sight.places.items()]
    width = max(len(what) for what, _ in rows)
    return "\n".join(f"  {what:<{width}}  {where}" for what, where in rows)

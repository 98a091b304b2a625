"""Describes the sensors example to the runner: topics, files, queries and what to show of them."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sensors.devices import messages
from shared import spark_job
from shared.example import Example, Files, Row, Topic
from shared.feed import generated

PIPELINE: Final = Path(__file__).with_name("pipeline.yml")
READINGS: Final = "sensors.readings"
ALERTS: Final = "sensors.alerts"
DEAD_LETTERS: Final = "sensors.dead-letters"

ROWS_SHOWN: Final = 6


def load_example() -> Example:
    """Describe the example to the runner."""
    import_module("sensors.anomalies")  # while Spark starts: this imports PySpark and pandas

    texts, numbers = ("device", "at", "signal"), ("value", "mean", "deviation")
    columns = {**dict.fromkeys(texts, str), **dict.fromkeys(numbers, float)}
    return Example(
        name="sensors",
        # One partition has all readings of a device, in order, because the device is their key.
        input=Topic("readings", READINGS, 4),
        outputs=(
            Files("averages", "device-averages", "end", averages_panel),
            Topic("alerts", ALERTS, 1, columns, alerts_panel, style="red"),
            Topic("dead letters", DEAD_LETTERS, 1, style="yellow"),
        ),
        feed=generated(READINGS, messages),
        job=spark_job.declared(PIPELINE),
    )


def averages_panel(rows: Sequence[Row]) -> RenderableType:
    """The hottest devices of the last ten seconds."""
    table = Table("device", "from", "to", box=None, pad_edge=False, header_style="dim")
    for heading in ("temperature", "vibration", "readings"):
        table.add_column(heading, justify="right")
    for row in sorted(rows, key=lambda row: -row["temperature"])[:ROWS_SHOWN]:
        table.add_row(
            Text(row["device"]),
            f"{row['start']:%H:%M:%S}",
            f"{row['end']:%H:%M:%S}",
            f"{row['temperature']:.2f} °C",
            f"{row['vibration']:.3f} g",
            f"{row['readings']}",
        )
    if len(rows) <= ROWS_SHOWN:
        return table
    return Group(table, Text(f"the {ROWS_SHOWN} hottest of {len(rows)} devices", style="dim"))


def alerts_panel(rows: Sequence[Row]) -> RenderableType:
    """The latest alerts."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for row in rows[-ROWS_SHOWN:]:
        table.add_row(
            Text(row["device"], style="red"),
            Text(row["at"][11:19]),
            Text(f"{row['signal']} {row['value']:.2f}"),
            Text(f"mean {row['mean']:.2f} ± {row['deviation']:.2f}", style="dim"),
        )
    return table

"""Describes the logs example to the runner: topics, the collector, the pipeline, what to show."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from logs.collector import TOPIC, CollectedLogs
from shared.example import Example, Row, Topic
from shared.spark_job import declared

PIPELINE: Final = Path(__file__).with_name("pipeline.yml")
ERRORS: Final = "logs.errors"
DEAD_LETTERS: Final = "logs.dead-letters"
ROWS_SHOWN: Final = 8


def load_example() -> Example:
    """Describe the example to the runner."""
    columns = {"service": str, "minute": str, "errors": float, "lines": float}
    return Example(
        name="logs",
        # One partition has all lines of a file, in order, because the path is their key.
        input=Topic("lines", TOPIC, 4),
        outputs=(
            Topic("error counts", ERRORS, 1, columns, errors_panel, style="red"),
            Topic("dead letters", DEAD_LETTERS, 1, style="yellow"),
        ),
        feed=CollectedLogs,
        job=declared(PIPELINE),
    )


def errors_panel(rows: Sequence[Row]) -> RenderableType:
    """The latest counts, one row for each service and minute."""
    table = Table("minute", "service", box=None, pad_edge=False, header_style="dim")
    for heading in ("errors", "lines"):
        table.add_column(heading, justify="right")
    newest = {(row["minute"], row["service"]): row for row in rows}
    for (minute, service), row in sorted(newest.items(), reverse=True)[:ROWS_SHOWN]:
        errors = Text(f"{row['errors']:,}", style="red" if row["errors"] else "dim")
        table.add_row(Text(minute[11:16]), Text(service), errors, f"{row['lines']:,}")
    return table

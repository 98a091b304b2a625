"""Describes the messaging example to the runner: topics, services and what to show of them."""

from collections.abc import Sequence
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from messaging.customers import messages
from messaging.supervisor import ServicesJob
from messaging.topics import (
    ANSWERS,
    DELAYS_S,
    MAILS,
    ORDERS,
    SENT_MAILS,
    STOCK,
    STOCK_REPLIES,
    parking_topic,
    retry_topic,
)
from shared.example import Example, Row, Topic
from shared.feed import generated

ROWS_SHOWN: Final = 8
PARTITIONS: Final = 3


def load_example() -> Example:
    """Describe the example to the runner."""
    columns = {**dict.fromkeys(("order", "customer", "item", "status"), str), "count": float}
    others = {STOCK: PARTITIONS, STOCK_REPLIES: 1, MAILS: PARTITIONS}
    others |= {parking_topic(topic): 1 for topic in (STOCK, MAILS)}
    for attempts in range(1, len(DELAYS_S) + 1):
        # The records of one partition are ordered by time, so the first is the next one due.
        others |= {retry_topic(topic, attempts): 1 for topic in (ORDERS, MAILS)}
    return Example(
        name="messaging",
        input=Topic("orders", ORDERS, PARTITIONS),
        outputs=(
            Topic("answers", ANSWERS, PARTITIONS, columns, answers_panel),
            Topic("mails", SENT_MAILS, 1),
            Topic("parked orders", parking_topic(ORDERS), 1, style="yellow"),
        ),
        feed=generated(ORDERS, messages),
        job=ServicesJob,
        topics=[Topic(name, name, count) for name, count in others.items()],
    )


def answers_panel(rows: Sequence[Row]) -> RenderableType:
    """The latest answers."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for row in rows[-ROWS_SHOWN:]:
        table.add_row(
            Text(row["order"], style="dim"),
            Text(row["customer"]),
            Text(f"{row['count']:g} {row['item']}"),
            Text(row["status"], style="green" if row["status"] == "reserved" else "yellow"),
        )
    return table

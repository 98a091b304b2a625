"""The description of an example: its input, its queries, and what they write."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import RenderableType

from ottla.ids import PartitionIndex, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Row = Mapping[str, Any]
Panel = Callable[[Sequence[Row]], RenderableType]
"""Draws the latest rows of an output; there is at least one."""


class Message(Protocol):
    """A record of the input, and the time at which it is sent."""

    @property
    def due_ms(self) -> int:
        """When to send it."""
        ...

    @property
    def key(self) -> str:
        """The key of the record."""
        ...

    @property
    def value(self) -> bytes:
        """The value of the record."""
        ...


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: the input of an example, or the output of a query.

    With a panel, the view shows the latest records. They are JSON objects with these columns, which
    are `str` or `float`; other records are not shown.
    """

    label: str
    name: str
    partition_count: int
    columns: Mapping[str, type] | None = None
    panel: Panel | None = None
    style: str = ""  # of its count

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions of the topic."""
        indexes = map(PartitionIndex, range(self.partition_count))
        return [TopicPartition(self.name, index) for index in indexes]


@dataclass(frozen=True, slots=True)
class Files:
    """Parquet files that a query writes; the latest rows have the highest value of a column."""

    label: str
    directory: str
    latest_by: str
    panel: Panel
    style: str = ""


Start = Callable[[], "StreamingQuery"]
"""Starts a query, or starts it again from its checkpoint."""


@dataclass(frozen=True, slots=True)
class Example:
    """What a runner needs to know of an example.

    The first query writes the first output. The other queries start after it has written something.
    """

    name: str
    input: Topic
    outputs: Sequence[Files | Topic]
    messages: Callable[[int, int, int], Iterable[Message]]
    """Returns the input for a seed from one time in milliseconds to another."""
    queries: Callable[["SparkSession", str, Path], Mapping[str, Start]]
    """Returns the queries by name, for a session, bootstrap servers and a directory."""

    @property
    def topics(self) -> list[Topic]:
        """All topics, the input first."""
        return [self.input, *(one for one in self.outputs if isinstance(one, Topic))]

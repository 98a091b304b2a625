"""The description of an example: its input, its job, and what that writes.

The docstring of this package says what an example has to offer.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ottla.errors import OttlaError
from ottla.ids import PartitionIndex, TopicPartition

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ottla.pipeline.local_spark import LocalSpark

Row = Mapping[str, Any]
Panel = Callable[[Sequence[Row]], "RenderableType"]
"""Draws the latest rows of an output; there is at least one."""


class RunFailed(OttlaError):
    """The example cannot continue; the text has the reason."""


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

    @property
    def headers(self) -> Sequence[tuple[str, bytes]]:
        """The headers of the record."""
        ...


Messages = Callable[[int, int, int], Iterable[Message]]
"""Returns the input for a seed from one time in milliseconds to another."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic: the input of an example, or an output.

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


@dataclass(frozen=True, slots=True)
class Context:
    """Where an example runs."""

    servers: str
    directory: Path
    """For everything that the example writes."""
    seed: int
    start_ms: int
    """The time from which the input is sent: after all records of earlier runs."""
    is_broker_running: Callable[[], bool]
    spark: "LocalSpark | None" = None
    """Spark has started when the job is created. The feed is created before that."""


class Feed(Protocol):
    """Writes the input during its `with` block."""

    def __enter__(self) -> object: ...

    def __exit__(self, *exception: object) -> None: ...

    @property
    def failure(self) -> Exception | None:
        """Why it cannot continue, or None."""
        ...

    def stop(self) -> None:
        """Stop, and wait until everything is written; a second call does nothing."""
        ...


class Progress(Protocol):
    """The progress of a part of the job: a query, or a service."""

    @property
    def name(self) -> str:
        """The name of the part."""
        ...

    headings: ClassVar[Sequence[str]]
    """The headings of its row in the view: what the part is, and those of its cells."""

    def cells(self, input_total: int) -> Sequence[str]:
        """The cells of its row after the name, given the records of the input in all runs."""
        ...

    def lag(self, input_total: int) -> int | None:
        """How many of these records the part has still to process; None if it is not known yet."""
        ...


class Job(Protocol):
    """Reads the input and writes the outputs, from `start` to `stop`."""

    def start(self) -> None:
        """Start all parts."""
        ...

    def check(self) -> None:
        """Restart what has failed and can be restarted; raise RunFailed for other failures."""
        ...

    def progress(self) -> Sequence[Progress]:
        """Return the progress of all parts that have started."""
        ...

    def stop(self) -> None:
        """Stop all parts; what they have not finished is for the next run."""
        ...


@dataclass(frozen=True, slots=True)
class Example:
    """What a runner needs to know of an example."""

    name: str
    input: Topic
    outputs: Sequence[Files | Topic]
    feed: Callable[[Context], Feed]
    job: Callable[[Context], Job]
    topics: Sequence[Topic] = ()
    """More topics to create, which the view does not show."""

    @property
    def counted_topics(self) -> list[Topic]:
        """The topics whose records are counted, the input first."""
        return [self.input, *(one for one in self.outputs if isinstance(one, Topic))]

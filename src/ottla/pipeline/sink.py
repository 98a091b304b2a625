"""The sink of `format("ottla")`: writes Spark rows to topics.

Invariant: a task returns after the brokers have acknowledged its records. Spark repeats a failed
task, and its records are written again: at least once, as in Spark's Kafka connector. An invalid
schema, or a row without a topic, is refused before any of its records is sent.

Spark starts a Python process on the driver to commit each micro-batch. Only the tasks import the
producer.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from ottla.pipeline.client_pool import ClientPool
from ottla.pipeline.options import BadOption, Use, checked, client_settings

if TYPE_CHECKING:
    from ottla.client.sync.producer import Producer

_TEXT: Final = ("binary", "string")
_HEADERS: Final = ("array<struct<key:string,value:binary>>",)
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "key": _TEXT,
    "value": _TEXT,
    "headers": _HEADERS,
    "partition": ("int",),
}
"""The columns that are written, and their allowed types."""


BULK: Final[Mapping[str, object]] = {"batch.size": 128 << 10}
"""Defaults of the tasks' producers. A task has all its rows at once, so large batches cost least.
The producer splits a batch that is too large for its topic."""


def _producer(settings: dict[str, object]) -> "Producer[bytes, bytes]":
    from ottla.client.sync.producer import Producer

    return Producer(settings).__enter__()


# A task gets only what was pickled for it, so the pool is a global of the worker process.
PRODUCERS: Final = ClientPool(_producer)


class BadSchema(ValueError):
    """Rows with this schema cannot be written."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The parsed options of a sink."""

    settings: Mapping[str, object]
    topic: str | None


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Parse the options of a sink; raise BadOption with what to change."""
    options = checked(given, Use.SINK)
    topic = options.get("topic")
    if topic is not None and not topic.strip():
        raise BadOption("topic is empty")
    return SinkOptions(client_settings(options, Use.SINK), topic)


def check_schema(schema: StructType, topic: str | None) -> None:
    """Raise BadSchema if rows with this schema cannot be written."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in kinds:
        raise BadSchema("column value is missing: add it, as string or binary")
    if topic is None and "topic" not in kinds:
        raise BadSchema('column topic is missing: add it, or set .option("topic", "...")')
    for name, kind in kinds.items():
        if kind not in COLUMNS.get(name, (kind,)):  # other columns are ignored
            allowed = " or ".join(COLUMNS[name])
            raise BadSchema(f"column {name} is {kind}: cast it to {allowed}")


class Written(WriterCommitMessage):
    """The number of rows that a task has written."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows


@dataclass(frozen=True, slots=True)
class RowWriter:
    """Writes the rows of a task to topics."""

    options: SinkOptions
    columns: frozenset[str]

    def write(self, batches: Iterator[Any]) -> Written:
        """Send Arrow batches and wait for all acknowledgements."""
        full = (batch for batch in batches if batch.num_rows)
        first = next(full, None)
        if first is None:
            return Written(0)  # without a connection
        rows = 0
        with PRODUCERS.borrow({**BULK, **self.options.settings}) as producer:
            sent: list[Any] = []
            for batch in chain((first,), full):
                rows += batch.num_rows
                for topic, part in _by_topic(batch, self.options.topic):
                    sent += self._send(producer, topic, part)
            for one in sent:
                one.result()
        return Written(rows)

    def _send(self, producer: "Producer[bytes, bytes]", topic: str, rows: Any) -> list[Any]:
        import pyarrow.compute

        compute: Any = pyarrow.compute
        named = {
            name: name if name in self.columns else None for name in ("key", "value", "headers")
        }
        if "partition" not in self.columns:
            return [producer.send_arrow(topic, rows, **named)]
        chosen = rows.column("partition")
        free = compute.is_null(chosen)
        return [
            producer.send_arrow(topic, part, **named, partition=partition)
            for partition, part in (
                ("partition", rows.filter(compute.invert(free))),
                (None, rows.filter(free)),
            )
            if part.num_rows
        ]


def _by_topic(batch: Any, topic: str | None) -> Iterator[tuple[str, Any]]:
    """Yield the rows of each topic, in the order of the topics' first rows."""
    if topic is not None:
        yield topic, batch
        return
    import pyarrow.compute

    compute: Any = pyarrow.compute
    names = batch.column("topic")
    if names.null_count:
        raise BadSchema(
            'a row has null in column topic: fill the column, or set .option("topic", "...")'
        )
    for name in compute.unique(names).to_pylist():
        yield name, batch.filter(compute.equal(names, name))


class OttlaWriter(DataSourceArrowWriter):
    """The writer of a batch."""

    def __init__(self, writer: RowWriter) -> None:
        self._writer = writer

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of a task."""
        return self._writer.write(iterator)


class OttlaStreamWriter(DataSourceStreamArrowWriter):
    """The writer of micro-batches."""

    def __init__(self, writer: RowWriter) -> None:
        self._writer = writer

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of a task."""
        return self._writer.write(iterator)


def row_writer(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> RowWriter:
    """Return a writer for rows of a schema; raise BadOption or BadSchema."""
    if overwrite:
        raise BadOption('a topic cannot be overwritten: use mode("append")')
    options = sink_options(given)
    check_schema(schema, options.topic)
    return RowWriter(options, frozenset(field.name for field in schema.fields))

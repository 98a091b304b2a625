"""The sink of `format("ottla")`: rows of Spark become records of topics.

Invariant: what a task returns for was acknowledged by the brokers; what is repeated because a task
failed is written again (at least once, as Spark's Kafka connector does it). A schema that cannot be
written, or rows without a topic, are refused before a record of theirs is sent.

Spark starts a Python process for each micro-batch to say that it is done: the producer is imported
by the tasks alone.
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
"""The columns that are written, with the types that they may have."""


BULK: Final[Mapping[str, object]] = {"batch.size": 128 << 10}
"""What tasks write with unless they are told otherwise: their rows are there at once, and a batch
costs much the same whatever is in it. One that is too large for its topic is sent in parts."""


def _producer(settings: dict[str, object]) -> "Producer[bytes, bytes]":
    from ottla.client.sync.producer import Producer

    return Producer(settings).__enter__()


# Spark gives a task nothing but what was pickled for it: what outlives a task is the process's.
PRODUCERS: Final = ClientPool(_producer)


class BadSchema(ValueError):
    """Rows that cannot be written."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What a sink is told."""

    settings: Mapping[str, object]
    topic: str | None


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """The options of a sink; BadOption says what to mend."""
    options = checked(given, Use.SINK)
    topic = options.get("topic")
    if topic is not None and not topic.strip():
        raise BadOption("topic is empty")
    return SinkOptions(client_settings(options, Use.SINK), topic)


def check_schema(schema: StructType, topic: str | None) -> None:
    """BadSchema unless rows of a schema can be written."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "value" not in kinds:
        raise BadSchema("rows need a column value, of type string or binary")
    if topic is None and "topic" not in kinds:
        raise BadSchema('rows need a column topic, or .option("topic", "...") says where they go')
    for name, kind in kinds.items():
        if kind not in COLUMNS.get(name, (kind,)):  # other columns are left out
            may = " or ".join(COLUMNS[name])
            raise BadSchema(f"column {name} is {kind}, and has to be {may}: cast it")


class Done(WriterCommitMessage):
    """A task has written so many rows."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows


@dataclass(frozen=True, slots=True)
class Writing:
    """Writes the rows of a task."""

    options: SinkOptions
    columns: frozenset[str]

    def write(self, batches: Iterator[Any]) -> Done:
        """Send Arrow batches, and wait until all are acknowledged."""
        full = (batch for batch in batches if batch.num_rows)
        first = next(full, None)
        if first is None:
            return Done(0)  # nobody has to connect for it
        rows = 0
        with PRODUCERS.lent({**BULK, **self.options.settings}) as producer:
            sent: list[Any] = []
            for batch in chain((first,), full):
                rows += batch.num_rows
                for topic, part in _by_topic(batch, self.options.topic):
                    sent += self._send(producer, topic, part)
            for one in sent:
                one.result()
        return Done(rows)

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
    """Rows by their topics, in the order in which those come."""
    if topic is not None:
        yield topic, batch
        return
    import pyarrow.compute

    compute: Any = pyarrow.compute
    names = batch.column("topic")
    if names.null_count:
        raise BadSchema(
            'a row has no topic: fill the column, or .option("topic", "...") says where all go'
        )
    for name in compute.unique(names).to_pylist():
        yield name, batch.filter(compute.equal(names, name))


class OttlaWriter(DataSourceArrowWriter):
    """Writes a batch."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of a task."""
        return self._writing.write(iterator)


class OttlaStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Write the rows of a task."""
        return self._writing.write(iterator)


def writing(given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> Writing:
    """What writes rows of a schema; BadOption or BadSchema when that cannot be."""
    if overwrite:
        raise BadOption('a topic cannot be overwritten: use mode("append")')
    options = sink_options(given)
    check_schema(schema, options.topic)
    return Writing(options, frozenset(field.name for field in schema.fields))

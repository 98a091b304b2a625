"""The streaming queries of a pipeline: what each of them reads, writes and guarantees.

Each sink is a query with its own checkpoint; with `together`, all sinks are one query. Each source
or step that can have dead letters has one more query, which only writes those. So a record is a
dead letter once, however many sinks read its source.

Invariant: the name of a query depends only on the names of its parts. Its checkpoint has the same
name, so a query keeps its state when other parts of the pipeline change.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from ottla.pipeline.spec.graph import Graph, build_graph
from ottla.pipeline.spec.model import (
    SINK_KINDS,
    Pipeline,
    Sink,
    Source,
    dead_letter_query,
    dead_letter_topic,
    kinds_given,
    sink_name,
)

TOGETHER: Final = "together"
_REMOTE: Final = "://"


class Guarantee(StrEnum):
    """How often a row of a query is in its sink."""

    AT_LEAST_ONCE = "at least once"
    EXACTLY_ONCE = "exactly once"


class QueryOutput(NamedTuple):
    """One place to which a query writes."""

    kind: str
    """topic, parquet, console or python."""
    target: str
    """The topic, the directory or the function; empty for the console."""
    guarantee: Guarantee
    source: str
    """The source or step whose rows are written."""
    sink: Sink | None
    """None for dead letters."""


class Query(NamedTuple):
    """A streaming query of Spark."""

    name: str
    reads: tuple[str, ...]
    """The sources that the query reads, in the order of the declaration."""
    outputs: tuple[QueryOutput, ...]
    """Several only with `together`."""
    checkpoint: str


def queries_of(pipeline: Pipeline) -> tuple[Query, ...]:
    """Return the queries of a pipeline without problems, sinks first."""
    graph, _ = build_graph(pipeline)
    outputs = [(sink_name(sink), _output(pipeline, sink)) for sink in pipeline.sinks]
    found: list[Query] = []
    if pipeline.together:
        every = tuple(output for _, output in outputs)
        found.append(_query(pipeline, graph, TOGETHER, every))
    else:
        found += [_query(pipeline, graph, name, (output,)) for name, output in outputs]
    topic = dead_letter_topic(pipeline)
    for name in _with_dead_letters(pipeline, graph):
        output = QueryOutput("topic", topic, Guarantee.AT_LEAST_ONCE, name, None)
        found.append(_query(pipeline, graph, dead_letter_query(name), (output,)))
    return tuple(found)


def can_have_dead_letters(source: Source) -> bool:
    """Whether some records of a source can be dead letters."""
    if any(one.otherwise == "dead_letter" for one in source.expect.values()):
        return True
    return any(text is not None for text in (source.json, source.csv, source.avro, source.text))


def checkpoint_directory(pipeline: Pipeline) -> str:
    """Return the directory in which the checkpoints of a pipeline are."""
    return pipeline.checkpoints or f".ottla/pipelines/{pipeline.name}/checkpoints"


def output_path(pipeline: Pipeline, path: str) -> str:
    """Return the path of a sink: a relative one is in the directory `output`."""
    if pipeline.output is None or path.startswith("/") or _REMOTE in path:
        return path
    return f"{pipeline.output.rstrip('/')}/{path}"


def _query(pipeline: Pipeline, graph: Graph, name: str, outputs: tuple[QueryOutput, ...]) -> Query:
    needed = {one for output in outputs for one in graph.upstream(output.source)}
    reads = tuple(source for source in pipeline.sources if source in needed)
    return Query(name, reads, outputs, f"{checkpoint_directory(pipeline).rstrip('/')}/{name}")


def _output(pipeline: Pipeline, sink: Sink) -> QueryOutput:
    [kind] = kinds_given(sink, SINK_KINDS)
    names = {name.casefold(): name for name in (*pipeline.sources, *pipeline.steps)}
    source = names[sink.from_.casefold()]
    target = "" if kind == "console" else str(getattr(sink, kind))
    if kind == "parquet":
        target = output_path(pipeline, target)
    is_exact = sink.exactly_once if kind == "python" else kind == "parquet"
    if pipeline.together and kind != "python":
        is_exact = False  # a repeated batch is written again
    guarantee = Guarantee.EXACTLY_ONCE if is_exact else Guarantee.AT_LEAST_ONCE
    return QueryOutput(kind, target, guarantee, source, sink)


def _with_dead_letters(pipeline: Pipeline, graph: Graph) -> Iterator[str]:
    """Yield the sources and steps that a sink needs and that can have dead letters."""
    names = {name.casefold(): name for name in (*pipeline.sources, *pipeline.steps)}
    outputs = [names[sink.from_.casefold()] for sink in pipeline.sinks]
    needed = {one for output in outputs for one in graph.upstream(output)}
    for name, source in pipeline.sources.items():
        if name in needed and can_have_dead_letters(source):
            yield name
    for name, step in pipeline.steps.items():
        is_wanted = any(one.otherwise == "dead_letter" for one in step.expect.values())
        if name in needed and is_wanted:
            yield name

"""`ottla pipeline plan`: the queries of a pipeline as a table, an object or a Mermaid diagram.

Invariant: only the declaration as it is written is printed, without the values of variables.
"""

from collections.abc import Iterator, Sequence

from ottla.cli.escapes import escaped
from ottla.cli.result import Result, Table
from ottla.pipeline.spec.graph import build_graph
from ottla.pipeline.spec.model import Pipeline
from ottla.pipeline.streaming_queries import Query, QueryOutput, queries_of


def plan_result(pipeline: Pipeline) -> Result:
    """Return the queries of a pipeline as a result."""
    queries = queries_of(pipeline)
    reads = [
        (name, origin_text(pipeline, name), _read_count(queries, name)) for name in _used(queries)
    ]
    rows = [
        (query.name, ", ".join(query.reads), target_text(output), output.guarantee.value)
        for query in queries
        for output in query.outputs
    ]
    title = f"Pipeline {pipeline.name}, brokers {pipeline.brokers}, trigger {pipeline.trigger}"
    return Result(
        {
            "pipeline": pipeline.name,
            "brokers": pipeline.brokers,
            "trigger": pipeline.trigger,
            "sources": [
                {"name": name, "origin": origin, "queries": count} for name, origin, count in reads
            ],
            "queries": [
                {
                    "name": query.name,
                    "reads": list(query.reads),
                    "writes": [
                        {
                            "from": one.source,
                            "kind": one.kind,
                            "target": one.target,
                            "guarantee": one.guarantee.value,
                        }
                        for one in query.outputs
                    ],
                    "checkpoint": query.checkpoint,
                }
                for query in queries
            ],
        },
        [
            escaped(title),
            "",
            Table(("SOURCE", "READS", "QUERIES"), reads),
            "",
            Table(("QUERY", "SOURCES", "WRITES", "GUARANTEE"), rows),
        ],
    )


def mermaid(pipeline: Pipeline) -> Iterator[str]:
    """Yield the lines of a Mermaid flowchart of the pipeline."""
    graph, _ = build_graph(pipeline)
    numbers = {name: f"n{at}" for at, name in enumerate((*pipeline.sources, *pipeline.steps))}
    yield "flowchart LR"
    for name in pipeline.sources:
        yield f'  {numbers[name]}[("{_label(name, origin_text(pipeline, name))}")]'
    for name in pipeline.steps:
        yield f'  {numbers[name]}["{_label(name)}"]'
    outputs = [output for query in queries_of(pipeline) for output in query.outputs]
    for at, output in enumerate(outputs):
        title = "dead letters" if output.sink is None else ""
        yield f'  s{at}[/"{_label(*filter(None, (title, target_text(output))))}"/]'
    for name in pipeline.steps:
        for before in graph.inputs[name]:
            yield f"  {numbers[before]} --> {numbers[name]}"
    for at, output in enumerate(outputs):
        arrow = "-.->" if output.sink is None else "-->"
        yield f"  {numbers[output.source]} {arrow} s{at}"


def _label(*lines: str) -> str:
    return "<br/>".join(
        escaped(line).replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;")
        for line in lines
    )


def target_text(output: QueryOutput) -> str:
    """Return the kind and the place of an output."""
    return f"{output.kind} {output.target}".rstrip()


def origin_text(pipeline: Pipeline, name: str) -> str:
    """Return what a source reads."""
    source = pipeline.sources[name]
    match source.topic:
        case str() as topic:
            return f"topic {topic}"
        case list() as topics:
            return f"topics {', '.join(topics)}"
        case None:
            pass
    if source.pattern is not None:
        return f"topics matching {source.pattern}"
    return "query" if source.parquet is None else f"parquet {source.parquet}"


def _used(queries: Sequence[Query]) -> list[str]:
    return [*dict.fromkeys(name for query in queries for name in query.reads)]


def _read_count(queries: Sequence[Query], name: str) -> int:
    return sum(name in query.reads for query in queries)

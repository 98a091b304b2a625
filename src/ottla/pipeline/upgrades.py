"""Decides whether a changed declaration can continue from a checkpoint.

Spark compares the schema of the state with that of the new query. It does not see changes that keep
the schema, such as another window length or another topic: the new query would continue with state
that means something else. So each checkpoint keeps the declaration of its last run, and this module
compares it with the new one.

Invariant: a change is compared only for the queries that it concerns. What is not in the rules
continues, and Spark still checks the schema of the state.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from ottla.pipeline.spec.graph import Graph, build_graph
from ottla.pipeline.spec.model import (
    RECORD_KINDS,
    Pipeline,
    Sink,
    Source,
    Step,
    inputs_of,
    kinds_given,
)
from ottla.pipeline.spec.problems import Path, path_text
from ottla.pipeline.streaming_queries import Query, queries_of


class Effect(StrEnum):
    """What a change means for the next run of a query."""

    CONTINUES = "continues"
    NEW_STATE = "needs new state"
    REFUSED = "refused"


class Change(NamedTuple):
    """A difference between two declarations, and its effect on a query."""

    query: str
    path: Path
    effect: Effect
    why: str

    def __str__(self) -> str:
        """Return the change as a sentence."""
        return f"query {self.query}: {path_text(self.path)} has changed: {self.why}"


_OFFSETS: Final = "the checkpoint has the offsets of the old sources"
_STATE: Final = "the checkpoint has the state of the old step"
_WATERMARK: Final = "the checkpoint has state that the old watermark bounds"
_MODE: Final = "the checkpoint has the state of the old output mode"
_LAYOUT: Final = "the directory has files with the old columns; write to another directory"
_KIND: Final = "files cannot continue the checkpoint of another sink; give the sink another name"


def changes_of(before: Pipeline, after: Pipeline) -> list[Change]:
    """Return the changes with which queries cannot continue; both declarations are valid."""
    old_graph, _ = build_graph(before)
    new_graph, _ = build_graph(after)
    old_queries = {one.name: one for one in queries_of(before)}
    found: list[Change] = []
    for query in queries_of(after):
        old = old_queries.get(query.name)
        if old is not None:
            compared = _Comparison(before, after, old_graph, new_graph, old, query)
            found += compared.changes()
    return found


class _Comparison:
    """A query in both declarations."""

    def __init__(
        self,
        before: Pipeline,
        after: Pipeline,
        old_graph: Graph,
        new_graph: Graph,
        old: Query,
        new: Query,
    ) -> None:
        self._before = before
        self._after = after
        self._old_graph = old_graph
        self._new_graph = new_graph
        self._old = old
        self._new = new

    def changes(self) -> Iterator[Change]:
        yield from self._sources()
        old_steps = _steps(self._before, self._old_graph, self._old)
        new_steps = _steps(self._after, self._new_graph, self._new)
        had_state = any(
            _has_state(self._before.steps[one], one, self._old_graph) for one in old_steps
        )
        for name in dict.fromkeys((*old_steps, *new_steps)):
            old = self._before.steps[name] if name in old_steps else None
            new = self._after.steps[name] if name in new_steps else None
            yield from self._step(name, old, new)
        if had_state:
            yield from self._watermarks(old_steps, new_steps)
        yield from self._outputs(had_state)

    def _sources(self) -> Iterator[Change]:
        old = [one for one in self._old.reads if _is_stream(self._before.sources[one])]
        new = [one for one in self._new.reads if _is_stream(self._after.sources[one])]
        pairs = [
            (_place(self._before.sources[one]), _place(self._after.sources[other]))
            for one, other in zip(old, new, strict=False)
        ]
        if len(old) == len(new) and all(_reads_on(*pair) for pair in pairs):
            return  # also if a source has another name
        if old != new:
            yield self._change(("sources",), Effect.NEW_STATE, _OFFSETS)
            return
        for name, pair in zip(new, pairs, strict=True):
            if not _reads_on(*pair):
                key = "pattern" if self._after.sources[name].pattern is not None else "topic"
                yield self._change(("sources", name, key), Effect.NEW_STATE, _OFFSETS)

    def _step(self, name: str, old: Step | None, new: Step | None) -> Iterator[Change]:
        path: Path = ("steps", name)
        had_state = old is not None and _has_state(old, name, self._old_graph)
        has_state = new is not None and _has_state(new, name, self._new_graph)
        if not had_state and not has_state:
            return
        if old is None or new is None or had_state != has_state:
            yield self._change(path, Effect.NEW_STATE, _STATE)
        elif _words(old.sql) != _words(new.sql):
            yield self._change((*path, "sql"), Effect.NEW_STATE, _STATE)
        elif old.deduplicate != new.deduplicate:
            yield self._change((*path, "deduplicate"), Effect.NEW_STATE, _STATE)
        elif inputs_of(old) != inputs_of(new):
            yield self._change((*path, "from"), Effect.NEW_STATE, _STATE)

    def _watermarks(self, old_steps: list[str], new_steps: list[str]) -> Iterator[Change]:
        """Compare the columns of watermarks; another delay continues."""
        parts: list[tuple[Path, Source | Step, Source | Step]] = [
            (("sources", name), self._before.sources[name], self._after.sources[name])
            for name in self._new.reads
            if name in self._old.reads
        ]
        parts += [
            (("steps", name), self._before.steps[name], self._after.steps[name])
            for name in new_steps
            if name in old_steps
        ]
        for path, old, new in parts:
            columns = [one.watermark and one.watermark.column.casefold() for one in (old, new)]
            if columns[0] != columns[1]:
                yield self._change((*path, "watermark"), Effect.NEW_STATE, _WATERMARK)

    def _outputs(self, had_state: bool) -> Iterator[Change]:
        for old, new in zip(self._old.outputs, self._new.outputs, strict=False):
            if old.sink is None or new.sink is None:
                continue
            path: Path = ("sinks", self._after.sinks.index(new.sink))
            if new.kind == "parquet" and old.kind != "parquet":
                yield self._change(path, Effect.REFUSED, _KIND)
            elif new.kind == "parquet" and old.target == new.target:
                yield from self._layout(path, old.sink, new.sink)
            if had_state and old.sink.mode != new.sink.mode:
                yield self._change((*path, "mode"), Effect.NEW_STATE, _MODE)

    def _layout(self, path: Path, old: Sink, new: Sink) -> Iterator[Change]:
        columns = [[one.casefold() for one in sink.partition_by] for sink in (old, new)]
        if columns[0] != columns[1]:
            yield self._change((*path, "partition_by"), Effect.REFUSED, _LAYOUT)

    def _change(self, path: Path, effect: Effect, why: str) -> Change:
        return Change(self._new.name, path, effect, why)


def _steps(pipeline: Pipeline, graph: Graph, query: Query) -> list[str]:
    needed = {one for output in query.outputs for one in graph.upstream(output.source)}
    return [name for name in pipeline.steps if name in needed]


def _has_state(step: Step, name: str, graph: Graph) -> bool:
    """Whether a step keeps rows between micro-batches, as far as the declaration shows it."""
    return step.deduplicate is not None or (step.sql is not None and name in graph.combined)


def _is_stream(source: Source) -> bool:
    return bool(kinds_given(source, RECORD_KINDS))


def _place(source: Source) -> frozenset[str] | str:
    """Return what a source reads: topics, or a pattern."""
    match source.topic:
        case None:
            return source.pattern or ""
        case str() as topic:
            return frozenset((topic,))
        case topics:
            return frozenset(topics)


def _reads_on(old: frozenset[str] | str, new: frozenset[str] | str) -> bool:
    """Whether offsets of the old topics are offsets of the new ones: the same, or some more."""
    if isinstance(old, frozenset) and isinstance(new, frozenset):
        return old <= new
    return old == new


def _words(sql: str | None) -> list[str]:
    """Return SQL without its line breaks and indentation."""
    return (sql or "").split()

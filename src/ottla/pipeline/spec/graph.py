"""The graph of a pipeline: which steps and sinks read which sources and steps.

Invariant: `Graph.order` has every step after its inputs. The graph is complete only if there are no
problems: an input that does not exist and the steps of a cycle are left out.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ottla.pipeline.spec.model import (
    Pipeline,
    Step,
    dead_letter_query,
    inputs_of,
    sink_name,
)
from ottla.pipeline.spec.problems import (
    Path,
    PipelineProblem,
    Severity,
    did_you_mean,
    shown,
)
from ottla.pipeline.spec.sql_inputs import SqlError, SqlInputs, sql_inputs


class Graph(NamedTuple):
    """Sources, steps and sinks, and what they read."""

    order: tuple[str, ...]
    """The steps, each after its inputs."""
    inputs: Mapping[str, tuple[str, ...]]
    """The sources and steps that each step reads."""
    combined: Mapping[str, str]
    """The steps whose rows are not made of one row of an input, and why: GROUP BY or JOIN."""

    def upstream(self, name: str) -> tuple[str, ...]:
        """Return everything that a source or step needs, itself last."""
        found: dict[str, None] = {}

        def visit(one: str) -> None:
            for before in self.inputs.get(one, ()):
                visit(before)
            found.setdefault(one)

        visit(name)
        return tuple(found)


class _Input(NamedTuple):
    """A name that a step or sink reads, and where it is written."""

    name: str
    path: Path
    offset: int = 0


def build_graph(pipeline: Pipeline) -> tuple[Graph, list[PipelineProblem]]:
    """Resolve the names of a pipeline; returns the graph and the problems."""
    problems = [*_duplicates(pipeline)]
    sinks = {sink_name(sink).casefold() for sink in pipeline.sinks}
    # Spark ignores the case of names.
    known = {name.casefold(): name for name in (*pipeline.sources, *pipeline.steps)}
    inputs: dict[str, tuple[str, ...]] = dict.fromkeys(pipeline.steps, ())
    combined: dict[str, str] = {}
    for name, step in pipeline.steps.items():
        read, parsed, wrong = _step_inputs(name, step)
        problems += wrong
        if parsed is not None and parsed.combines:
            combined[name] = parsed.combines
        resolved = [_resolved(one, f"step {shown(name)}", known, sinks, problems) for one in read]
        inputs[name] = tuple(dict.fromkeys(one for one in resolved if one is not None))
    outputs: list[str] = []
    for number, sink in enumerate(pipeline.sinks):
        where = _Input(sink.from_, ("sinks", number, "from"))
        found = _resolved(where, f"sink {shown(sink_name(sink))}", known, set(), problems)
        outputs += [] if found is None else [found]
    order, cycles = _sorted(inputs)
    problems += [_cycle_problem(cycle) for cycle in cycles]
    graph = Graph(order, inputs, _with_downstream(combined, order, inputs))
    if not problems and outputs:  # otherwise a part may only seem to be unused
        problems += _unused(pipeline, graph, outputs)
    return graph, problems


def _step_inputs(
    name: str, step: Step
) -> tuple[list[_Input], SqlInputs | None, list[PipelineProblem]]:
    path: Path = ("steps", name, "sql")
    if step.sql is None:
        names = inputs_of(step)
        where: Path = ("steps", name, "from")
        several = not isinstance(step.from_, str)
        read = [_Input(one, (*where, at) if several else where) for at, one in enumerate(names)]
        return read, None, []
    try:
        found = sql_inputs(step.sql)
    except SqlError as error:
        return [], None, [PipelineProblem(path, str(error), offset=error.offset)]
    read = [
        _Input(one, path, offset) for one, offset in zip(found.names, found.offsets, strict=True)
    ]
    return read, found, []


def _resolved(
    read: _Input,
    reader: str,
    known: Mapping[str, str],
    sinks: Iterable[str],
    problems: list[PipelineProblem],
) -> str | None:
    folded = read.name.casefold()
    if folded in known:
        return known[folded]
    if folded in sinks:
        what = f"{reader} reads {shown(read.name)}, which is a sink; read the input of the sink"
    else:
        hint = did_you_mean(read.name, known.values())
        what = f"{reader} reads {shown(read.name)}, which is not a source or step{hint}"
    problems.append(PipelineProblem(read.path, what, offset=read.offset))
    return None


def _duplicates(pipeline: Pipeline) -> Iterator[PipelineProblem]:
    first: dict[str, str] = {}
    for folder, names in (("sources", pipeline.sources), ("steps", pipeline.steps)):
        for name in names:
            before = first.setdefault(name.casefold(), f"{folder}.{name}")
            if before == f"{folder}.{name}":
                continue
            case = "" if before.endswith(f".{name}") else "; Spark ignores the case of names"
            what = f"the name {shown(name)} is already used by {before}{case}"
            yield PipelineProblem((folder, name), what, at_key=True)
    used: dict[str, int] = {}
    reserved = {dead_letter_query(one).casefold() for one in (*pipeline.sources, *pipeline.steps)}
    for number, sink in enumerate(pipeline.sinks):
        name = sink_name(sink)
        if name.casefold() in reserved:
            what = f"the name {shown(name)} is reserved for the query that writes dead letters"
            yield PipelineProblem(("sinks", number, "name"), what)
        before = used.setdefault(name.casefold(), number)
        if before != number:
            what = f"the name {shown(name)} is already used by sinks[{before}]; add name: to one"
            path = ("sinks", number) if sink.name is None else ("sinks", number, "name")
            yield PipelineProblem(path, what)


def _sorted(
    inputs: Mapping[str, tuple[str, ...]],
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the steps in order, and one cycle for each group of steps that read each other."""
    order: list[str] = []
    cycles: list[tuple[str, ...]] = []
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            cycle = path[path.index(name) :]
            if not any(set(cycle) & set(one) for one in cycles):
                cycles.append(cycle)
            return
        if name in done or name not in inputs:
            return
        for before in inputs[name]:
            visit(before, (*path, name))
        done.add(name)
        order.append(name)

    for name in inputs:
        visit(name, ())
    in_cycles = {name for cycle in cycles for name in cycle}
    return tuple(name for name in order if name not in in_cycles), cycles


def _cycle_problem(cycle: tuple[str, ...]) -> PipelineProblem:
    if len(cycle) == 1:
        what = f"step {shown(cycle[0])} reads itself"
    else:
        # The cycle follows the inputs; data flows the other way.
        arrows = " → ".join((cycle[0], *reversed(cycle)))
        what = f"the steps make a cycle: {arrows}"
    return PipelineProblem(("steps", cycle[0]), what, at_key=True)


def _with_downstream(
    combined: Mapping[str, str], order: Iterable[str], inputs: Mapping[str, tuple[str, ...]]
) -> dict[str, str]:
    found = dict(combined)
    for name in order:
        for before in inputs[name]:
            if before in found:
                found.setdefault(name, found[before])
    return found


def _unused(pipeline: Pipeline, graph: Graph, outputs: Iterable[str]) -> Iterator[PipelineProblem]:
    used = {name for output in outputs for name in graph.upstream(output)}
    for folder, names in (("sources", pipeline.sources), ("steps", pipeline.steps)):
        for name in names:
            if name not in used:
                what = "no sink needs it, so it does not run"
                yield PipelineProblem((folder, name), what, Severity.WARNING, at_key=True)

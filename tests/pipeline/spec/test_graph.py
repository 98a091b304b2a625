from ottla.pipeline import Pipeline, Sink, Source, Step
from ottla.pipeline.spec.graph import build_graph
from ottla.pipeline.spec.problems import Severity


def pipeline(steps: dict[str, Step], *outputs: str) -> Pipeline:
    return Pipeline(
        name="x",
        sources={"a": Source(topic="a", text="line"), "b": Source(topic="b", text="line")},
        steps=steps,
        sinks=[Sink(from_=one, console=True) for one in outputs],
    )


def sql(text: str) -> Step:
    return Step(sql=text)


def problems(steps: dict[str, Step], *outputs: str) -> list[str]:
    return [str(one) for one in build_graph(pipeline(steps, *outputs))[1]]


def test_steps_are_ordered_after_their_inputs() -> None:
    steps = {
        "last": sql("SELECT * FROM middle JOIN a ON true"),
        "middle": sql("SELECT * FROM first"),
        "first": Step(python="m:f", from_=["A", "b"]),
    }
    graph, found = build_graph(pipeline(steps, "last"))
    assert not found
    assert graph.order == ("first", "middle", "last")
    assert graph.inputs["first"] == ("a", "b"), "Spark ignores the case of names"
    assert graph.upstream("last") == ("a", "b", "first", "middle", "last")
    assert graph.upstream("a") == ("a",)


def test_steps_after_an_aggregate_are_combined() -> None:
    steps = {
        "counted": sql("SELECT count(*) AS n FROM a GROUP BY line"),
        "large": sql("SELECT * FROM counted WHERE n > 1"),
        "plain": sql("SELECT * FROM a"),
    }
    graph, _ = build_graph(pipeline(steps, "large", "plain"))
    assert graph.combined == {"counted": "GROUP BY", "large": "GROUP BY"}


def test_unused_parts_are_warnings() -> None:
    steps = {"used": sql("SELECT * FROM a"), "unused": sql("SELECT * FROM b")}
    _, found = build_graph(pipeline(steps, "used"))
    assert [(one.path, one.severity) for one in found] == [
        (("sources", "b"), Severity.WARNING),
        (("steps", "unused"), Severity.WARNING),
    ]


def test_each_cycle_is_reported_once() -> None:
    steps = {
        "one": sql("SELECT * FROM two"),
        "two": sql("SELECT * FROM three"),
        "three": sql("SELECT * FROM one"),
        "itself": sql("SELECT * FROM itself"),
        "after": sql("SELECT * FROM one"),
    }
    assert problems(steps, "after") == [
        "steps.one: the steps make a cycle: one → three → two → one",
        'steps.itself: step "itself" reads itself',
    ]


def test_duplicate_names_are_reported() -> None:
    assert problems({"a": sql("SELECT 1"), "B": sql("SELECT 1")}, "a", "A") == [
        'steps.a: the name "a" is already used by sources.a',
        'steps.B: the name "B" is already used by sources.b; Spark ignores the case of names',
        'sinks[1]: the name "A-console" is already used by sinks[0]; add name: to one',
    ]


def test_step_that_reads_a_sink_is_reported() -> None:
    steps = {"again": Step(python="m:f", from_="a-console")}
    [problem] = problems(steps, "a", "again")
    assert problem.endswith('reads "a-console", which is a sink; read the input of the sink')

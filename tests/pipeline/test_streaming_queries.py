from ottla.pipeline import Expectation, Pipeline, Sink, Source, Step
from ottla.pipeline.spec.checks import problems_of
from ottla.pipeline.streaming_queries import queries_of
from pipeline.spec.declarations import SENSORS_IN_PYTHON


def pipeline(*sinks: Sink, together: bool = False, output: str | None = None) -> Pipeline:
    failing = {"large": Expectation(check="length(line) > 1", otherwise="dead_letter")}
    found = Pipeline(
        name="x",
        sources={
            "a": Source(topic="a", text="line"),
            "b": Source(topic="b", binary="line"),
            "side": Source(parquet="data"),
        },
        steps={
            "both": Step(python="m:f", from_=["A", "side"]),
            "checked": Step(sql="SELECT * FROM b", expect=failing),
        },
        sinks=[*sinks],
        together=together,
        output=output,
    )
    assert not [one for one in problems_of(found) if one.severity == "error"]
    return found


def written(found: Pipeline) -> list[str]:
    return [
        f"{query.name} {'+'.join(query.reads)} {output.kind}:{output.target} {output.guarantee}"
        for query in queries_of(found)
        for output in query.outputs
    ]


def test_each_sink_and_each_source_of_dead_letters_is_a_query() -> None:
    assert written(SENSORS_IN_PYTHON) == [
        "averages-parquet readings parquet:out/averages exactly once",
        "alerts-topic readings topic:sensors.alerts at least once",
        "readings-dead-letters readings topic:sensors.dead at least once",
    ]


def test_only_needed_parts_have_dead_letters() -> None:
    assert written(pipeline(Sink(from_="Both", console=True))) == [
        "Both-console a+side console: at least once",
        "a-dead-letters a topic:x.dead-letters at least once",
    ]
    assert written(pipeline(Sink(from_="checked", python="m:g", exactly_once=True))) == [
        "checked-python b python:m:g exactly once",
        "checked-dead-letters b topic:x.dead-letters at least once",
    ]


def test_sinks_together_are_one_query() -> None:
    sinks = (
        Sink(from_="both", parquet="out", exactly_once=False),
        Sink(from_="Both", python="m:g", exactly_once=True),
    )
    assert written(pipeline(*sinks, together=True))[:2] == [
        "together a+side parquet:out at least once",
        "together a+side python:m:g exactly once",
    ]


def test_relative_paths_are_in_the_output_directory() -> None:
    sinks = [
        Sink(from_="b", parquet="one", name="one"),
        Sink(from_="b", parquet="/two", name="two"),
        Sink(from_="b", parquet="s3a://three", name="three"),
    ]
    found = pipeline(*sinks, output="/out/")
    assert [query.outputs[0].target for query in queries_of(found)] == [
        "/out/one",
        "/two",
        "s3a://three",
    ]
    assert queries_of(found)[0].checkpoint == ".ottla/pipelines/x/checkpoints/one"

"""Changes of a declaration: each row of the table in the guide, with an example."""

import re
from pathlib import Path
from typing import Final

import pytest

from cases import Cases
from ottla.pipeline.earlier_runs import (
    DECLARATION,
    CannotStartAgain,
    QueryDirectories,
    check_changes,
    keep_declaration,
    query_directories,
)
from ottla.pipeline.spec.model import Pipeline
from ottla.pipeline.upgrades import Effect, changes_of
from pipeline.spec.declarations import loaded

GUIDE = Path(__file__).parents[2] / "docs" / "pipelines.md"
BEFORE = """\
name: sensors
sources:
  readings:
    topic: sensors.readings
    json: device STRING, at TIMESTAMP, celsius DOUBLE
    watermark: {column: at, delay: 5 seconds}
    expect: {plausible: {check: celsius < 120}}
steps:
  warm: {sql: SELECT * FROM readings WHERE celsius > 0}
  fresh: {deduplicate: [device, at], from: warm}
  averages:
    sql: SELECT device, window.start AS start, avg(celsius) AS mean
         FROM warm GROUP BY device, window(at, '10 seconds')
sinks:
  - {from: averages, name: means, parquet: out/averages, partition_by: [device]}
  - {from: fresh, name: fresh, topic: fresh}
  - {from: fresh, name: shown, console: true}
  - {from: warm, name: warm, topic: warm}
trigger: 1 second
"""

# A change of the first column of the guide's table, as examples `old -> new`.
EXAMPLES: Final = {
    "`trigger`, `brokers`, `client`, `checkpoints` moved with their files, tests, profiles": (
        "trigger: 1 second -> trigger: 5 seconds",
    ),
    "an expectation, `start`, `options` or `parse` of a source": (
        "celsius < 120 -> celsius < 100",
        "topic: sensors.readings -> topic: sensors.readings\n    start: latest",
    ),
    "the schema of a source, if the steps with state read the same columns": (
        "celsius DOUBLE -> celsius DOUBLE, place STRING",
    ),
    "the name of a source": ("  readings: ->   samples:; FROM readings -> FROM samples",),
    "one more topic of a source": (
        "topic: sensors.readings -> topic: [sensors.readings, sensors.more]",
    ),
    "another topic, a topic less, another pattern": (
        "topic: sensors.readings -> topic: sensors.others",
        "topic: sensors.readings -> pattern: ^sensors",
    ),
    "a source of records added to or removed from a query": (
        "steps: ->   more: {topic: m, text: a}\nsteps:; FROM readings -> FROM readings JOIN more",
    ),
    "a step without state: added, removed, other SQL": (
        "celsius > 0 -> celsius > 10",
        (
            "  warm: {sql: SELECT * FROM readings ->   every: {sql: SELECT * FROM readings}\n"
            "  warm: {sql: SELECT * FROM every"
        ),
    ),
    "a Python step": (),
    "line breaks and indentation of SQL": ("\n         FROM warm ->  FROM warm",),
    "SQL of a step with `GROUP BY`, `JOIN`, `DISTINCT` or a window": (
        "'10 seconds' -> '20 seconds'",
        "GROUP BY device, window -> GROUP BY window",
    ),
    "the columns or the input of `deduplicate`": (
        "deduplicate: [device, at] -> deduplicate: [device]",
        "from: warm} -> from: readings}",
    ),
    "a step with state: added to or removed from a query": (
        "from: fresh, name: fresh -> from: warm, name: fresh",
    ),
    "the delay of a watermark": ("delay: 5 seconds -> delay: 9 seconds",),
    "the column of a watermark of a query with state; a watermark added or removed": (
        "at TIMESTAMP -> at TIMESTAMP, seen TIMESTAMP; column: at -> column: seen",
        "    watermark: {column: at, delay: 5 seconds}\n -> ",
    ),
    "the topic, key or options of a sink; another Parquet directory": (
        "topic: fresh} -> topic: others}",
        "out/averages -> out/others",
    ),
    "`mode` of a sink of a query with state": ("console: true} -> console: true, mode: update}",),
    "`partition_by` of a Parquet sink": ("partition_by: [device] -> partition_by: [start]",),
    "a sink that becomes a Parquet sink under the same name": (
        "name: warm, topic: warm -> name: warm, parquet: out/warm",
    ),
    "`spark.sql.shuffle.partitions`": (
        "trigger: 1 second -> spark: {spark.sql.shuffle.partitions: 3}",
    ),
    "a new sink, a sink less, the name of a sink": (
        "name: fresh, -> name: other,",
        "  - {from: warm, name: warm, topic: warm}\n -> ",
    ),
}


def guide_rows() -> dict[str, str]:
    """The effect of each change in the guide."""
    [table] = re.findall(
        r"^\| change \| effect \|.*\n\|[-|]*\n((?:\|.*\n)+)", GUIDE.read_text(), re.MULTILINE
    )
    rows = [
        [cell.strip() for cell in line.strip("|\n").split(" | ")] for line in table.splitlines()
    ]
    return {row[0]: row[1] for row in rows}


def changed(example: str) -> Pipeline:
    text = BEFORE
    for one in example.split("; "):
        old, _, new = one.partition(" -> ")
        assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times"
        text = text.replace(old, new)
    return loaded(text).written


def test_each_row_of_the_guide_has_its_effect() -> None:
    rows = guide_rows()
    assert list(rows) == list(EXAMPLES)
    cases = Cases()
    for change, examples in EXAMPLES.items():
        for example in examples:
            with cases.case(f"{change}: {example}"):
                effects = {
                    one.effect for one in changes_of(loaded(BEFORE).written, changed(example))
                }
                wanted = Effect(rows[change].partition(":")[0])
                assert effects == ({wanted} if wanted is not Effect.CONTINUES else set())
    cases.check()


def test_only_the_queries_that_a_change_concerns_need_new_state() -> None:
    found = changes_of(loaded(BEFORE).written, changed("'10 seconds' -> '20 seconds'"))
    assert [str(one) for one in found] == [
        "query means: steps.averages.sql has changed: the checkpoint has the state of the old step"
    ]
    found = changes_of(loaded(BEFORE).written, changed("sensors.readings -> sensors.others"))
    assert {one.query for one in found} == {
        "means",
        "fresh",
        "shown",
        "warm",
        "readings-dead-letters",
    }


def directories(folder: Path, text: str) -> tuple[list[QueryDirectories], Pipeline]:
    pipeline = loaded(f"{text}checkpoints: {folder}/checkpoints\n")
    return query_directories(pipeline.pipeline, pipeline.written), pipeline.written


def test_checkpoint_keeps_the_declaration_that_continues(tmp_path: Path) -> None:
    queries, written = directories(tmp_path, BEFORE)
    keep_declaration(queries, written)
    other = BEFORE.replace("'10 seconds'", "'20 seconds'")
    check_changes(*directories(tmp_path, other))  # no query has started yet
    for query, _ in queries:
        assert query.path is not None
        (query.path / "offsets").mkdir()
        (query.path / "offsets" / "0").touch()
    check_changes(*directories(tmp_path, BEFORE))
    with pytest.raises(CannotStartAgain) as error:
        check_changes(*directories(tmp_path, other))
    assert str(error.value) == (
        "query means: steps.averages.sql has changed: the checkpoint has the state of the old "
        "step; start again with `ottla pipeline reset`, or continue with --keep-state"
    )
    layout = BEFORE.replace("partition_by: [device]", "partition_by: [start]")
    with pytest.raises(CannotStartAgain, match="write to another directory; undo the change"):
        check_changes(*directories(tmp_path, layout))
    (tmp_path / "checkpoints" / "means" / DECLARATION).write_text("damaged")
    check_changes(*directories(tmp_path, other))


def test_checkpoint_has_no_secrets(tmp_path: Path) -> None:
    text = BEFORE.replace("topic: fresh}", 'topic: "${SECRET}"}')
    text += f"client: {{sasl.password: pass}}\ncheckpoints: {tmp_path}\n"
    pipeline = loaded(text, SECRET="hunter2")
    keep_declaration(query_directories(pipeline.pipeline, pipeline.written), pipeline.written)
    kept = (tmp_path / "fresh" / DECLARATION).read_text()
    assert "${SECRET}" in kept
    assert "hunter2" not in kept
    assert "pass" not in kept

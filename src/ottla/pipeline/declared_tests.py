"""Runs the tests of a declaration on a real Spark, without a broker.

    with DeclaredTests(spark, load("sensors.yaml")) as tests:
        for name in tests.names:
            tests.check(name)  # raises AssertionError with the difference

The streaming queries are those of the pipeline: only their records come from files, one file for
each micro-batch, and their rows go to memory. So the watermark moves, late rows are dropped, and
windows close as they do in production.

Invariant: tests do not see each other. Each test has its own checkpoints, and the files of the test
before it are deleted.
"""

import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType

from ottla.pipeline.compiler import Bindings, CompiledPipeline, compile_pipeline
from ottla.pipeline.given_records import COLUMNS, record_lines, spaced_batches
from ottla.pipeline.progress import QueryProgress, advanced
from ottla.pipeline.redrive_decision import ERROR_HEADER
from ottla.pipeline.restarts import failure_of
from ottla.pipeline.row_comparison import compare_rows
from ottla.pipeline.spec.checks import AVAILABLE_NOW
from ottla.pipeline.spec.graph import build_graph
from ottla.pipeline.spec.loading import Loaded, load
from ottla.pipeline.spec.model import TABLE_KINDS, Pipeline, PipelineTest, Source, kinds_given
from ottla.pipeline.spec.problems import did_you_mean, shown
from ottla.pipeline.state_operators import steps_with_state

TIMEOUT_S: Final = 300.0
"""A query of a test that takes longer has failed."""

_SETTINGS: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",  # compiling code takes longer than a few rows
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
}
_DEAD: Final = "dead letters of "
_REFUSED: Final = re.compile(r"expectation (\S+) failed: ")


class TestOutcome(NamedTuple):
    """The result of a test."""

    __test__ = False  # pytest takes classes with this name for tests

    name: str
    seconds: float
    problems: Sequence[str]
    """What differs, as lines; empty if the test has passed."""


class DeclaredTests:
    """The tests of a pipeline, which share compiled queries during the `with` block."""

    def __init__(self, spark: SparkSession, loaded: Loaded, file: str = "") -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="ottla-tests-"))
        pipeline = msgspec.structs.replace(
            loaded.pipeline,
            trigger=AVAILABLE_NOW,
            checkpoints=str(self._directory / "unused"),
            together=False,
            spark={**loaded.pipeline.spark, **_SETTINGS},
        )
        self._pipeline: Pipeline = pipeline
        self._graph, _ = build_graph(pipeline)
        parts = (*pipeline.sources.values(), *pipeline.steps.values())
        self._has_watermark = any(one.watermark is not None for one in parts)
        self._spark = spark
        self._loaded = loaded._replace(pipeline=pipeline)
        self._file = file
        self._compiled: dict[str, CompiledPipeline] = {}  # by the given side tables
        self._count = 0

    def __enter__(self) -> "DeclaredTests":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Delete the files of the tests."""
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def names(self) -> list[str]:
        """The names of the tests."""
        return [one.name for one in self._pipeline.tests]

    def run(self, name: str) -> TestOutcome:
        """Run a test; raises KeyError if there is none with this name."""
        test = next((one for one in self._pipeline.tests if one.name == name), None)
        if test is None:
            raise KeyError(name)
        start_s = time.monotonic()
        problems = [self._loaded.redaction.hide(line) for line in self._problems(test)]
        return TestOutcome(name, time.monotonic() - start_s, problems)

    def check(self, name: str) -> None:
        """Run a test, and raise AssertionError with what differs."""
        outcome = self.run(name)
        if outcome.problems:
            lines = "\n".join(outcome.problems)
            raise AssertionError(f"{self._pipeline.name}: {name}\n{lines}")

    # What the queries read.

    def _records(self, session: SparkSession, name: str, source: Source) -> DataFrame:
        folder = self._folder(name)
        folder.mkdir(parents=True, exist_ok=True)
        stream = session.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
        return stream.json(str(folder))

    def _compile(self, test: PipelineTest) -> CompiledPipeline:
        """Return the queries that read the side tables of a test; most tests share them.

        Spark lists the files of a table once, so other rows need other files.
        """
        given = {name: test.given.get(name, []) for name in self._given_tables()}
        key = json.dumps(given)
        if key not in self._compiled:
            directory = self._directory / f"tables-{len(self._compiled)}"

            def table(session: SparkSession, name: str, source: Source) -> DataFrame | None:
                if name not in given:
                    return None
                # The rows of all tests make the schema: a test may have none.
                every = [one.given.get(name, []) for one in self._pipeline.tests]
                whole = _write_rows(directory / "all" / name, *every)
                rows = _write_rows(directory / name, given[name])
                schema = session.read.json(whole).schema
                return session.read.schema(schema).json(rows)

            bindings = Bindings(records=self._records, tables=table)
            self._compiled[key] = compile_pipeline(self._spark, self._loaded, self._file, bindings)
        return self._compiled[key]

    def _given_tables(self) -> list[str]:
        sources = self._pipeline.sources.items()
        tables = [name for name, one in sources if kinds_given(one, TABLE_KINDS)]
        return [name for name in tables if any(name in one.given for one in self._pipeline.tests)]

    def _folder(self, name: str) -> Path:
        return self._directory / "given" / name

    def _give(self, test: PipelineTest, *, in_batches: bool) -> None:
        """Replace the files of the last queries by those of a test."""
        sources = {
            name: one
            for name, one in self._pipeline.sources.items()
            if not kinds_given(one, TABLE_KINDS)
        }
        given = {name: batches for name, batches in test.given.items() if name in sources}
        if not in_batches:
            given = {name: [[*chain(*batches)]] for name, batches in given.items()}
        elif self._has_watermark:
            given = {name: spaced_batches(batches) for name, batches in given.items()}
        count = max((len(batches) for batches in given.values()), default=0)
        start_s = time.time() - count
        for name, source in sources.items():
            folder = self._folder(name)
            for old in folder.iterdir():
                old.unlink()
            batches = [*given.get(name, []), *([[]] * count)][:count]
            for number, lines in enumerate(record_lines(source, batches)):
                # Spark takes the files by their time: a micro-batch of all sources has one number.
                temporary = folder / f".{number}"
                temporary.write_text(lines)
                os.utime(temporary, (start_s + number, start_s + number))
                temporary.rename(folder / f"{number:06}.json")

    # What they return.

    def _problems(self, test: PipelineTest) -> Iterator[str]:
        compiled = self._compile(test)
        results = self._results(compiled, test)
        refused = {name for one in results.values() for name in one.refused}
        for name, one in results.items():
            if one.error and not one.refused & test.failed.keys():
                yield f"{name}: {one.error}"
        for name, expected in test.expect.items():
            if not results[name].error:
                yield from _row_problems(name, expected, results[name])
        for name, count in test.dead_letters.items():
            yield from _dead_letter_problems(name, count, results.get(f"{_DEAD}{name}"))
        for name, count in test.late.items():
            yield from _count_problem(f"late rows of {name}", count, results[name].late_rows(name))
        for name, count in test.failed.items():
            found = max((one.progress.failed.get(name, 0) for one in results.values()), default=0)
            if name not in refused:
                yield from _count_problem(f"rows that fail {name}", count, found)

    def _wanted(self, compiled: CompiledPipeline, test: PipelineTest) -> dict[str, DataFrame]:
        """Return the rows that a test needs, by their names in problems."""
        frames = compiled.frames
        names = [*test.expect, *test.late]
        seen = {one for name in names for one in self._graph.upstream(name)}
        names += [part for name in test.failed if (part := name.partition(".")[0]) not in seen]
        found = {name: frames[name] for name in dict.fromkeys(names)}
        for name in test.dead_letters:
            if (rows := compiled.dead_letters.get(name)) is not None:
                errors = f.filter("headers", lambda header: header["key"] == ERROR_HEADER)
                error = errors[0]["value"].cast("string").alias("error")
                found[f"{_DEAD}{name}"] = rows.select("value", error)
        return found

    def _results(self, compiled: CompiledPipeline, test: PipelineTest) -> dict[str, "_Result"]:
        """Run the queries of a test, and return their results.

        A query without state returns the same rows however they are divided into micro-batches, so
        it gets all of them at once.
        """
        wanted = self._wanted(compiled, test)
        results: dict[str, _Result] = {}
        for in_batches in (False, True):
            frames = {
                name: frame
                for name, frame in wanted.items()
                if self._may_have_state(name.removeprefix(_DEAD)) is in_batches
            }
            if frames:
                self._give(test, in_batches=in_batches)
                results |= self._finished(compiled, frames)
        return {name: results[name] for name in wanted}

    def _finished(
        self, compiled: CompiledPipeline, frames: Mapping[str, DataFrame]
    ) -> dict[str, "_Result"]:
        """Run queries at the same time to their ends."""
        running: dict[str, tuple[str, Any]] = {}
        steps: dict[str, list[str]] = {}
        results: dict[str, _Result] = {}
        for name, frame in frames.items():
            self._count += 1
            table = f"ottla_test_{self._count}"
            writer = (
                _plain_binaries(frame)
                .writeStream.format("memory")
                .queryName(table)
                .outputMode(self._mode(name))
                .option("checkpointLocation", str(self._directory / "checkpoints" / table))
                .trigger(availableNow=True)
            )
            try:
                running[name] = (table, writer.start())
                steps[name] = steps_with_state(frame, name, compiled.frames)
            except Exception as error:  # whatever Spark raises at the start of a query
                results[name] = _Result.of(error)
        for name, (table, query) in running.items():
            results[name] = _finished(compiled.session, table, query, steps[name])
        return results

    def _may_have_state(self, name: str) -> bool:
        """Whether a source or step, or one before it, may keep state between micro-batches."""
        steps = self._pipeline.steps
        return any(
            steps[one].sql is None or one in self._graph.combined
            for one in self._graph.upstream(name)
            if one in steps
        )

    def _mode(self, name: str) -> str:
        """Return the output mode of a step: that of a sink that needs it."""
        names = {one.casefold(): one for one in (*self._pipeline.sources, *self._pipeline.steps)}
        for sink in self._pipeline.sinks:
            if name in self._graph.upstream(names[sink.from_.casefold()]):
                return sink.mode
        return "append"


def check_tests(
    file: str | Path, *, spark: SparkSession | None = None, profile: str | None = None
) -> None:
    """Run all tests of a pipeline file; raises AssertionError with what differs.

    Call it in a test of pytest. Without a session, it uses the active one, or starts Spark.
    """
    loaded = load(file, profile=profile)
    builder: Any = SparkSession.builder
    session: SparkSession = spark or builder.master("local[2]").getOrCreate()
    failed: list[str] = []
    with DeclaredTests(session, loaded, str(file)) as tests:
        for name in tests.names:
            try:
                tests.check(name)
            except AssertionError as error:
                failed.append(str(error))
    if failed:
        raise AssertionError("\n\n".join(failed))


class _Result(NamedTuple):
    """The rows and the progress of a query, or its error."""

    rows: Sequence[Mapping[str, Any]] = ()
    columns: Sequence[str] = ()
    progress: QueryProgress = QueryProgress("")
    error: str = ""
    refused: frozenset[str] = frozenset()
    """The expectation with `fail` that has stopped the query."""

    def late_rows(self, step: str) -> int:
        """Return the late rows of a step; of all steps before it if it has no state."""
        return self.progress.late.get(step, self.progress.late_rows)

    @classmethod
    def of(cls, error: Exception) -> "_Result":
        failure = failure_of(str(error))
        return cls(error=str(failure), refused=frozenset(_REFUSED.findall(failure.text)))


def _finished(session: Any, table: str, query: Any, steps: Sequence[str]) -> _Result:
    """Wait for the end of a query, and return its rows and its progress."""
    try:
        if not query.awaitTermination(TIMEOUT_S):
            query.stop()
            return _Result(error=f"the query did not end within {TIMEOUT_S:g} s")
    except Exception as error:  # the error of the query
        return _Result.of(error)
    progress = QueryProgress(table)
    for one in query.recentProgress:
        progress = advanced(progress, json.loads(one.json), steps)
    stored = session.table(table)
    texts = stored.select(f.to_json(f.struct("*"), {"ignoreNullFields": "false"}))
    rows = [json.loads(row[0]) for row in texts.collect()]
    session.catalog.dropTempView(table)
    return _Result(rows=rows, columns=stored.columns, progress=progress)


def _row_problems(
    name: str, expected: Sequence[Mapping[str, Any]], result: _Result
) -> Iterator[str]:
    known = {column.casefold() for column in result.columns}
    unknown = {column for row in expected for column in row if column.casefold() not in known}
    for column in sorted(unknown):
        hint = did_you_mean(column, result.columns)
        yield f"{name}: there is no column {shown(column)}{hint}"
    if unknown:
        return
    difference = compare_rows(expected, result.rows)
    if difference is not None:
        first, *more = difference.lines()
        yield f"{name}: {first}"
        yield from more


def _dead_letter_problems(name: str, count: int, result: _Result | None) -> Iterator[str]:
    found = 0 if result is None else len(result.rows)
    if result is not None and result.error:
        return  # reported
    yield from _count_problem(f"dead letters of {name}", count, found)
    if found != count and result is not None:
        for row in result.rows[:10]:
            yield f"  + {row['value']}: {row['error']}"


def _count_problem(what: str, expected: int, found: int) -> Iterator[str]:
    if expected != found:
        yield f"{what}: expected {expected}, found {found}"


def _plain_binaries(frame: DataFrame) -> DataFrame:
    """Return rows whose binary columns are texts, as a declaration has them."""
    columns = [
        f.col(f"`{field.name}`").cast("string").alias(field.name)
        if isinstance(field.dataType, BinaryType)
        else f.col(f"`{field.name}`")
        for field in frame.schema.fields
    ]
    return frame.select(*columns)


def _write_rows(folder: Path, *tables: Sequence[Sequence[Any]]) -> str:
    """Write the rows of side tables to a new file, and return its directory."""
    rows = [row for batches in tables for batch in batches for row in batch]
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    folder.mkdir(parents=True)
    (folder / "rows.json").write_text("".join(f"{line}\n" for line in lines))
    return str(folder)

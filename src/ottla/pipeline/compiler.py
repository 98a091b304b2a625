"""Compiles a pipeline to Structured Streaming: a DataFrame per source and step, a writer per query.

Nothing starts here. Spark analyses each step, so a wrong column or type is a problem at the path of
its step.

Invariant: a pipeline has a session of its own, in which its names are temporary views. Other
sessions of the same Spark do not see them.
"""

import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, Self

from pyspark.errors import AnalysisException, ParseException, QueryContextType
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import BinaryType

from ottla.pipeline import register
from ottla.pipeline.checkpoint_files import write_local_checkpoints_fast
from ottla.pipeline.columns import PARSED, TYPES, UNPARSED
from ottla.pipeline.dead_letters import RECORD, dead_records, dead_rows
from ottla.pipeline.expectations import enforced, is_met, violation
from ottla.pipeline.json_values import is_parsed_in_tasks
from ottla.pipeline.options import CLIENT, SERVERS
from ottla.pipeline.parsing import ERROR, ROW, parsed
from ottla.pipeline.progress import OUTPUT, OUTPUT_ROWS
from ottla.pipeline.runner import StartableQuery, TableRefresh
from ottla.pipeline.spec.checks import AVAILABLE_NOW
from ottla.pipeline.spec.durations import duration_ms
from ottla.pipeline.spec.graph import build_graph
from ottla.pipeline.spec.loading import Loaded
from ottla.pipeline.spec.model import Pipeline, Source, Step, inputs_of
from ottla.pipeline.spec.problems import (
    InvalidPipeline,
    Path,
    PipelineProblem,
    did_you_mean,
    shown,
)
from ottla.pipeline.state_operators import combination_of, steps_with_state
from ottla.pipeline.streaming_queries import Query, QueryOutput, queries_of
from ottla.release import how_to_install
from ottla.settings.config_def import ConfigDef
from ottla.settings.consumer import CONSUMER
from ottla.settings.producer import PRODUCER

_PLACE: Final = re.compile(r"\(line (\d+), pos (\d+)\)")
_SQLSTATE: Final = re.compile(r"\s*SQLSTATE: \w+.*$")


class CompiledQuery(NamedTuple):
    """A query that can be started."""

    query: Query
    writer: Callable[[], DataStreamWriter]
    """Returns a new writer, because a query that failed is started again with another one."""
    trigger_s: float
    """The interval of its micro-batches; 0 without one."""
    state_steps: tuple[str, ...]
    """The step of each operator with state, in the order of Spark's reports."""

    def start(self) -> StreamingQuery:
        """Start the query from its checkpoint."""
        writer: Any = self.writer()
        return writer.start()

    @property
    def is_dead_letters(self) -> bool:
        """Whether the query writes dead letters."""
        return all(output.sink is None for output in self.query.outputs)

    @property
    def startable(self) -> StartableQuery:
        """Return what the runner starts."""
        return StartableQuery(
            self.query.name, self.start, self.is_dead_letters, self.trigger_s, self.state_steps
        )


class CompiledPipeline(NamedTuple):
    """A pipeline that Spark has analysed."""

    session: SparkSession
    frames: Mapping[str, DataFrame]
    """The rows of each source and step, after its expectations."""
    dead_letters: Mapping[str, DataFrame]
    """The dead letters of each source and step that can have some, as rows of their topic."""
    queries: tuple[CompiledQuery, ...]
    refreshes: tuple[TableRefresh, ...]
    """The side tables that are to be read again."""


class Bindings(NamedTuple):
    """What a pipeline is connected to, where that is not what the declaration says."""

    records: Callable[[SparkSession, str, Source], DataFrame] | None = None
    """Returns the records of a source by its name, with all columns of `format("ottla")`."""
    tables: Callable[[SparkSession, str, Source], DataFrame | None] | None = None
    """Returns the rows of a side table by its name; None reads the table."""
    console: Callable[[DataFrame, int], None] | None = None
    """Shows a micro-batch of a console sink; by default Spark prints it."""
    stop_file: str | None = None
    """The sources offer no more records when this file exists."""


def compile_pipeline(
    spark: SparkSession,
    loaded: Loaded,
    file: str = "",
    bindings: Bindings | None = None,
) -> CompiledPipeline:
    """Compile a checked pipeline; raises InvalidPipeline with the problems that Spark finds."""
    compiler = _Compiler(spark.newSession(), loaded.pipeline, bindings or Bindings())
    with _quiet():
        compiler.add_sources()
        compiler.add_steps()
        if not compiler.problems:
            compiler.add_queries()
    if compiler.problems:
        hide = loaded.redaction.hide
        problems = (one._replace(what=hide(one.what)) for one in compiler.problems)
        located = [loaded.positions.locate(one) for one in problems]
        located.sort(key=lambda one: one.position or (0, 0))
        raise InvalidPipeline(located, file)
    return CompiledPipeline(
        compiler.session,
        compiler.frames,
        compiler.dead_letters,
        tuple(compiler.queries),
        tuple(compiler.refreshes),
    )


@contextmanager
def _quiet() -> Generator[None]:
    """Keep PySpark from printing errors of the analysis, which are reported as problems."""
    loggers = [
        PySparkLogger.getLogger(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")
    ]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was_disabled in zip(loggers, before, strict=True):
            logger.disabled = was_disabled


class _Compiler:
    def __init__(self, session: SparkSession, pipeline: Pipeline, bindings: Bindings) -> None:
        if bindings.records is None:
            register(session)
        # Windows and dates do not depend on the place where a pipeline runs. Spark's default of 200
        # partitions is for batches; a first run fixes the number in the checkpoint.
        defaults = {
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": str(session.sparkContext.defaultParallelism),
        }
        for name, value in (defaults | pipeline.spark).items():
            if session.conf.isModifiable(name):  # others are set when Spark starts
                session.conf.set(name, str(value))
        self.session = session
        self.frames: dict[str, DataFrame] = {}
        self.dead_letters: dict[str, DataFrame] = {}
        self.queries: list[CompiledQuery] = []
        self.refreshes: list[TableRefresh] = []
        self.problems: list[PipelineProblem] = []
        self._pipeline = pipeline
        self._bindings = bindings
        self._before: dict[str, DataFrame] = {}  # the rows of steps before their expectations

    # Sources and steps.

    def add_sources(self) -> None:
        """Add the rows of each source as a view."""
        for name, source in self._pipeline.sources.items():
            path: Path = ("sources", name)
            if source.avro is not None and find_spec("fastavro") is None:
                what = f"avro needs fastavro: {how_to_install('avro')}"
                self.problems.append(PipelineProblem((*path, "avro"), what))
                continue
            try:
                table = self._table(name, source)
                frame = self._rows(name, source) if table is None else table
            except _Unusable as error:
                self.problems.append(error.problem)
            except (AnalysisException, ParseException) as error:
                self.problems.append(_spark_problem(path, error))
            else:
                self._add(name, frame)

    def add_steps(self) -> None:
        """Add the rows of each step as a view, after its inputs."""
        graph, _ = build_graph(self._pipeline)
        for name in graph.order:
            if any(before not in self.frames for before in graph.inputs[name]):
                continue  # its problem is reported
            step = self._pipeline.steps[name]
            path: Path = ("steps", name)
            try:
                before = self._step(path, step)
                self._check_dead_letters(path, before, step)
                self._before[name] = before
                self._add(name, self._expected(path, before, step))
            except _Unusable as error:
                self.problems.append(error.problem)
            except (AnalysisException, ParseException) as error:
                where = (*path, "sql") if step.sql is not None else path
                self.problems.append(_spark_problem(where, error, step.sql or ""))

    def _check_dead_letters(self, path: Path, rows: DataFrame, step: Step) -> None:
        """Raise _Unusable if a dead letter of a step would have no single record."""
        wanting = [name for name, one in step.expect.items() if one.otherwise == "dead_letter"]
        if wanting and (why := combination_of(rows)) is not None:
            what = (
                f"dead_letter is not possible after {why}: a row has no single record. Use drop, "
                "or expect it of a source"
            )
            raise _Unusable((*path, "expect", wanting[0], "otherwise"), what)

    def _add(self, name: str, frame: DataFrame) -> None:
        self.frames[name] = frame
        frame.createOrReplaceTempView(name)

    def _table(self, name: str, source: Source) -> DataFrame | None:
        """Return a side table; None for a source of records."""
        if source.parquet is None and source.query is None:
            return None
        tables = self._bindings.tables
        if tables is not None and (given := tables(self.session, name, source)) is not None:
            return given
        if source.parquet is not None:
            table = self.session.read.parquet(str(source.parquet))
        else:
            assert source.query is not None, "a side table has a kind"
            table = self._sql(source.query)
        if source.refresh is not None:
            interval_s = duration_ms(source.refresh) / 1000
            self.refreshes.append(TableRefresh(name, interval_s, lambda: list_files_again(table)))
        return table

    def _sql(self, text: str) -> DataFrame:
        session: Any = self.session  # Spark does not type the arguments
        return session.sql(text)

    def _records(
        self,
        name: str,
        source: Source,
        columns: Sequence[str],
        more: Mapping[str, str] | None = None,
    ) -> DataFrame:
        if self._bindings.records is not None:
            return self._bindings.records(self.session, name, source)
        options = {
            SERVERS: self._pipeline.brokers,
            **self._client(CONSUMER),
            **_start(source),
            **source.options,
            "columns": ",".join(columns),
            **(more or {}),
        }
        if self._bindings.stop_file is not None:
            options["stopFile"] = self._bindings.stop_file
        if source.pattern is not None:
            options["subscribePattern"] = source.pattern
        else:
            topics = [source.topic] if isinstance(source.topic, str) else source.topic or []
            options["subscribe"] = ",".join(topics)
        return self.session.readStream.format("ottla").options(**_plain(options)).load()

    def _json_options(self, source: Source) -> dict[str, str]:
        """Return the options with which the tasks parse JSON; none if only Spark can do it."""
        session: Any = self.session
        settings: dict[str, str] = {**session.conf.getAll, **_plain(self._pipeline.spark)}
        if self._bindings.records is not None or not is_parsed_in_tasks(source, settings):
            return {}
        unknown = "ignore" if source.unknown_fields == "ignore" else "unparsed"
        return {"jsonColumns": str(source.json), "jsonUnknownFields": unknown}

    def _rows(self, name: str, source: Source) -> DataFrame:
        json = self._json_options(source)
        values = [PARSED, UNPARSED] if json else ["value"]
        records = self._records(name, source, [*values, *source.metadata], json)
        rows = _flat(parsed(records, source).where(f.col(ERROR).isNull()), source)
        return self._expected(("sources", name), rows, source)

    def _expected(self, path: Path, rows: DataFrame, part: Source | Step) -> DataFrame:
        """Return the rows that meet the expectations of a source or step, with its watermark."""
        for name, expectation in part.expect.items():
            try:
                rows.where(is_met(expectation))
            except (AnalysisException, ParseException) as error:
                where = (*path, "expect", name, "check")
                raise _Unusable.of(_spark_problem(where, error, expectation.check)) from error
        found = enforced(rows, str(path[-1]), part.expect)
        if part.watermark is None:
            return found
        where = (*path, "watermark")
        _check_column((*where, "column"), part.watermark.column, rows)
        delay_ms = duration_ms(part.watermark.delay)
        try:
            return found.withWatermark(part.watermark.column, f"{delay_ms} milliseconds")
        except AnalysisException as error:
            raise _Unusable.of(_spark_problem(where, error)) from error

    def _step(self, path: Path, step: Step) -> DataFrame:
        if step.sql is not None:
            return self._sql(step.sql)
        names = {name.casefold(): name for name in self.frames}
        inputs = [self.frames[names[name.casefold()]] for name in inputs_of(step)]
        if step.deduplicate is not None:
            for at, column in enumerate(step.deduplicate):
                _check_column((*path, "deduplicate", at), column, inputs[0])
            return inputs[0].dropDuplicatesWithinWatermark(step.deduplicate)
        assert step.python is not None, "a checked step has a kind"
        function = _function((*path, "python"), step.python)
        try:
            found = function(*inputs)
        except Exception as error:  # whatever the user's function raises
            what = f"{step.python} failed: {type(error).__name__}: {error}"
            raise _Unusable((*path, "python"), what) from error
        if not isinstance(found, DataFrame):
            what = f"{step.python} returned {found!r}, not a DataFrame"
            raise _Unusable((*path, "python"), what)
        return found

    # Queries.

    def add_queries(self) -> None:
        """Add the queries of the sinks and of the dead letters."""
        for query in queries_of(self._pipeline):
            output = query.outputs[0]
            is_joint = self._pipeline.together and output.sink is not None
            try:
                compiled = self._joint_query(query) if is_joint else self._query(query, output)
                self.queries.append(compiled)
            except _Unusable as error:
                self.problems.append(error.problem)
            except (AnalysisException, ParseException) as error:
                part = "steps" if output.source in self._pipeline.steps else "sources"
                where: Path = (part, output.source, "expect")
                if output.sink is not None:
                    where = ("sinks", self._pipeline.sinks.index(output.sink))
                self.problems.append(_spark_problem(where, error))

    def _query(self, query: Query, output: QueryOutput) -> CompiledQuery:
        frame = self._output_rows(output)
        if output.kind != "topic":  # Spark counts the rows of a topic itself
            frame = _counted(frame)
        mode = "append" if output.sink is None else output.sink.mode
        options = {} if output.sink is None else _plain(output.sink.options)
        write = self._target(output)
        return self._compiled(query, frame, mode, lambda writer: write(writer.options(**options)))

    def _joint_query(self, query: Query) -> CompiledQuery:
        """Return the query that writes each micro-batch to all sinks, one after the other."""
        first = query.outputs[0]
        assert first.sink is not None, "dead letters have queries of their own"
        writes = [self._batch_target(one) for one in query.outputs]

        def write_batch(rows: DataFrame, batch: int) -> None:
            rows.persist()  # otherwise each sink would read the topics again
            try:
                for write in writes:
                    write(rows, batch)
            finally:
                rows.unpersist()

        frame = _counted(self.frames[first.source])
        return self._compiled(
            query, frame, first.sink.mode, lambda writer: writer.foreachBatch(write_batch)
        )

    def _batch_target(self, output: QueryOutput) -> Callable[[DataFrame, int], object]:
        """Return what writes a micro-batch to a sink."""
        sink = output.sink
        assert sink is not None
        self._output_rows(output)  # raises a problem of the sink before anything starts
        options = _plain(sink.options)
        match output.kind:
            case "topic":
                settings = {SERVERS: self._pipeline.brokers, **self._client(PRODUCER)}
                options = {**options, **_plain({**settings, "topic": output.target})}
                key = sink.key

                def to_topic(rows: DataFrame, batch: int) -> None:
                    records = _records_of(rows, key)
                    records.write.format("ottla").options(**options).mode("append").save()

                return to_topic
            case "parquet":
                target, columns = str(output.target), sink.partition_by

                def to_files(rows: DataFrame, batch: int) -> None:
                    files = rows.write.options(**options).mode("append")
                    (files.partitionBy(*columns) if columns else files).parquet(target)

                return to_files
            case "console":
                shown_by = self._bindings.console
                return shown_by or (lambda rows, batch: rows.show(truncate=False))
            case _:
                number = self._pipeline.sinks.index(sink)
                return _function(("sinks", number, "python"), output.target)

    def _compiled(
        self,
        query: Query,
        frame: DataFrame,
        mode: str,
        write: Callable[[DataStreamWriter], DataStreamWriter],
    ) -> CompiledQuery:
        name = f"{self._pipeline.name}.{query.name}"
        trigger = self._trigger()
        self._check_streaming(frame, mode)
        write_local_checkpoints_fast(self.session, query.checkpoint)

        def writer() -> DataStreamWriter:
            found = frame.writeStream.queryName(name).outputMode(mode)
            found = found.option("checkpointLocation", query.checkpoint).trigger(**trigger)
            return write(found)

        is_interval = self._pipeline.trigger != AVAILABLE_NOW
        trigger_s = duration_ms(self._pipeline.trigger) / 1000 if is_interval else 0.0
        source = query.outputs[0].source
        steps = steps_with_state(frame, source, self.frames)
        return CompiledQuery(query, writer, trigger_s, tuple(steps))

    def _check_streaming(self, frame: DataFrame, mode: str) -> None:
        """Raise AnalysisException if Spark cannot run a query as a stream, before it is started."""
        session: Any = self.session
        jvm = session._jvm  # noqa: SLF001 - Spark has no API for this
        # The whole name at once: for each part of a name, Java would search all jars.
        modes = getattr(jvm, "org.apache.spark.sql.streaming.OutputMode")
        java_mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}
        java_frame: Any = frame
        plan = java_frame._jdf.queryExecution().analyzed()  # noqa: SLF001
        checker = getattr(jvm, "org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker")
        checker.checkForStreaming(plan, java_mode[mode]())

    def _output_rows(self, output: QueryOutput) -> DataFrame:
        rows = self.frames[output.source]
        sink = output.sink
        if sink is None:
            self.dead_letters[output.source] = found = self._dead_letters(output.source)
            return found
        path: Path = ("sinks", self._pipeline.sinks.index(sink))
        for at, column in enumerate(sink.partition_by):
            _check_column((*path, "partition_by", at), column, rows)
        if output.kind != "topic":
            return rows
        if sink.key is not None:
            _check_column((*path, "key"), sink.key, rows)
        return _records_of(rows, sink.key)

    def _dead_letters(self, name: str) -> DataFrame:
        pipeline = self._pipeline
        if name in pipeline.steps:
            error = violation(name, pipeline.steps[name].expect)
            failed = self._before[name].withColumn(ERROR, error)
            return dead_rows(failed.where(f.col(ERROR).isNotNull()), pipeline.name, name)
        source = pipeline.sources[name]
        options, columns = self._json_options(source), [*TYPES]
        if options and any(one.otherwise == "dead_letter" for one in source.expect.values()):
            columns.append(PARSED)
        elif options:  # only values that are not parsed can be dead letters
            options["skipParsed"] = "true"
        records = self._records(name, source, columns, options)
        record = f.struct(*TYPES).alias(RECORD)
        rows = _flat(parsed(records, source), source, f.col(ERROR), record)
        error = f.coalesce(f.col(ERROR), violation(name, source.expect))
        failed = rows.withColumn(ERROR, error).where(f.col(ERROR).isNotNull())
        return dead_records(failed, pipeline.name, name)

    def _target(self, output: QueryOutput) -> Callable[[DataStreamWriter], DataStreamWriter]:
        match output.kind:
            case "topic":
                settings = {SERVERS: self._pipeline.brokers, **self._client(PRODUCER)}
                options = _plain({**settings, "topic": output.target})
                return lambda writer: writer.format("ottla").options(**options)
            case "parquet":
                columns = [] if output.sink is None else output.sink.partition_by
                target = str(output.target)

                def to_files(writer: DataStreamWriter) -> DataStreamWriter:
                    files = writer.format("parquet").option("path", target)
                    return files.partitionBy(*columns) if columns else files

                return to_files
            case "console":
                show = self._bindings.console
                if show is not None:
                    return lambda writer: writer.foreachBatch(show)
                return lambda writer: writer.format("console").option("truncate", "false")
            case _:
                assert output.sink is not None
                number = self._pipeline.sinks.index(output.sink)
                function = _function(("sinks", number, "python"), output.target)
                return lambda writer: writer.foreachBatch(function)

    def _trigger(self) -> dict[str, Any]:
        if self._pipeline.trigger == AVAILABLE_NOW:
            return {"availableNow": True}
        return {"processingTime": f"{duration_ms(self._pipeline.trigger)} milliseconds"}

    def _client(self, table: ConfigDef) -> dict[str, str]:
        """Return the client settings that a consumer or producer has, as options."""
        given = self._pipeline.client.items()
        return {f"{CLIENT}{name}": value for name, value in given if table.find(name) is not None}


def list_files_again(table: DataFrame) -> None:
    """Let the next micro-batch of every query see the current files of a side table.

    A streaming query reads a side table in each micro-batch, but Spark lists its files only once.
    """
    java_table: Any = table
    plan = java_table._jdf.queryExecution().analyzed()  # noqa: SLF001
    inner = plan.subqueriesAll()  # such as IN (SELECT …); they are not among the children
    for query in (plan, *(inner.apply(number) for number in range(inner.size()))):
        leaves = query.collectLeaves()
        for number in range(leaves.size()):
            leaf = leaves.apply(number)
            if leaf.getClass().getSimpleName() == "LogicalRelation":
                relation = leaf.relation()
                if relation.getClass().getSimpleName() == "HadoopFsRelation":
                    relation.location().refresh()


def _counted(rows: DataFrame) -> DataFrame:
    """Let the progress of a query have the number of rows."""
    return rows.observe(OUTPUT, f.count(f.lit(1)).alias(OUTPUT_ROWS))


def _records_of(rows: DataFrame, key: str | None) -> DataFrame:
    """Return rows as records of a topic: JSON objects, and the column of the key."""
    value = f.to_json(f.struct("*")).alias("value")
    if key is None:
        return rows.select(value)
    column = rows[key]
    is_binary = isinstance(rows.select(column).schema[0].dataType, BinaryType)
    return rows.select((column if is_binary else column.cast("string")).alias("key"), value)


def _check_column(path: Path, column: str, rows: DataFrame) -> None:
    """Raise _Unusable if rows do not have a column; Spark ignores the case of names."""
    if column.casefold() not in {name.casefold() for name in rows.columns}:
        hint = did_you_mean(column, rows.columns)
        raise _Unusable(path, f"there is no column {shown(column)}{hint}")


def _flat(records: DataFrame, source: Source, *more: Column) -> DataFrame:
    """Return the parsed columns, the metadata that the source asks for, and other columns."""
    metadata = [f.col(name).alias(f"_{name}") for name in source.metadata]
    return records.select(f"{ROW}.*", *metadata, *more)


def _start(source: Source) -> dict[str, str]:
    if source.start in ("earliest", "latest"):
        return {"startingOffsets": source.start}
    start_ms = int(datetime.fromisoformat(source.start).timestamp() * 1000)
    return {
        "startingTimestamp": str(start_ms),
        "startingOffsetsByTimestampStrategy": "latest",
    }


def _plain(options: Mapping[str, str]) -> dict[str, Any]:
    """Return options as plain texts: Spark's gateway does not know other types."""
    return {name: str(value) for name, value in options.items()}


def _function(path: Path, name: str) -> Callable[..., Any]:
    """Import module:function; raises _Unusable."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        missing = "not found" if error.name == module else f"it needs {error.name}"
        raise _Unusable(path, f"cannot import {module}: {missing}") from error
    except Exception as error:  # whatever the module raises when it is imported
        what = f"cannot import {module}: {type(error).__name__}: {error}"
        raise _Unusable(path, what) from error
    if not callable(found):
        raise _Unusable(path, f"module {module} has no function {attribute}")
    return found


class _Unusable(Exception):
    """A part that cannot be compiled."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(what)
        self.problem = PipelineProblem(path, what)

    @classmethod
    def of(cls, problem: PipelineProblem) -> Self:
        """Return the exception of a problem that is known."""
        found = cls(problem.path, problem.what)
        found.problem = problem
        return found


def _spark_problem(
    path: Path, error: AnalysisException | ParseException, sql: str = ""
) -> PipelineProblem:
    """Return what Spark says is wrong, without its plan, at the place that it names."""
    first = (str(error.getMessage()).strip() or type(error).__name__).splitlines()[0]
    place = _PLACE.search(str(error))
    if place is not None:  # of a syntax error
        lines = sql.splitlines(keepends=True)
        offset = len("".join(lines[: int(place[1]) - 1])) + int(place[2])
    else:
        contexts = error.getQueryContext()
        is_sql = contexts and contexts[0].contextType() is QueryContextType.SQL
        offset = contexts[0].startIndex() if is_sql else 0
    what = f"Spark: {_SQLSTATE.sub('', first)}"
    return PipelineProblem(path, what, offset=max(0, offset) if sql else 0)

"""Checks of a pipeline that need neither Spark nor a broker.

Invariant: every problem of a pipeline is returned at once. The text of a problem has what is wrong,
with which value, and how to fix it; a value with variables is shown as it is written.
"""

import re
from collections.abc import Generator, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import msgspec

from ottla.ids import topic_name_problem
from ottla.pipeline.spec.avro_schema import AvroSchemaError, avro_ddl
from ottla.pipeline.spec.durations import BadDuration, duration_ms
from ottla.pipeline.spec.graph import Graph, build_graph
from ottla.pipeline.spec.model import (
    FORMATS,
    HOOK_KEYS,
    HOOK_KINDS,
    SINK_KEYS,
    SINK_KINDS,
    SOURCE_KEYS,
    SOURCE_KINDS,
    STEP_KEYS,
    STEP_KINDS,
    TABLE_KINDS,
    Expectation,
    Hook,
    LagHook,
    Part,
    Pipeline,
    PipelineTest,
    Profile,
    Sink,
    Source,
    Step,
    dead_letter_topic,
    kinds_given,
    sink_name,
)
from ottla.pipeline.spec.problems import (
    Path,
    PipelineProblem,
    Severity,
    did_you_mean,
    listed,
    shown,
)
from ottla.pipeline.spec.schema_ddl import NESTED, Column, SchemaSyntaxError, parse_columns
from ottla.pipeline.spec.sql_inputs import SqlError, check_condition
from ottla.pipeline.spec.variables import is_unresolved

if TYPE_CHECKING:
    from ottla.settings.config_def import Setting

AVAILABLE_NOW: Final = "available now"
NAME_CHARACTERS_MAX: Final = 128
HOOK_TIMEOUT_MS_MAX: Final = 60_000

_TABLE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER: Final = re.compile(r"[A-Za-z0-9-]+")
_PART_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_FUNCTION: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
_BROKER: Final = re.compile(r"(\[[0-9a-fA-F:.%\w]+\]|[^\s,:/\[\]]+):([0-9]{1,5})")
_METADATA_TYPES: Final = {
    "key": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP",
    "headers": "ARRAY",
}
_MANAGED_OPTIONS: Final = {
    "kafka.bootstrap.servers": "brokers",
    "subscribe": "topic",
    "subscribepattern": "pattern",
    "assign": "topic",
    "startingoffsets": "start",
    "startingtimestamp": "start",
    "startingoffsetsbytimestamp": "start",
    "columns": "metadata: [key, offset]",
    "skipvaluepattern": "expect",
    "includeheaders": "metadata: [headers]",
    "topic": "topic",
    "path": "parquet",
    "checkpointlocation": "checkpoints",
    "queryname": "name",
}
"""The options that the pipeline sets, with the key that sets them."""


def problems_of(pipeline: Pipeline) -> list[PipelineProblem]:
    """Return every problem that can be found without Spark and without a broker."""
    graph, found = build_graph(pipeline)
    found += _pipeline(pipeline)
    for name, source in pipeline.sources.items():
        found += _source(name, source, pipeline)
    for name, step in pipeline.steps.items():
        found += _step(name, step, graph)
    for number, sink in enumerate(pipeline.sinks):
        found += _sink(number, sink, pipeline)
    for name, profile in pipeline.profiles.items():
        found += _profile(("profiles", name), profile)
    found += _tests(pipeline)
    return found


def columns_of(source: Source) -> tuple[Column, ...] | None:
    """Return the columns of a source, or None if only Spark knows them.

    Raises SchemaSyntaxError.
    """
    extra = tuple(Column(f"_{name}", _METADATA_TYPES[name]) for name in source.metadata)
    if source.unknown_fields == "keep":
        extra += (Column("_unknown_fields", "STRING"),)
    for text in (source.json, source.csv):
        if text is not None:
            return parse_columns(text) + extra
    if source.text is not None:
        return (Column(source.text, "STRING"), *extra)
    if source.binary is not None:
        return (Column(source.binary, "BINARY"), *extra)
    if source.avro is not None:
        try:
            return parse_columns(avro_ddl(source.avro)) + extra
        except AvroSchemaError:
            return None  # reported, or the name of a file that cannot be read
    return None


# The pipeline and its profiles.


def _pipeline(pipeline: Pipeline) -> Iterator[PipelineProblem]:
    yield from _part_name(("name",), pipeline.name)
    if not pipeline.sources:
        yield PipelineProblem(("sources",), "a pipeline needs at least one source")
    elif all(kinds_given(one, TABLE_KINDS) for one in pipeline.sources.values()):
        what = "all sources are side tables: a pipeline needs a topic to read"
        yield PipelineProblem(("sources",), what)
    if not pipeline.sinks:
        yield PipelineProblem(("sinks",), "a pipeline needs at least one sink")
    yield from _topic(("dead_letters",), dead_letter_topic(pipeline))
    for name, source in pipeline.sources.items():
        if dead_letter_topic(pipeline) in _topics(source):
            what = f"source {shown(name)} reads this topic: dead letters would be read again"
            yield PipelineProblem(("dead_letters",), what)
    settings = Profile(
        brokers=pipeline.brokers,
        checkpoints=pipeline.checkpoints,
        output=pipeline.output,
        trigger=pipeline.trigger,
        client=pipeline.client,
        spark=pipeline.spark,
        on_failure=pipeline.on_failure,
        on_lag=pipeline.on_lag,
        on_expectation=pipeline.on_expectation,
    )
    yield from _profile((), settings)
    if pipeline.together:
        yield from _together(pipeline)


def _together(pipeline: Pipeline) -> Iterator[PipelineProblem]:
    """Yield the sinks that cannot be in one query with the first one."""
    for number, sink in enumerate(pipeline.sinks[1:], start=1):
        first = pipeline.sinks[0]
        if sink.from_.casefold() != first.from_.casefold():
            what = (
                f"together needs sinks that read the same source or step; sinks[0] reads "
                f"{shown(first.from_)}"
            )
            yield PipelineProblem(("sinks", number, "from"), what)
        elif sink.mode != first.mode:
            where: Path = ("sinks", number) if sink.mode == "append" else ("sinks", number, "mode")
            what = f"together needs sinks with the same mode; sinks[0] has {first.mode}"
            yield PipelineProblem(where, what)


def _profile(path: Path, profile: Profile) -> Iterator[PipelineProblem]:
    if path:
        yield from _part_name(path, str(path[-1]), at_key=True)
    if profile.brokers is not None and not is_unresolved(profile.brokers):
        yield from _brokers((*path, "brokers"), profile.brokers)
    for key in ("checkpoints", "output"):
        if getattr(profile, key) == "":
            yield PipelineProblem((*path, key), "is empty: name a directory")
    if profile.trigger is not None:
        yield from _trigger((*path, "trigger"), profile.trigger)
    yield from _client_settings((*path, "client"), profile.client)
    for name in profile.spark:
        if name in ("spark.master", "spark.submit.deployMode"):
            what = "cannot be set here: use --master of ottla pipeline run"
            yield PipelineProblem((*path, "spark", name), what, at_key=True)
        elif not name.startswith("spark."):
            what = f"is not a Spark setting: their names begin with spark., as spark.{name}"
            yield PipelineProblem((*path, "spark", name), what, at_key=True)
    for key in ("on_failure", "on_lag", "on_expectation"):
        hook: Hook | None = getattr(profile, key)
        if hook is not None:
            yield from _hook((*path, key), hook)
    if profile.on_expectation is not None and profile.on_expectation.rows < 1:
        yield PipelineProblem((*path, "on_expectation", "rows"), "must be at least 1")


def _hook(path: Path, hook: Hook) -> Iterator[PipelineProblem]:
    yield from _kind(path, hook, "a hook", HOOK_KINDS, HOOK_KEYS)
    if hook.webhook is not None and not is_unresolved(hook.webhook) and not _is_url(hook.webhook):
        what = f"{shown(hook.webhook)} is not a URL such as https://alerts.example/pipelines"
        yield PipelineProblem((*path, "webhook"), what)
    for name, value in hook.headers.items():
        if not _HEADER.fullmatch(name):
            yield PipelineProblem((*path, "headers", name), "is not a header name", at_key=True)
        elif not value.isprintable():
            what = f"{shown(value)} has characters that a header cannot have"
            yield PipelineProblem((*path, "headers", name), what)
    if hook.command is not None and not any(hook.command[:1]):
        yield PipelineProblem((*path, "command"), "names no program: write [program, argument]")
    yield from _duration((*path, "every"), hook.every, lowest_ms=1000)
    wrong = [*_duration((*path, "timeout"), hook.timeout, lowest_ms=1)]
    yield from wrong
    if not wrong and duration_ms(hook.timeout) > HOOK_TIMEOUT_MS_MAX:
        yield PipelineProblem((*path, "timeout"), f"{shown(hook.timeout)} is more than a minute")
    if not isinstance(hook, LagHook):
        return
    if hook.records is None and hook.longer_than is None:
        what = "needs the lag that is too large: add records: 10000 or longer_than: 1 minute"
        yield PipelineProblem(path, what, at_key=True)
    if hook.records is not None and hook.records < 0:
        yield PipelineProblem((*path, "records"), "must not be negative")
    if hook.longer_than is not None:
        yield from _duration((*path, "longer_than"), hook.longer_than)


def _is_url(text: str) -> bool:
    """Whether a text is an address that a webhook can have; credentials belong in headers."""
    try:
        url = urlsplit(text)
        is_port = url.port is None or url.port > 0
    except ValueError:
        return False
    is_plain = text.isascii() and text.isprintable() and " " not in text and "@" not in url.netloc
    return url.scheme in ("http", "https") and bool(url.hostname) and is_port and is_plain


def _brokers(path: Path, text: str) -> Iterator[PipelineProblem]:
    for one in text.split(","):
        found = _BROKER.fullmatch(one.strip())
        if found is None or not 0 < int(found[2]) < 65_536:
            what = f"{shown(text)} is not a list of brokers: write HOST:PORT,HOST:PORT"
            yield PipelineProblem(path, what)
            return


def _trigger(path: Path, text: str) -> Iterator[PipelineProblem]:
    if text == AVAILABLE_NOW:
        return
    for problem in _duration(path, text):
        yield problem._replace(what=f"{problem.what}; or {AVAILABLE_NOW}")


def _client_settings(path: Path, given: Mapping[str, str]) -> Iterator[PipelineProblem]:
    if not given:
        return
    # Imported on use, because the tables take a tenth of the time that `validate` may take.
    from ottla.settings.config_def import Setting
    from ottla.settings.consumer import CONSUMER
    from ottla.settings.producer import PRODUCER

    tables = (CONSUMER, PRODUCER)
    known = {name for table in tables for name in table.names}
    for name, value in given.items():
        where = (*path, name)
        rows = [row for table in tables if (row := table.find(name)) is not None]
        settings = [row for row in rows if isinstance(row, Setting)]
        if name == "bootstrap.servers":
            yield PipelineProblem(where, "use the key brokers instead", at_key=True)
        elif not rows:
            bare = name.removeprefix("kafka.")
            hint = f"; write {bare}, without kafka." if bare in known else did_you_mean(name, known)
            yield PipelineProblem(where, f"unknown client setting{hint}", at_key=True)
        elif not settings:
            yield PipelineProblem(where, str(rows[0]), Severity.WARNING, at_key=True)
        elif not is_unresolved(value):
            yield from _client_setting(where, settings[0], value)


def _client_setting(path: Path, setting: "Setting[Any]", value: str) -> Iterator[PipelineProblem]:
    from ottla.settings.config_types import HIDDEN, BadValue

    try:
        setting.parse(value)
    except BadValue as error:
        text = HIDDEN if setting.sensitive else shown(value)
        # The note may quote the value.
        note = f" ({error.note})" if error.note and type(value) is str else ""
        what = f"invalid value {text}{note}: expected {setting.valid_text}"
        yield PipelineProblem(path, what)


# Sources.


def _source(name: str, source: Source, pipeline: Pipeline) -> Iterator[PipelineProblem]:
    path: Path = ("sources", name)
    yield from _table_name(path, name)
    kind = yield from _kind(path, source, "a source", SOURCE_KINDS, SOURCE_KEYS)
    if kind in TABLE_KINDS:
        if source.refresh is not None:
            yield from _duration((*path, "refresh"), source.refresh, lowest_ms=1)
        if source.query is not None:
            yield from _without_variables((*path, "query"), source.query)
        return
    formats = kinds_given(source, FORMATS)
    if kind is not None and not formats:
        what = f"a topic needs the format of its values: add {listed(FORMATS, 'or')}"
        yield PipelineProblem(path, what, at_key=True)
    elif kind is not None and len(formats) > 1:
        what = f"expected one format, found {listed(formats)}"
        yield PipelineProblem((*path, formats[1]), what, at_key=True)
    yield from _source_topics(path, source)
    columns, wrong = _columns(path, source)
    yield from wrong
    yield from _watermark(path, source, columns)
    yield from _expectations(path, source.expect)
    yield from _start((*path, "start"), source.start)
    yield from _source_options((*path, "options"), source.options)
    if source.unknown_fields != "ignore" and source.json is None:
        what = "only for json: other formats have no unknown fields"
        yield PipelineProblem((*path, "unknown_fields"), what, at_key=True)
    if source.parse and source.json is None and source.csv is None:
        yield PipelineProblem((*path, "parse"), "only for json and csv", at_key=True)
    outputs = {sink.topic: sink for sink in pipeline.sinks if sink.topic is not None}
    for topic in _topics(source):
        if topic in outputs:
            sink = sink_name(outputs[topic])
            what = f"sink {shown(sink)} writes to this topic, so the pipeline reads its own output"
            yield PipelineProblem((*path, "topic"), what, Severity.WARNING)


def _topics(source: Source) -> list[str]:
    match source.topic:
        case None:
            return []
        case str() as topic:
            return [topic]
        case topics:
            return topics


def _source_topics(path: Path, source: Source) -> Iterator[PipelineProblem]:
    where: Path = (*path, "topic")
    if isinstance(source.topic, list):
        if not source.topic:
            yield PipelineProblem(where, "the list is empty: name a topic")
        for at, topic in enumerate(source.topic):
            yield from _topic((*where, at), topic)
            if topic in source.topic[:at]:
                yield PipelineProblem((*where, at), f"topic {shown(topic)} is there twice")
    elif source.topic is not None:
        yield from _topic(where, source.topic)
    if source.pattern is not None and not is_unresolved(source.pattern):
        try:
            re.compile(source.pattern)
        except re.error as error:
            what = f"{shown(source.pattern)} is not a regular expression: {error.msg}"
            yield PipelineProblem((*path, "pattern"), what, offset=error.pos or 0)


def _topic(path: Path, name: str) -> Iterator[PipelineProblem]:
    if is_unresolved(name):
        return
    if "," in name:
        what = f"{shown(name)}: write several topics as a list, [a, b]"
        yield PipelineProblem(path, what)
    elif problem := topic_name_problem(name):
        # The problem quotes a character, which may be part of the value of a variable.
        why = problem.partition(";")[0].rstrip(".")
        yield PipelineProblem(path, f"{shown(name)} is not a topic name. {why}")


def _columns(path: Path, source: Source) -> tuple[tuple[Column, ...] | None, list[PipelineProblem]]:
    problems: list[PipelineProblem] = []
    for key, text in (("json", source.json), ("csv", source.csv)):
        if text is not None and "${" in text:
            return None, [*_without_variables((*path, key), text)]
    for key, text in (("text", source.text), ("binary", source.binary)):
        if text is not None and not _TABLE_NAME.fullmatch(text):
            what = f"{shown(text)} is not a column name: write {key}: value"
            problems.append(PipelineProblem((*path, key), what))
    if source.avro is not None:
        problems += _avro((*path, "avro"), source.avro)
    try:
        columns = columns_of(source)
    except SchemaSyntaxError as error:
        key = "json" if source.json is not None else "csv"
        problems.append(PipelineProblem((*path, key), str(error), offset=error.offset))
        return None, problems
    if source.csv is not None and columns is not None:
        for column in columns[: len(columns) - len(source.metadata)]:
            if column.type in NESTED:
                what = f"column {shown(column.name)}: CSV has no {column.type} columns"
                problems.append(PipelineProblem((*path, "csv"), what))
    return columns, problems


def _avro(path: Path, text: str) -> Iterator[PipelineProblem]:
    if not text.lstrip().startswith(("{", "[", '"')):
        if not text.endswith(".avsc"):
            what = f"expected a schema as JSON, or the name of an .avsc file, not {shown(text)}"
            yield PipelineProblem(path, what)
        return
    try:
        avro_ddl(text)
    except AvroSchemaError as error:
        yield PipelineProblem(path, str(error))


def _watermark(
    path: Path, part: Source | Step, columns: tuple[Column, ...] | None
) -> Iterator[PipelineProblem]:
    if part.watermark is None:
        return
    yield from _duration((*path, "watermark", "delay"), part.watermark.delay)
    if columns is None:
        return
    where = (*path, "watermark", "column")
    name = part.watermark.column
    types = {column.name.casefold(): column.type for column in columns}
    if name.casefold() not in types:
        hint = did_you_mean(name, (column.name for column in columns))
        yield PipelineProblem(where, f"there is no column {shown(name)}{hint}")
    elif (found := types[name.casefold()]) not in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        what = f"column {shown(name)} is {found}; a watermark needs a TIMESTAMP column"
        yield PipelineProblem(where, what)


def _expectations(path: Path, given: Mapping[str, Expectation]) -> Iterator[PipelineProblem]:
    for name, one in given.items():
        where = (*path, "expect", name)
        yield from _part_name(where, name, at_key=True)
        yield from _without_variables((*where, "check"), one.check)
        try:
            check_condition(one.check)
        except SqlError as error:
            yield PipelineProblem((*where, "check"), str(error), offset=error.offset)


def _start(path: Path, text: str) -> Iterator[PipelineProblem]:
    if text in ("earliest", "latest") or is_unresolved(text):
        return
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        what = f"{shown(text)} is not earliest, latest or a time such as 2026-01-01T00:00:00Z"
        yield PipelineProblem(path, what)
        return
    if found.tzinfo is None:
        yield PipelineProblem(path, f"{shown(text)} has no time zone: add Z for UTC")


def _source_options(path: Path, given: Mapping[str, str]) -> Iterator[PipelineProblem]:
    if not given:
        return
    from ottla.pipeline.options import TABLE, Use

    known = {
        one.name.lower(): one.name
        for one in TABLE
        if Use.STREAM in one.uses and one.name.lower() not in _MANAGED_OPTIONS
    }
    for name in given:
        where = (*path, name)
        lower = name.lower()
        if lower in _MANAGED_OPTIONS:
            yield PipelineProblem(where, f"use the key {_MANAGED_OPTIONS[lower]}", at_key=True)
        elif lower not in known and lower.startswith("kafka."):
            what = f"use client: {{{name[len('kafka.') :]}: …}} of the pipeline"
            yield PipelineProblem(where, what, at_key=True)
        elif lower not in known:
            hint = did_you_mean(name, known.values())
            yield PipelineProblem(where, f"unknown option of a source{hint}", at_key=True)


# Steps.


def _step(name: str, step: Step, graph: Graph) -> Iterator[PipelineProblem]:
    path: Path = ("steps", name)
    yield from _table_name(path, name)
    kind = yield from _kind(path, step, "a step", STEP_KINDS, STEP_KEYS)
    if step.sql is not None:
        yield from _without_variables((*path, "sql"), step.sql)
    if step.python is not None:
        yield from _function((*path, "python"), step.python)
    if kind in ("python", "deduplicate") and not step.from_:
        what = f"needs from: the source or step that {kind} reads"
        yield PipelineProblem(path, what, at_key=True)
    if step.deduplicate is not None:
        if not step.deduplicate:
            yield PipelineProblem((*path, "deduplicate"), "the list is empty: name a column")
        if isinstance(step.from_, list) and len(step.from_) > 1:
            yield PipelineProblem((*path, "from"), "deduplicate reads one source or step")
    yield from _watermark(path, step, None)
    yield from _expectations(path, step.expect)
    why = graph.combined.get(name)
    for expectation, one in step.expect.items():
        if one.otherwise == "dead_letter" and why is not None:
            where = (*path, "expect", expectation, "otherwise")
            what = (
                f"dead_letter is not possible after {why}: a row has no single record. Use drop, "
                "or expect it of a source"
            )
            yield PipelineProblem(where, what)


def _function(path: Path, text: str) -> Iterator[PipelineProblem]:
    if not _FUNCTION.fullmatch(text):
        what = f"{shown(text)} is not a function: write module:function"
        yield PipelineProblem(path, what)


# Sinks.


def _sink(number: int, sink: Sink, pipeline: Pipeline) -> Iterator[PipelineProblem]:
    path: Path = ("sinks", number)
    kind = yield from _kind(path, sink, "a sink", SINK_KINDS, SINK_KEYS)
    if sink.name is not None:
        yield from _part_name((*path, "name"), sink.name)
    if sink.topic is not None:
        yield from _topic((*path, "topic"), sink.topic)
        if sink.topic == dead_letter_topic(pipeline):
            yield PipelineProblem((*path, "topic"), "this is the topic of dead letters")
    if sink.parquet == "":
        yield PipelineProblem((*path, "parquet"), "is empty: name a directory")
    if sink.python is not None:
        yield from _function((*path, "python"), sink.python)
    for at, column in enumerate(sink.partition_by):
        if column in sink.partition_by[:at]:
            what = f"column {shown(column)} is there twice"
            yield PipelineProblem((*path, "partition_by", at), what)
    if kind == "parquet" and sink.mode != "append":
        what = f"files can only be appended to: {sink.mode} needs a topic, a function or console"
        yield PipelineProblem((*path, "mode"), what)
    if kind == "topic" and sink.mode != "append" and not pipeline.together:
        what = f"{sink.mode} needs together: true if the sink is a topic"
        yield PipelineProblem((*path, "mode"), what)
    yield from _guarantee(path, sink, kind, pipeline)
    for name in sink.options:
        if (key := _MANAGED_OPTIONS.get(name.lower())) is not None:
            yield PipelineProblem((*path, "options", name), f"use the key {key}", at_key=True)


def _guarantee(
    path: Path, sink: Sink, kind: str | None, pipeline: Pipeline
) -> Iterator[PipelineProblem]:
    where = (*path, "exactly_once")
    if sink.exactly_once and kind == "topic":
        what = (
            "a topic gets each row at least once: exactly once needs transactions, which Ottla's "
            "broker does not support yet. Remove the key, or write false"
        )
        yield PipelineProblem(where, what)
    elif sink.exactly_once and kind == "console":
        yield PipelineProblem(where, "rows on a console can be printed twice: remove the key")
    elif pipeline.together and kind in ("topic", "parquet") and sink.exactly_once is not False:
        what = (
            f"together repeats the rows of a failed batch in a {kind} sink: accept that with "
            "exactly_once: false, or remove together"
        )
        yield PipelineProblem(path, what)
    elif pipeline.together and kind == "python" and sink.exactly_once is None:
        what = (
            "together calls the function again for a failed batch: write exactly_once: true if "
            "it ignores a batch id that it has stored, else false"
        )
        yield PipelineProblem(path, what)


# Tests.


def _tests(pipeline: Pipeline) -> Iterator[PipelineProblem]:
    names: dict[str, int] = {}
    for number, test in enumerate(pipeline.tests):
        path: Path = ("tests", number)
        before = names.setdefault(test.name, number)
        if before != number:
            what = f"the name {shown(test.name)} is already used by tests[{before}]"
            yield PipelineProblem((*path, "name"), what)
        yield from _given(path, test, pipeline)
        yield from _results(path, test, pipeline)


def _given(path: Path, test: PipelineTest, pipeline: Pipeline) -> Iterator[PipelineProblem]:
    for name, batches in test.given.items():
        where = (*path, "given", name)
        source = pipeline.sources.get(name)
        if source is None:
            hint = did_you_mean(name, pipeline.sources)
            yield PipelineProblem(where, f"there is no source {shown(name)}{hint}", at_key=True)
            continue
        try:
            columns = columns_of(source)
        except SchemaSyntaxError:
            continue  # reported with the source
        if columns is None or source.unknown_fields != "ignore":
            continue
        known = {column.name for column in columns}
        for at, batch in enumerate(batches):
            for row_at, row in enumerate(batch):
                unknown = [] if isinstance(row, str) else [one for one in row if one not in known]
                for column in unknown:
                    what = f"source {shown(name)} has no column {shown(column)}"
                    hint = did_you_mean(column, known)
                    row_path = (*where, at, row_at, column)
                    yield PipelineProblem(row_path, f"{what}{hint}", at_key=True)


def _results(path: Path, test: PipelineTest, pipeline: Pipeline) -> Iterator[PipelineProblem]:
    parts: dict[str, Source | Step] = {**pipeline.sources, **pipeline.steps}
    expectations = {f"{name}.{one}" for name, part in parts.items() for one in part.expect}
    if not (test.expect or test.late or test.dead_letters or test.failed):
        what = "the test expects nothing: add expect, late, dead_letters or failed"
        yield PipelineProblem(path, what)
    for key, names, known, kind in (
        ("expect", test.expect, [*parts], "source or step"),
        ("late", test.late, [*pipeline.steps], "step"),
        ("dead_letters", test.dead_letters, [*parts], "source or step"),
        ("failed", test.failed, [*expectations], "expectation"),
    ):
        for name in names:
            if name not in known:
                hint = did_you_mean(name, known)
                what = f"there is no {kind} {shown(name)}{hint}"
                yield PipelineProblem((*path, key, name), what, at_key=True)


# Shared by several parts.


def _kind(
    path: Path,
    part: Part,
    noun: str,
    kinds: tuple[str, ...],
    keys: Mapping[str, tuple[str, ...]],
) -> Generator[PipelineProblem, None, str | None]:
    """Return the kind of a part, if it has one; yields a problem for keys of other kinds."""
    given = kinds_given(part, kinds)
    if not given:
        yield PipelineProblem(path, f"{noun} needs one of {listed(kinds, 'or')}", at_key=True)
        return None
    if len(given) > 1:
        what = f"{noun} has one of {listed(kinds, 'or')}, found {listed(given)}"
        yield PipelineProblem((*path, given[1]), what, at_key=True)
        return None
    fields = {field.encode_name: field for field in msgspec.structs.fields(type(part))}
    for key, allowed in keys.items():
        value = getattr(part, fields[key].name)
        if given[0] not in allowed and value not in (fields[key].default, {}, []):
            what = f"only for {noun} with {listed(allowed, 'or')}; this one has {given[0]}"
            yield PipelineProblem((*path, key), what, at_key=True)
    return given[0]


def _duration(path: Path, text: str, lowest_ms: int = 0) -> Iterator[PipelineProblem]:
    try:
        found_ms = duration_ms(text)
    except BadDuration as error:
        yield PipelineProblem(path, str(error))
        return
    if found_ms < lowest_ms:
        yield PipelineProblem(path, f"{shown(text)} is too short")


def _without_variables(path: Path, text: str) -> Iterator[PipelineProblem]:
    if (at := text.find("${")) >= 0:
        what = "variables are not replaced here, so that no secret is in a query plan"
        yield PipelineProblem(path, what, offset=at)


def _table_name(path: Path, name: str) -> Iterator[PipelineProblem]:
    if not _TABLE_NAME.fullmatch(name) or len(name) > NAME_CHARACTERS_MAX:
        instead = re.sub(r"[^A-Za-z0-9_]", "_", name).lstrip("0123456789")
        hint = f": write {instead}" if _TABLE_NAME.fullmatch(instead) else ""
        what = f"the name is a table in SQL, so it has letters, digits and _ only{hint}"
        yield PipelineProblem(path, what, at_key=True)


def _part_name(path: Path, name: str, *, at_key: bool = False) -> Iterator[PipelineProblem]:
    if not _PART_NAME.fullmatch(name) or len(name) > NAME_CHARACTERS_MAX:
        what = (
            f"{shown(name)} is not a name: use up to {NAME_CHARACTERS_MAX} letters, digits, "
            "'.', '_' and '-', and begin with a letter or digit"
        )
        yield PipelineProblem(path, what, at_key=at_key)

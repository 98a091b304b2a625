"""Declared pipelines on a real Spark: parsing, expectations, dead letters and whole queries."""

import json
import random
import re
import sys
from collections.abc import Generator
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
import pyarrow.parquet
import pytest

from cases import Cases
from judges.ottla_broker import OttlaBroker
from ottla.pipeline import Expectation, InvalidPipeline, Source
from ottla.pipeline.compiler import compile_pipeline
from ottla.pipeline.dead_letters import RECORD, dead_records, dead_rows
from ottla.pipeline.expectations import enforced, violation
from ottla.pipeline.json_values import json_schema, parsed_values
from ottla.pipeline.parsing import ERROR, ROW, parsed
from ottla.pipeline.spec.loading import Loaded, load_text
from ottla.pipeline.spec.schema_ddl import NESTED, TYPES, parse_columns
from ottla.pipeline.spec.sql_inputs import sql_inputs
from ottla.records import COMPILED
from ottla.sync import Producer
from pipeline.queries import finished
from pipeline.spec.test_schema_ddl import SCHEMAS
from pipeline.spec.test_sql_inputs import QUERIES
from pipeline.test_spark_sink import records
from sampling import seed

NOT_JSON = "the value is not JSON with the columns of the schema"
NOT_CSV = "the value is not CSV with the columns of the schema"


def raw(spark: Any, *values: bytes | None, headers: str = "NULL") -> Any:
    """Records with these values, without a Python process of Spark."""
    texts = ["NULL" if value is None else f"X'{value.hex()}'" for value in values]
    rows = ", ".join(f"({offset}, {text})" for offset, text in enumerate(texts))
    return spark.sql(
        f"""SELECT X'6b' AS key, CAST(value AS BINARY) AS value, 't' AS topic, 0 AS partition,
        CAST(offset AS LONG) AS offset, TIMESTAMP '2026-01-01 00:00:00' AS timestamp,
        CAST({headers} AS array<struct<key:string,value:binary>>) AS headers
        FROM VALUES {rows} AS t(offset, value)"""
    )


# Spark agrees with what is checked without it.


def test_spark_reads_the_tables_that_the_scan_finds(spark: Any) -> None:
    parser = spark._jsparkSession.sessionState().sqlParser()
    cases = Cases()
    for query, _ in QUERIES:
        with cases.case(query):
            plan = str(parser.parsePlan(query.removesuffix(";")).treeString())
            named = {
                line.partition("[")[2].partition("]")[0]
                for line in plan.splitlines()
                if "UnresolvedRelation" in line
            }
            common = {name for name in named if f"CTE [{name}" in plan or f", {name}]" in plan}
            tables = {name for name in named - common if "," not in name and "." not in name}
            assert tables <= {*sql_inputs(query).names} <= named
    cases.check()


def test_spark_parses_the_same_columns(spark: Any) -> None:
    from pyspark.sql.types import StructType

    assert spark  # which parses the schemas
    cases = Cases()
    for schema, _ in SCHEMAS:
        with cases.case(schema):
            parsed_by_spark: Any = StructType.fromDDL(schema)
            names = parsed_by_spark.fieldNames()
            assert [column.name for column in parse_columns(schema)] == names
    cases.check()


# Parsing.

A_AND_B = Source(json="a INT, b STRING")
A = Source(json="a INT")
STRICT = Source(json="a INT", unknown_fields="dead_letter")
KEPT = Source(json="a INT", unknown_fields="keep")
CSV = Source(csv="a INT, b STRING")
TEXT = Source(text="line")
AVRO_FIELDS = [
    {"name": "a", "type": ["null", "int"]},
    {"name": "b", "type": {"type": "map", "values": "string"}},
    {"name": "c", "type": {"type": "long", "logicalType": "timestamp-millis"}},
]
AVRO = Source(avro=json.dumps({"type": "record", "name": "R", "fields": AVRO_FIELDS}))
FORMATS: list[tuple[Source, bytes | None, object]] = [
    (A_AND_B, b'{"a": 1, "b": "x"}', {"a": 1, "b": "x"}),
    (A_AND_B, b'{"a": 1, "c": 2}', {"a": 1, "b": None}),
    (A, b'{"a": "x"}', NOT_JSON),
    (A, b'{"a": 1', NOT_JSON),
    (A, b'[{"a": 1}]', NOT_JSON),
    (A, b"null", NOT_JSON),
    (A, b'{"a": 99999999999}', NOT_JSON),
    (A, b'{"a": 1.5}', NOT_JSON),
    (A, b'{"a": 1} {"a": 2}', {"a": 1}),  # Spark ignores what follows the object
    (A, b"  ", NOT_JSON),
    (A_AND_B, b'{"a": 1, "b": "\xff"}', "the value is not UTF-8"),
    (A_AND_B, '{"a": 1}'.encode("utf-16"), "the value is not UTF-8"),
    (A, b"", "the value is empty"),
    (A, None, "the value is null"),
    (Source(json="a INT NOT NULL, b INT"), b'{"b": 1}', "column a is null"),
    (STRICT, b'{"a": 1}', {"a": 1}),
    (STRICT, b'{"a": 1, "c": 2, "d": 3}', "unknown fields: c, d"),
    (KEPT, b'{"a": 1, "c": [2], "d": "x"}', {"a": 1, "_unknown_fields": '{"c":[2],"d":"x"}'}),
    (KEPT, b'{"a": 1}', {"a": 1, "_unknown_fields": None}),
    (Source(json="value INT, offset INT"), b'{"value": 1}', {"value": 1, "offset": None}),
    (
        Source(json="a DATE", parse={"dateFormat": "dd.MM.yyyy"}),
        b'{"a": "31.01.2026"}',
        {"a": "2026-01-31"},
    ),
    (CSV, b"1,x", {"a": 1, "b": "x"}),
    (CSV, b"x,1", NOT_CSV),
    (CSV, b"1", NOT_CSV),
    (CSV, b"1,x,y", NOT_CSV),
    (CSV, b"", {"a": None, "b": None}),
    (CSV, b'1,"x\ny"', {"a": 1, "b": "x\ny"}),
    (CSV, b"1,\xff", "the value is not UTF-8"),
    (Source(csv="a INT, b STRING", parse={"sep": ";"}), b"1;x", {"a": 1, "b": "x"}),
    (TEXT, "größe".encode(), {"line": "größe"}),
    (TEXT, b"", {"line": ""}),
    (TEXT, b"\xff", "the value is not UTF-8"),
    (TEXT, None, "the value is null"),
    (Source(binary="data"), None, {"data": None}),
    (
        AVRO,
        b"\x02\x02\x02\x02x\x02y\x00\x00",
        {"a": 1, "b": {"x": "y"}, "c": "1970-01-01T00:00:00.000Z"},
    ),
    (AVRO, b"\x00\x00\x00", {"a": None, "b": {}, "c": "1970-01-01T00:00:00.000Z"}),
    (AVRO, b"\x00\x00\x00x", "the value is not Avro with this schema: 1 byte follows the record"),
    (AVRO, None, "the value is null"),
]


def test_every_format_is_parsed_or_has_an_error(spark: Any) -> None:
    from pyspark.sql import functions as f

    sources = [*{id(source): source for source, _, _ in FORMATS}.values()]
    whole: Any = None
    for number, source in enumerate(sources):
        values = [value for one, value, _ in FORMATS if one is source]
        row = f.to_json(ROW, {"ignoreNullFields": "false"})
        frame = parsed(raw(spark, *values), source)
        frame = frame.select(f.lit(number).alias("source"), "offset", f.col(ERROR), row.alias(ROW))
        whole = frame if whole is None else whole.unionAll(frame)
    found = {(row.source, row.offset): row for row in whole.collect()}
    cases = Cases()
    for number, source in enumerate(sources):
        mine = [(value, expected) for one, value, expected in FORMATS if one is source]
        for offset, (value, expected) in enumerate(mine):
            with cases.case(source, value):
                row = found[number, offset]
                assert (json.loads(row[ROW]) if row[ERROR] is None else row[ERROR]) == expected
    cases.check()


def test_spark_can_parse_values_of_every_type(spark: Any) -> None:
    forms = {
        "ARRAY": "ARRAY<INT>",
        "MAP": "MAP<STRING, INT>",
        "STRUCT": "STRUCT<b: INT>",
        "INTERVAL": "INTERVAL DAY TO SECOND",
    }
    columns = {name: f"{name}_ {forms.get(name, name)}" for name in sorted(TYPES)}
    flat = [column for name, column in columns.items() if name not in NESTED]
    assert parsed(raw(spark, b"{}"), Source(json=", ".join(columns.values()))).columns
    assert parsed(raw(spark, b"1"), Source(csv=", ".join(flat))).columns


def test_value_is_parsed_once_for_filter_and_columns(spark: Any) -> None:
    source = Source(json="a INT NOT NULL, b STRING")
    value = "CAST(to_json(struct(id AS a)) AS BINARY) AS value"
    rows: Any = parsed(spark.range(1).selectExpr(value), source).where(f"{ERROR} IS NULL")
    plan = rows.select(f"{ROW}.*").where("a > 0")._jdf.queryExecution().executedPlan().toString()
    assert plan.count("from_json") == 1


# Expectations and dead letters.


def test_rows_that_fail_are_kept_dropped_or_refused(spark: Any) -> None:
    rows = spark.sql("SELECT * FROM VALUES (1), (5), (NULL), (20) AS t(a)")
    expectations = {
        "small": Expectation(check="a < 10", otherwise="drop"),
        "odd": Expectation(check="a % 2 = 1"),
        "known": Expectation(check="a IS NOT NULL", otherwise="dead_letter"),
    }
    assert [row.a for row in enforced(rows, "x", expectations).collect()] == [1, 5]
    reasons = [row[0] for row in rows.select(violation("x", expectations)).collect()]
    assert reasons == [None, None, "expectation x.known failed: a IS NOT NULL", None]
    refused = {"small": Expectation(check="a < 10", otherwise="fail")}
    with pytest.raises(Exception, match=r"expectation x\.small failed: a < 10"):
        enforced(rows, "x", refused).collect()


def headers_of(row: Any) -> dict[str, str]:
    assert len({one.key for one in row.headers}) == len(row.headers)
    return {one.key: one.value.decode() for one in row.headers}


def test_dead_record_keeps_its_bytes_and_counts_attempts(spark: Any) -> None:
    from pyspark.sql import functions as f

    before = "array(('ottla.attempts', X'32'), ('ottla.error', X'33'), ('trace', X'31'))"
    whole = raw(spark, b"\xff").unionAll(raw(spark, b"{", headers=before))
    failed = whole.select(f.struct("*").alias(RECORD), f.lit("broken").alias(ERROR))
    first, second = dead_records(failed, "p", "s").collect()
    assert (first.key, first.value) == (b"k", b"\xff")
    told = headers_of(first)
    assert told.pop("ottla.time").endswith("Z")
    assert told == {
        "ottla.pipeline": "p",
        "ottla.step": "s",
        "ottla.error": "broken",
        "ottla.topic": "t",
        "ottla.partition": "0",
        "ottla.offset": "0",
        "ottla.timestamp": "2026-01-01T00:00:00.000Z",
        "ottla.attempts": "1",
    }
    told = headers_of(second)
    assert (told["ottla.attempts"], told["ottla.error"], told["trace"]) == ("3", "broken", "1")


def test_dead_row_of_a_step_is_json(spark: Any) -> None:
    failed = spark.sql(f"SELECT 1 AS a, 'x' AS b, 'broken' AS {ERROR}")
    [row] = dead_rows(failed, "p", "s").collect()
    assert json.loads(row.value) == {"a": 1, "b": "x"}
    assert headers_of(row)["ottla.error"] == "broken"


# Whole pipelines.

PIPELINE = """\
name: {topic}
brokers: {brokers}
checkpoints: {folder}/checkpoints
output: {folder}
trigger: available now
dead_letters: {topic}.dead
spark: {{spark.sql.shuffle.partitions: 1}}
sources:
  readings:
    topic: {topic}
    json: device STRING NOT NULL, at TIMESTAMP, value DOUBLE
    watermark: {{column: at, delay: 5 seconds}}
    metadata: [offset]
    expect:
      plausible: {{check: value BETWEEN -60 AND 120, otherwise: dead_letter}}
      warm: {{check: value > 10}}
steps:
  means:
    sql: SELECT device, window.start AS start, avg(value) AS mean, count(*) AS readings
         FROM readings GROUP BY device, window(at, '10 seconds')
  fresh: {{deduplicate: [device, at], from: readings}}
  hot: {{python: {module}:hot, from: Fresh}}
sinks:
  - {{from: means, parquet: means, partition_by: [device]}}
  - {{from: hot, topic: {topic}.hot, key: device}}
"""
MODULE = """
def hot(readings):
    return readings.where("value > 30").select("device", "value")


def failing(readings):
    return readings.missing


def nothing(readings):
    return None
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[str]:
    """A module with steps; no other test has its name."""
    name = f"steps_of_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield name
    sys.modules.pop(name, None)


def declaration(
    topic: str, broker: OttlaBroker, folder: Path, module: str, *changes: tuple[str, str]
) -> str:
    text = PIPELINE.format(topic=topic, brokers=broker.bootstrap, folder=folder, module=module)
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


def loaded(text: str) -> Loaded:
    return load_text(text, "p.yaml", environment={}, read_file=lambda name: name)


def send(broker: OttlaBroker, topic: str, *values: bytes) -> None:
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for value in values:
            producer.send(topic, value, partition=0)


def reading(device: str, second: int, value: object) -> bytes:
    at = f"2026-01-01T00:00:{second:02}Z"
    return json.dumps({"device": device, "at": at, "value": value}).encode()


def test_pipeline_writes_rows_and_dead_letters(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path, module: str
) -> None:
    pipeline = loaded(declaration(topic, broker, tmp_path, module))
    first = [
        *(reading("a", second, value) for second, value in enumerate([20, 22, 40, 40])),
        reading("a", 3, 40),  # a duplicate
        reading("b", 4, 500),
        b"not JSON",
        json.dumps({"value": 1}).encode(),
    ]
    # The last reading moves the watermark. The micro-batch without records at the end of the query
    # then closes the first window.
    send(broker, topic, *first, reading("c", 59, 1))
    done = [
        finished(lambda writer=one.writer: writer().start())
        for one in compile_pipeline(spark, pipeline).queries
    ]
    dead = [one.value for one in records(broker, f"{topic}.dead")]
    assert sorted(dead) == sorted(first[5:])
    hot = [(one.key, json.loads(one.value)) for one in records(broker, f"{topic}.hot")]
    assert hot == [(b"a", {"device": "a", "value": 40.0})] * 2
    means = spark.read.parquet(f"{tmp_path}/means").collect()
    assert [(row.device, row.mean, row.readings) for row in means] == [("a", 32.4, 5)]
    counts = done[0].recentProgress[0].observedMetrics["readings"]
    assert (counts.rows, counts.plausible, counts.warm) == (7, 1, 1)


class Place(NamedTuple):
    """A part of a declaration at which there is a mistake."""

    text: str

    def __call__(self, part: str) -> str:
        assert self.text.count(part) == 1, part
        at = self.text.index(part)
        line_start = self.text.rfind("\n", 0, at) + 1
        return f"p.yaml:{self.text.count(chr(10), 0, at) + 1}:{at - line_start + 1}:"


def problems(spark: Any, text: str) -> list[str]:
    """The problems that Spark finds, without the part of a message that is Spark's."""
    with pytest.raises(InvalidPipeline) as error:
        compile_pipeline(spark, loaded(text), "p.yaml")
    lines = str(error.value).splitlines()
    assert "SQLSTATE" not in "".join(lines)
    return [
        line.partition(" Spark: ")[0].partition(" PySpark")[0].partition(", not a")[0]
        for line in lines
    ]


def test_problems_that_spark_finds_have_positions(
    spark: Any,
    broker: OttlaBroker,
    topic: str,
    tmp_path: Path,
    module: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    more = f"""steps:
  parse: {{sql: SELECT device a b FROM readings}}
  cold: {{python: {module}:cold, from: readings}}
  failing: {{python: {module}:failing, from: readings}}
  nothing: {{python: {module}:nothing, from: readings}}
  none: {{python: no_such_module:x, from: readings}}
  again: {{deduplicate: [devic], from: readings}}
  expecting: {{sql: SELECT * FROM readings, expect: {{x: {{check: 1 < valuu}}}}}}
"""
    changes = ("avg(value)", "avg(valu)"), ("steps:\n", more)
    text = declaration(topic, broker, tmp_path, module, *changes)
    at = Place(text)
    missing = 'there is no column "devic"; did you mean device?'
    assert problems(spark, text) == [
        f"{at('b FROM')} steps.parse.sql:",
        f"{at(f'{module}:cold')} steps.cold.python: module {module} has no function cold",
        f"{at(f'{module}:failing')} steps.failing.python: {module}:failing failed:",
        f"{at(f'{module}:nothing')} steps.nothing.python: {module}:nothing returned None",
        f"{at('no_such')} steps.none.python: cannot import no_such_module: not found",
        f"{at('devic]')} steps.again.deduplicate[0]: {missing}",
        f"{at('valuu')} steps.expecting.expect.x.check:",
        f"{at('valu)')} steps.means.sql:",
    ]
    assert capfd.readouterr().err == "", "Spark logs nothing beside the problems"


def test_problems_of_sinks_have_positions(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path, module: str
) -> None:
    changes = ("partition_by: [device]", "partition_by: [devic]"), ("key: device", "key: devices")
    text = declaration(topic, broker, tmp_path, module, *changes)
    at = Place(text)
    missing = 'there is no column "devic"; did you mean device?'
    assert problems(spark, text) == [
        f"{at('devic]')} sinks[0].partition_by[0]: {missing}",
        f'{at("devices")} sinks[1].key: there is no column "devices"; did you mean device?',
    ]


def test_query_that_cannot_be_a_stream_is_refused_before_it_starts(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path, module: str
) -> None:
    more = """steps:
  sorted: {sql: SELECT * FROM readings ORDER BY at}
  counts: {sql: SELECT count(*) AS n FROM readings GROUP BY device}
"""
    sinks = """sinks:
  - {from: sorted, console: true}
  - {from: counts, console: true}
  - {from: counts, console: true, mode: complete, name: complete}
  - {from: readings, console: true, mode: complete, name: all}
"""
    changes = ("steps:\n", more), ("sinks:\n", sinks)
    text = declaration(topic, broker, tmp_path, module, *changes)
    at = Place(text)
    assert problems(spark, text) == [
        f"{at('{from: sorted')} sinks[0]:",
        f"{at('{from: counts, console: true}')} sinks[1]:",
        f"{at('{from: readings, console: true, m')} sinks[3]:",
    ]


def test_secrets_are_not_in_plans(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path, module: str
) -> None:
    secret = "hunter2"
    change = ("sources:", "client: {ssl.key.password: hunter2, acks: all}\nsources:")
    text = declaration(topic, broker, tmp_path, module, change)
    frames: Any = compile_pipeline(spark, loaded(text)).frames
    for frame in frames.values():
        execution = frame._jdf.queryExecution()
        assert "kafka.bootstrap.servers" in execution.toString()
        assert secret not in execution.toString()
        assert secret not in execution.logical().toString()


def test_sources_read_only_the_columns_that_are_used(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path, module: str
) -> None:
    change = ("metadata: [offset]", "metadata: [timestamp]")
    text = declaration(topic, broker, tmp_path, module, change)
    frames: Any = compile_pipeline(spark, loaded(text)).frames
    plan: str = frames["readings"]._jdf.queryExecution().analyzed().toString()
    [relation] = [line for line in plan.splitlines() if "StreamingRelation" in line]
    assert re.findall(r"(\w+)#\d+", relation) == ["timestamp", "parsed", "unparsed"]


def candidates(rng: random.Random) -> dict[str, list[str]]:
    """Texts of values of each type: those at the edges of both parsers, and random ones."""
    numbers = ["0", "-0", "1", "-1", "01", "1.", ".5", "1.5", "-0.0", "1e3", "1E-5", "1e400", "NaN"]
    numbers += ["2147483647", "2147483648", "-2147483648", "-2147483649", "9" * 15 + ".25", "+1"]
    numbers += ["9" * 18, "-" + "9" * 18, "9" * 19, "9" * 30, "1." + "9" * 15, "9007199254740993"]
    numbers += [repr(rng.uniform(-1, 1) * 10 ** rng.randint(-20, 20)) for _ in range(300)]
    numbers += [str(rng.randint(-(10**12), 10**12)) for _ in range(50)]
    numbers += [f"{rng.uniform(-100, 100):.{rng.randint(1, 30)}f}" for _ in range(100)]
    strings = [
        "",
        "a",
        r"\n",
        r"\"\\\/\b\f\n\r\t",
        r"\u0041",
        r"\u00e9\u20ac",
        r"\u0000",
        r"\ud83d\ude00",
    ]
    strings += ["\x7f", "\x01", "é", "€", "😀", "\ufffe", "\u2028", r"\x", r"\u12", "\t"]
    characters = "ab \x7fé€😀" + "".join(chr(rng.randrange(0x20, 0xD800)) for _ in range(200))
    characters = characters.replace('"', "").replace("\\", "")
    strings += ["".join(rng.choices(characters, k=rng.randint(0, 20))) for _ in range(200)]
    days = ["1000-01-01", "2999-12-31", "2024-02-29", "2026-02-29", "2026-13-01", "0000-01-01"]
    days += ["1582-10-10", "1600-02-29", "1900-02-28", "1969-12-31", "2026-1-1"]
    days += [str(date.fromordinal(rng.randrange(364878, 1095000))) for _ in range(100)]
    times = ["00:00:00", "23:59:59.999999", "23:59:60", "24:00:00", "1:2:3", "12:00:00.1234567"]
    times += [f"12:00:00.{rng.randrange(10**n):0{n}}" for n in range(1, 7)]
    zones = ["", "Z", "+00:00", "-17:59", "+18:00", "+18:01", "z", "+0100", " UTC", "+05:30"]
    moments = [f"{day}{mark}{time}" for day in days[:11] for mark in "T " for time in times]
    moments += [f"{day}T{rng.choice(times)}" for day in days]
    others = ["null", "true", "false", "True", '"1"', "[]", "{}", "", '"true"', "1", '"x']
    texts = [f'"{text}"' for text in strings]
    every = {
        "STRING": texts,
        "BOOLEAN": ["true", "false"],
        **dict.fromkeys(("INT", "BIGINT", "DOUBLE"), numbers),
        "TIMESTAMP": [f'"{moment}{zone}"' for moment in moments for zone in zones],
        "DATE": [f'"{day}"' for day in days] + [f'"{day}T00:00:00"' for day in days[:3]],
    }
    return {kind: [*found, *others] for kind, found in every.items()}


@pytest.mark.skipif(not COMPILED, reason="the tasks do not parse JSON")
def test_tasks_parse_values_as_spark_does(spark: Any, tmp_path: Path) -> None:
    """What the tasks parse is no dead letter, and has the same row."""
    arrow: Any = pyarrow
    files: Any = pyarrow.parquet
    cases = Cases()
    for kind, texts in candidates(random.Random(seed())).items():
        source = Source(json=f"a {kind}, b {kind}")
        values = [
            form.format(text).encode()
            for text in texts
            for form in ('{{"a":{0},"b":{0}}}', '{{ "b" : {0} , "c":"x"}} ')
        ]
        schema = json_schema(str(source.json), skips_unknown=True)
        array = arrow.array(values, arrow.binary())
        found = parsed_values(schema, array)
        table = arrow.table({"value": array, "row_of_task": found.rows})
        files.write_table(table, tmp_path / kind)
        whole = parsed(spark.read.parquet(str(tmp_path / kind)), source)
        wrong = whole.where("row_of_task IS NOT NULL").where(
            f"{ERROR} IS NOT NULL OR NOT to_json({ROW}) <=> to_json(row_of_task)"
        )
        with cases.case(kind):
            assert found.parsed_count > 3
            assert wrong.collect() == []
    cases.check()


@pytest.mark.parametrize("expects", [False, True])
def test_dead_letters_are_found_among_parsed_values(
    spark: Any, broker: OttlaBroker, topic: str, tmp_path: Path, expects: bool
) -> None:
    low = "expect: {low: {check: a < 4, otherwise: dead_letter}}," if expects else ""
    text = f"""
        name: parsed
        brokers: {broker.bootstrap}
        checkpoints: {tmp_path}
        trigger: available now
        sources:
          rows: {{topic: {topic}, start: earliest, json: a INT, {low} unknown_fields: keep}}
        sinks: [{{from: rows, topic: {topic}.rows}}]
        dead_letters: {topic}.dead
    """
    values = [b'{"a":1}', b"x", b'{"a":2,"b":0}', b'{"a":"b"}', b'{"a": 3}', b'{"a":4}', b""]
    send(broker, topic, *values)
    for one in compile_pipeline(spark, loaded(text)).queries:
        finished(lambda writer=one.writer: writer().start())
    rows = [json.loads(one.value) for one in records(broker, f"{topic}.rows")]
    more = [] if expects else [{"a": 4}]
    assert rows == [{"a": 1}, {"a": 2, "_unknown_fields": '{"b":0}'}, {"a": 3}, *more]
    dead = [
        (one.value, dict(one.headers)["ottla.offset"]) for one in records(broker, f"{topic}.dead")
    ]
    failed = [(b'{"a":4}', b"5")] if expects else []
    assert dead == [(b"x", b"1"), (b'{"a":"b"}', b"3"), *failed, (b"", b"6")]

"""One pipeline with every format, kind of step, sink and action, against rows of plain Python.

The pipeline runs twice over real topics, until it has read what is there. The second run continues
from the checkpoints of the first one.
"""

import base64
import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import fastavro
import pytest
from pyspark.errors import StreamingQueryException

from judges.ottla_broker import OttlaBroker
from ottla.pipeline.avro_values import encoded_value
from ottla.pipeline.compiler import Bindings, CompiledPipeline, compile_pipeline
from ottla.pipeline.progress import QueryProgress, QueryState
from ottla.pipeline.runner import PipelineRun, StartableQuery
from ottla.pipeline.spec.loading import load_text
from ottla.sync import Producer
from pipeline.queries import finished
from pipeline.test_spark_sink import records

START_MS: Final = 1_767_225_600_000  # 2026-01-01T00:00:00Z
START: Final = datetime.fromtimestamp(START_MS / 1000, UTC).replace(tzinfo=None)
DELAY_S: Final = 5
GAP_S: Final = 4
AVRO: Final = json.dumps(
    {
        "type": "record",
        "name": "Row",
        "fields": [{"name": "n", "type": "int"}, {"name": "s", "type": ["null", "string"]}],
    }
)
PIPELINE = """\
name: {topic}
brokers: {brokers}
checkpoints: {folder}/checkpoints
output: {folder}
trigger: available now
dead_letters: {topic}.dead
spark: {{spark.sql.shuffle.partitions: 1}}
sources:
  objects:
    topic: {topic}.objects
    json: n INT NOT NULL, s STRING
    metadata: [key, topic, partition, offset, timestamp, headers]
    expect:
      small: {{check: n < 100, otherwise: drop}}
      named: {{check: s IS NOT NULL}}
      positive: {{check: n > 0, otherwise: dead_letter}}
  lines: {{topic: {topic}.lines, csv: "n INT, s STRING", start: "2026-01-01T00:00:10Z"}}
  packed: {{topic: {topic}.packed, avro: '{avro}'}}
  texts: {{pattern: "^{topic}[.]text", text: s, metadata: [topic]}}
  blobs: {{topic: {topic}.blobs, binary: data, start: latest}}
  events:
    topic: {topic}.events
    json: device STRING, at TIMESTAMP, n INT
    watermark: {{column: at, delay: 5 seconds}}
    expect: {{counted: {{check: n IS NOT NULL, otherwise: fail}}}}
steps:
  every:
    sql: |
      SELECT 'objects' AS source, to_json(struct(n, s, CAST(_key AS STRING) AS key, _topic,
          _partition, _offset, unix_millis(_timestamp) AS ms,
          transform(_headers, one -> concat(one.key, '=', CAST(one.value AS STRING))) AS headers))
          AS row FROM objects
      UNION ALL SELECT 'lines', to_json(struct(n, s)) FROM lines
      UNION ALL SELECT 'packed', to_json(struct(n, s)) FROM packed
      UNION ALL SELECT 'texts', to_json(struct(s, _topic)) FROM texts
      UNION ALL SELECT 'blobs', to_json(struct(data)) FROM blobs
  chosen:
    sql: SELECT n, s FROM objects
    expect: {{even: {{check: n % 2 = 0, otherwise: dead_letter}}}}
  sessions:
    sql: SELECT device, session_window.start AS start, session_window.end AS end, sum(n) AS total
         FROM events GROUP BY device, session_window(at, '4 seconds')
  once: {{deduplicate: [device, n], from: events}}
  doubled: {{python: "{module}:doubled", from: once}}
sinks:
  - {{from: every, topic: {topic}.every, key: source}}
  - {{from: chosen, console: true}}
  - {{from: sessions, python: "{module}:store"}}
  - {{from: doubled, parquet: doubled, partition_by: [device]}}
"""
MODULE = """
stored = {}


def doubled(rows):
    return rows.selectExpr("device", "at", "n * 2 AS n")


def store(rows, batch):
    stored[batch] = [(row.device, row.start, row.end, row.total) for row in rows.collect()]
"""


class Sent(NamedTuple):
    """A record of a run."""

    topic: str
    value: bytes | None
    second: float = 0.0
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class Event(NamedTuple):
    device: str
    second: int
    n: int

    @property
    def value(self) -> bytes:
        at = f"2026-01-01T00:00:{self.second:02}Z"
        return json.dumps({"device": self.device, "at": at, "n": self.n}).encode()


def row(**columns: object) -> bytes:
    return json.dumps(columns).encode()


EVENTS: Final = (
    # The newest event moves the watermark to second 15, which closes the first two sessions.
    (*[Event("a", 0, 1), Event("a", 3, 2), Event("a", 3, 2)], Event("b", 5, 1), Event("a", 20, 3)),
    # An event within a session of the first run, one that is late, a duplicate of the first run,
    # and an equal one that comes after the watermark has passed the first one.
    (Event("a", 23, 4), Event("a", 1, 9), Event("a", 20, 3), Event("b", 59, 1)),
)
RUNS: Final = tuple(
    [*chain(formats, (Sent("events", event.value) for event in events))]
    for formats, events in zip(
        (
            (
                Sent("objects", row(n=2, s="x"), 1.5, b"k", (("h", b"v"), ("h", b"w"))),
                Sent("objects", row(n=3, s=None)),
                Sent("objects", row(n=100, s="dropped")),
                Sent("objects", row(n=-1, s="dead letter")),
                Sent("objects", b"not JSON"),
                Sent("lines", b"1,too early", 9.999),
                Sent("lines", b'2,"a, b"', 10),
                Sent("lines", b"x,not a number", 11),
                Sent("packed", encoded_value(AVRO, {"n": 5, "s": "ä"})),
                Sent("packed", b"\xff\xff"),
                Sent("text.a", "größe".encode()),
                Sent("text.b", b"\xff not UTF-8"),
                Sent("blobs", b"before the start"),
            ),
            (
                Sent("objects", row(n=4, s="y"), 2),
                Sent("objects", row(n=5)),
                Sent("lines", b"3,", 1),  # the time of the start counts for the first run only
                Sent("packed", encoded_value(AVRO, {"n": 6, "s": None})),
                Sent("text.c", b"of a topic that did not exist at the first run"),
                Sent("blobs", b"\x00\xff"),
                Sent("blobs", None),
            ),
        ),
        EVENTS,
        strict=True,
    )
)
DEAD: Final = {
    ("objects", b'{"n": -1, "s": "dead letter"}'),
    ("objects", b"not JSON"),
    ("lines", b"x,not a number"),
    ("packed", b"\xff\xff"),
    ("texts", b"\xff not UTF-8"),
    ("chosen", b'{"n":3}'),  # Spark's JSON leaves out what is null
}


def test_every_part_does_what_plain_python_does(
    spark: Any,
    broker: OttlaBroker,
    topic: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = f"parts_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    shown: list[tuple[int, str | None]] = []

    def show(rows: Any, batch: int) -> None:
        shown.extend((one.n, one.s) for one in rows.collect())

    text = PIPELINE.format(
        topic=topic, brokers=broker.bootstrap, folder=tmp_path, module=name, avro=AVRO
    )
    loaded = load_text(text, "p.yaml", environment={}, read_file=str)
    pipeline = compile_pipeline(spark, loaded, bindings=Bindings(console=show))
    first, second = RUNS
    send(broker, topic, first)
    done = run(pipeline, tmp_path)
    assert [one.state for one in done.values()] == [QueryState.FINISHED] * len(pipeline.queries)
    assert {one.late_rows for one in done.values()} == {0}
    every = done["every-topic"]
    counts = {"objects.small": 1, "objects.named": 1, "objects.positive": 1}
    assert every.failed == counts, "each is counted, whatever happens to the row"
    assert done["chosen-console"].failed == {**counts, "chosen.even": 1}
    assert every.rows_out == len([*plain_rows(topic, first, is_first=True)])

    send(broker, topic, second)
    done = run(pipeline, tmp_path, *(f"{sink}" for sink in SINKS))
    assert (done["sessions-python"].late_rows, done["doubled-parquet"].late_rows) == (1, 1)

    found = [
        ((one.key or b"").decode(), json.loads(json.loads(one.value or b"")["row"]))
        for one in records(broker, f"{topic}.every")
    ]
    expected = [*plain_rows(topic, first, is_first=True), *plain_rows(topic, second)]
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert sorted(shown, key=str) == [(2, "x"), (4, "y")]
    stored = chain.from_iterable(sys.modules[name].stored.values())
    assert sorted(stored) == sorted(plain_sessions())
    rows = spark.read.parquet(f"{tmp_path}/doubled").collect()
    assert sorted((one.device, one.at, one.n) for one in rows) == sorted(plain_doubled())
    check_dead_letters(broker, topic)

    send(broker, topic, [Sent("events", row(device="a", at="2026-01-01T00:01:00Z"))])
    [query] = [one for one in pipeline.queries if one.query.name == "sessions-python"]
    with pytest.raises(StreamingQueryException, match=r"events\.counted failed: n IS NOT NULL"):
        finished(query.start)
    sys.modules.pop(name)


SINKS: Final = ("every-topic", "chosen-console", "sessions-python", "doubled-parquet")


def send(broker: OttlaBroker, topic: str, given: Iterable[Sent]) -> None:
    with Producer({"bootstrap.servers": broker.bootstrap}) as producer:
        for one in given:
            producer.send(
                f"{topic}.{one.topic}",
                one.value,
                key=one.key,
                partition=0,
                headers=one.headers,
                timestamp_ms=START_MS + int(one.second * 1000),
            )


def run(pipeline: CompiledPipeline, folder: Path, *names: str) -> Mapping[str, QueryProgress]:
    """Run the queries with these names, or all, until they have read what is there."""
    queries = [
        StartableQuery(one.query.name, one.start, is_dead_letters=one.is_dead_letters)
        for one in pipeline.queries
        if not names or one.query.name in names
    ]
    done = PipelineRun("p", queries, folder / "stop").run(lambda: False)
    return {one.name: one for one in done.queries}


# What the pipeline does, in plain Python.


def plain_rows(
    topic: str, sent: Iterable[Sent], *, is_first: bool = False
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rows of the sources by name; without columns that are null, as in Spark's JSON."""
    offset = -1 if is_first else sum(one.topic == "objects" for one in RUNS[0]) - 1
    for one in sent:
        offset += one.topic == "objects"
        value = one.value
        if (found := plain_row(topic, one, offset, is_first=is_first)) is not None:
            source = "texts" if one.topic.startswith("text") else one.topic
            assert (source, value) not in DEAD
            yield source, {name: column for name, column in found.items() if column is not None}


def plain_row(topic: str, sent: Sent, offset: int, *, is_first: bool) -> dict[str, Any] | None:
    """Return the row of a record; None for one that is late, dropped or a dead letter."""
    value = sent.value
    match sent.topic:
        case "objects":
            try:
                found = json.loads(value or b"")
            except ValueError:
                return None
            if not 0 < found["n"] < 100:
                return None
            return {
                **found,
                "key": sent.key and sent.key.decode(),
                "_topic": f"{topic}.objects",
                "_partition": 0,
                "_offset": offset,
                "ms": START_MS + int(sent.second * 1000),
                "headers": [f"{key}={one.decode()}" for key, one in sent.headers] or None,
            }
        case "lines":
            [[n, s]] = csv.reader([(value or b"").decode()])
            is_early = is_first and sent.second < 10
            return None if is_early or not n.isdigit() else {"n": int(n), "s": s or None}
        case "packed":
            library: Any = fastavro
            try:
                return library.schemaless_reader(io.BytesIO(value or b""), json.loads(AVRO))
            except (EOFError, UnicodeDecodeError, IndexError, ValueError):
                return None
        case "blobs":
            data = None if value is None else base64.b64encode(value).decode()
            return None if is_first else {"data": data}
        case "events":
            return None
        case text:
            try:
                return {"s": (value or b"").decode(), "_topic": f"{topic}.{text}"}
            except UnicodeDecodeError:
                return None


def plain_sessions() -> Iterator[tuple[str, datetime, datetime, int]]:
    """Yield the sessions that the watermark has closed."""
    watermark = -1
    opened: list[tuple[str, int, int, int]] = []  # device, start, end, total
    for events in EVENTS:
        for device, second, n in events:
            if second + GAP_S <= watermark:
                continue
            start, end, total = second, second + GAP_S, n
            for one in [one for one in opened if one[0] == device]:
                if one[1] < end and start < one[2]:
                    opened.remove(one)
                    start, end, total = min(start, one[1]), max(end, one[2]), total + one[3]
            opened.append((device, start, end, total))
        watermark = max(second for _, second, _ in events) - DELAY_S
        for one in [one for one in opened if one[2] <= watermark]:
            opened.remove(one)
            device, start, end, total = one
            yield device, at(start), at(end), total


def plain_doubled() -> Iterator[tuple[str, datetime, int]]:
    """Yield one event for equal devices and numbers within the watermark, with a double number."""
    watermark = -1
    seen: dict[tuple[str, int], int] = {}
    for events in EVENTS:
        for device, second, n in events:
            if second > watermark and (device, n) not in seen:
                seen[device, n] = second
                yield device, at(second), n * 2
        watermark = max(second for _, second, _ in events) - DELAY_S
        seen = {key: second for key, second in seen.items() if second + DELAY_S > watermark}


def at(second: int) -> datetime:
    return START.replace(second=second)


def check_dead_letters(broker: OttlaBroker, topic: str) -> None:
    """The first run has written them: records as they were, and rows of a step as JSON."""
    sent = {(one.topic, one.value): one for one in RUNS[0]}
    found = records(broker, f"{topic}.dead")
    assert len(found) == len(DEAD)
    for one in found:
        headers = {name: (value or b"").decode() for name, value in one.headers}
        step = headers["ottla.step"]
        assert (step, one.value) in DEAD
        assert headers["ottla.pipeline"] == topic
        if step == "chosen":
            assert headers["ottla.error"] == "expectation chosen.even failed: n % 2 = 0"
            assert not {"ottla.topic", "ottla.offset", "ottla.attempts"} & {*headers}
            continue
        origin = headers["ottla.topic"].removeprefix(f"{topic}.")
        assert (origin, one.value) in sent, "the bytes of the record"
        assert (headers["ottla.partition"], headers["ottla.attempts"]) == ("0", "1")
        of_topic = [given.value for given in RUNS[0] if given.topic == origin]
        assert of_topic[int(headers["ottla.offset"])] == one.value

"""Polls a running example: record counts, latest rows, and the progress of its job.

Invariant: counts and latest rows are of this run: they start empty with the monitor. Totals are of
all runs. Rows come only from files that Spark has committed, and each file and each record is read
once. Polling changes nothing of what it reads.
"""

import json
import os
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Final, cast
from urllib.parse import unquote, urlparse

from ottla.client.admin import NewTopic, OffsetAt
from ottla.errors import ErrorCode
from ottla.sync import Admin, Consumer
from shared.example import Example, Files, Job, Progress, Row, Topic

RATE_POLLS: Final = 10
"""A rate is an average over so many polls."""

POLL_TIMEOUT_MS: Final = 5000
"""A poll must not take long: meanwhile nobody sees Ctrl-C or the end of the broker."""

LATEST_RECORDS: Final = 200


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """The state of a query after its last micro-batch."""

    name: str
    batch: int | None = None  # None before the first micro-batch has ended
    batch_ms: int = 0
    rows_per_s: float = 0.0
    records_read: int = 0  # of the input topic, from its first record
    late_rows: int = 0  # which the watermark has excluded from this micro-batch

    headings: ClassVar[Sequence[str]] = (
        "query",
        "batch",
        "batch time",
        "rows/s",
        "lag",
        "late rows",
    )

    def cells(self, input_total: int) -> Sequence[str]:
        """The cells of its row in the view."""
        if self.batch is None:
            return ("…",)
        return (
            f"{self.batch:,}",
            f"{self.batch_ms / 1000:.1f} s",
            f"{self.rows_per_s:,.0f}",
            f"{input_total - self.records_read:,}",
            f"{self.late_rows:,}" if self.late_rows else "",
        )

    def lag(self, input_total: int) -> int | None:
        """The records of the input that it has not read; None before the first micro-batch."""
        return None if self.batch is None else input_total - self.records_read


@dataclass(frozen=True, slots=True)
class OutputState:
    """The rows or records of one output that this run has written."""

    count: int = 0
    total: int = 0  # of all runs
    latest: Sequence[Row] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of an example at one time."""

    stage: str = ""
    broker: str = ""
    since: datetime | None = None  # None before the run has started to count
    elapsed_s: float = 0.0
    input_count: int = 0
    input_per_s: float = 0.0
    input_total: int = 0  # of all runs
    outputs: Mapping[str, OutputState] = field(default_factory=dict[str, OutputState])  # by label
    progress: Sequence[Progress] = ()  # of the parts of the job
    paths: Mapping[str, str] = field(default_factory=dict[str, str])

    def output(self, label: str) -> OutputState:
        """The state of an output."""
        return self.outputs.get(label, OutputState())

    @property
    def lag(self) -> int | None:
        """The lag of the slowest part of the job; None until all of them have one."""
        lags = [one.lag(self.input_total) for one in self.progress]
        known = [lag for lag in lags if lag is not None]
        return max(known) if known and len(known) == len(lags) else None


class Monitor:
    """Polls an example during the `with` block."""

    def __init__(self, example: Example, servers: str, data: Path, before: Mapping[str, int]):
        """`before` has the records of each topic that do not count."""
        directory = data / example.name
        self.job: Job | None = None
        self._example = example
        self._servers = servers
        self._before = before
        self._admin = Admin(
            {"bootstrap.servers": servers, "default.api.timeout.ms": POLL_TIMEOUT_MS}
        )
        files = [one for one in example.outputs if isinstance(one, Files)]
        self._files = {
            one.label: CommittedRows(directory / one.directory, one.latest_by) for one in files
        }
        for rows in self._files.values():
            rows.skip()
        self._tails = {
            one.label: TopicTail(servers, one)
            for one in example.outputs
            if isinstance(one, Topic) and one.panel is not None
        }
        self._since = datetime.now(UTC)
        self._start_s = time.monotonic()
        self._input_counts = deque([(self._start_s, 0)], RATE_POLLS)
        checkpoints = {"checkpoints": str(directory / "checkpoints")} if files else {}
        self._paths = {
            **{one.label: str(directory / one.directory) for one in files},
            **checkpoints,
            "topics": str(data / "data"),
            "logs": str(directory / "*.log"),
        }
        self._resources = ExitStack()

    def __enter__(self) -> "Monitor":
        with ExitStack() as resources:
            resources.enter_context(self._admin)
            for tail in self._tails.values():
                resources.enter_context(tail)
            self._resources = resources.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._resources.close()

    def poll(self, stage: str) -> Snapshot:
        """Return the current state."""
        totals = count_records(self._admin, self._example.counted_topics)
        counts = {name: total - self._before[name] for name, total in totals.items()}
        topic = self._example.input.name
        now_s = time.monotonic()
        self._input_counts.append((now_s, counts[topic]))
        then_s, then = self._input_counts[0]
        return Snapshot(
            stage=stage,
            broker=self._servers,
            since=self._since,
            elapsed_s=now_s - self._start_s,
            input_count=counts[topic],
            input_per_s=(counts[topic] - then) / max(now_s - then_s, 0.001),
            input_total=totals[topic],
            outputs={one.label: self._output(one, totals) for one in self._example.outputs},
            progress=self.job.progress() if self.job else (),
            paths=self._paths,
        )

    def _output(self, output: Files | Topic, totals: Mapping[str, int]) -> OutputState:
        if isinstance(output, Files):
            rows = self._files[output.label]
            return OutputState(rows.poll(), rows.total, rows.latest)
        tail = self._tails.get(output.label)
        total = totals[output.name]
        return OutputState(total - self._before[output.name], total, tail.poll() if tail else ())


class CommittedRows:
    """The rows that a streaming query has written to Parquet files.

    Spark lists the files of each committed micro-batch in the directory `_spark_metadata`.
    """

    def __init__(self, directory: Path, latest_by: str) -> None:
        self.latest: list[Row] = []
        self.total = 0  # with the rows that were skipped
        self._latest_by = latest_by
        self._count = 0
        self._metadata = directory / "_spark_metadata"
        self._seen: set[str] = set()
        self._next_batch = 0

    def skip(self) -> None:
        """Skip the rows that are there now: an earlier run has written them."""
        self.poll()
        self._count = 0
        self.latest = []

    def poll(self) -> int:
        """Read the new files, and return the number of rows that were not skipped."""
        while (listing := self._listing(self._next_batch)) is not None:
            for line in listing.read_text().splitlines()[1:]:
                uri: str = json.loads(line)["path"]
                path = unquote(urlparse(uri).path)
                if path not in self._seen:
                    self._seen.add(path)
                    self.add(_read_rows(path))
            self._next_batch += 1
        return self._count

    def add(self, rows: Sequence[Row]) -> None:
        """Count the rows of a file, and keep the latest."""
        self._count += len(rows)
        self.total += len(rows)
        if rows:
            candidates = [*self.latest, *rows]
            last = max(row[self._latest_by] for row in candidates)
            self.latest = [row for row in candidates if row[self._latest_by] == last]

    def _listing(self, batch: int) -> Path | None:
        """The list of the files of a micro-batch. Every tenth list has all files before it."""
        for name in (f"{batch}", f"{batch}.compact"):
            if (self._metadata / name).exists():
                return self._metadata / name
        # Spark deletes the lists before such a one some time later.
        names = os.listdir(self._metadata) if self._metadata.is_dir() else []
        later = [int(name.partition(".")[0]) for name in names if name[0].isdigit()]
        if later and min(later) > batch:
            self._next_batch = min(later)
            return self._listing(self._next_batch)
        return None


def _read_rows(path: str) -> list[dict[str, Any]]:
    import pyarrow.parquet  # here, because examples without files do not need it

    parquet: Any = pyarrow.parquet
    return parquet.read_table(path).to_pylist()


class TopicTail:
    """The latest records of a topic that arrive during the `with` block, oldest first."""

    def __init__(self, servers: str, topic: Topic) -> None:
        self._topic = topic
        self._latest: deque[Row] = deque(maxlen=LATEST_RECORDS)
        self._consumer = Consumer({"bootstrap.servers": servers, "auto.offset.reset": "latest"})

    def __enter__(self) -> "TopicTail":
        self._consumer.__enter__()
        self._consumer.assign(*self._topic.partitions)
        return self

    def __exit__(self, *exception: object) -> None:
        self._consumer.__exit__(None, None, None)

    def poll(self) -> Sequence[Row]:
        """Read the new records, and return the latest."""
        for record in self._consumer.poll(0.01):
            row = parse_row(record.value or b"", self._topic.columns or {})
            if row is not None:
                self._latest.append(row)
        return tuple(self._latest)


def parse_row(value: bytes, columns: Mapping[str, type]) -> Row | None:
    """Parse a JSON object; None if it lacks a column, or the view could not show its value."""
    try:
        parsed: object = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict):
        return None
    row = cast("dict[str, Any]", parsed)
    fits = all(_fits(row.get(name), kind) for name, kind in columns.items())
    return row if fits else None


def _fits(value: object, kind: type) -> bool:
    if kind is str:
        return isinstance(value, str) and _is_unicode(value)
    return isinstance(value, int | float) and not isinstance(value, bool) and _is_float(value)


def _is_unicode(text: str) -> bool:
    """JSON also has halves of surrogate pairs, which no terminal shows."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_float(number: float) -> bool:
    """JSON also has integers that are too large for a float."""
    try:
        float(number)
    except OverflowError:
        return False
    return True


def query_progress(name: str, progress: Any) -> QueryProgress:
    """Read the `lastProgress` of a query; it is None before the first micro-batch has ended."""
    if progress is None:
        return QueryProgress(name)
    (source,) = progress["sources"]
    return QueryProgress(
        name,
        progress["batchId"],
        progress["durationMs"].get("triggerExecution", 0),
        progress["processedRowsPerSecond"],
        _records_before(source["endOffset"]),
        sum(one["numRowsDroppedByWatermark"] for one in progress["stateOperators"]),
    )


def _records_before(offsets: Any) -> int:
    """The number of records before the offsets of a source: {topic: {partition: offset}}."""
    topics: Any = json.loads(offsets) if isinstance(offsets, str) else offsets or {}
    return sum(sum(partitions.values()) for partitions in topics.values())


def create_topics(admin: Admin, topics: Iterable[Topic]) -> None:
    """Create the topics that do not exist."""
    results = admin.create_topics(NewTopic(one.name, one.partition_count) for one in topics)
    for error in results.failed.values():
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise error


def count_records(admin: Admin, topics: Iterable[Topic]) -> dict[str, int]:
    """Return how many records were ever written to each topic."""
    topics = [*topics]
    wanted = {partition: OffsetAt.LATEST for one in topics for partition in one.partitions}
    ends = admin.list_offsets(wanted).or_raise()
    return {
        one.name: sum(ends[partition].offset or 0 for partition in one.partitions) for one in topics
    }


def newest_timestamp_ms(admin: Admin, topic: Topic) -> int | None:
    """Return the highest timestamp of a topic; None if it is empty."""
    wanted = dict.fromkeys(topic.partitions, OffsetAt.MAX_TIMESTAMP)
    newest = admin.list_offsets(wanted).or_raise().values()
    return max((one.timestamp_ms for one in newest if one.timestamp_ms is not None), default=None)

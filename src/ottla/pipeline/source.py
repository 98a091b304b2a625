"""The data source `format("ottla")`: the classes that Spark calls, with Spark's method names.

Invariant: the driver pickles options, schema and ranges for the tasks, but no connection. The
ranges of a micro-batch depend only on its two offsets, so that a repeat reads the same. The start
of the first micro-batch depends on its end (`initial_offsets.py`).

Spark runs each call on the driver in a Python process of its own. Modules that import a client are
therefore imported only where a client is used.
"""

import logging
from collections.abc import Iterator, Mapping, MutableMapping, Sequence, Set
from dataclasses import dataclass
from math import inf
from os.path import exists
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ottla.clock import Clock, SystemClock
from ottla.errors import RequestError
from ottla.ids import TopicPartition
from ottla.pipeline.columns import (
    arrow_schema,
    check_source_schema,
    rows,
    source_columns,
    source_schema,
)
from ottla.pipeline.initial_offsets import InitialOffsets
from ottla.pipeline.loss import HINT, DataLost, is_missing
from ottla.pipeline.offset_ranges import OffsetRange, check_order, divided, limited, ranges
from ottla.pipeline.offsets import (
    LATEST,
    AtTime,
    JsonOffsets,
    Offsets,
    format_partitions,
    from_json,
    to_json,
)
from ottla.pipeline.options import Use
from ottla.pipeline.pushdown import Pushdown
from ottla.pipeline.source_options import SourceOptions, json_options, source_options

if TYPE_CHECKING:
    from ottla.pipeline.offset_lookup import OffsetLookup

FORMAT: Final = "ottla"

BULK: Final[Mapping[str, object]] = {"check.crcs": True, "max.partition.fetch.bytes": 4 << 20}
"""Defaults of the tasks' consumers. Each fetch becomes an Arrow batch; small batches are costly."""

_log: Final = logging.getLogger(__name__)


class RangePartition(InputPartition):
    """The range that one task reads."""

    def __init__(self, whole: OffsetRange) -> None:
        super().__init__(whole)
        self.whole = whole


def planned(whole: Sequence[OffsetRange], options: SourceOptions) -> list[RangePartition]:
    """Divide ranges into tasks."""
    parts = divided(whole, tasks_min=options.tasks_min, records_max=options.task_records_max)
    return [RangePartition(one) for one in parts]


@dataclass(frozen=True, slots=True)
class Task:
    """Reads a range in a Python worker; both readers send it there."""

    options: SourceOptions
    schema: StructType

    def read(self, wanted: OffsetRange) -> Iterator[Any]:
        """Yield the Arrow batches of a range."""
        from ottla.pipeline.range_reader import READERS

        schema = arrow_schema(self.schema)
        options = self.options
        settings = {
            **BULK,
            "allow.auto.create.topics": False,  # a deleted topic must not be created again
            **options.settings,
            "auto.offset.reset": "none",
            "enable.auto.commit": False,
        }
        with READERS.borrow(settings) as reader:
            found = reader.read(
                wanted, options.poll_timeout_s, skips_lost=not options.fails_on_loss
            )
            json, skips = options.json, options.skips_parsed
            for columns in found:
                batch = rows(
                    wanted.partition, columns, wanted.end, schema, json=json, skips_parsed=skips
                )
                if batch.num_rows:
                    yield batch


def _lookup(options: SourceOptions) -> "OffsetLookup":
    from ottla.pipeline.offset_lookup import OffsetLookup

    return OffsetLookup(options)


class OttlaReader(DataSourceReader):
    """Reads a batch."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.pushdown = Pushdown()
        self._options = options
        self._task = Task(options, schema)

    def partitions(self) -> list[RangePartition]:
        """Plan the tasks."""
        options, pushdown = self._options, self.pushdown
        lookup = _lookup(options)
        try:
            wanted = lookup.partitions()
            start = lookup.resolve(options.start, wanted, "starting")
            end = lookup.resolve(options.end, wanted, "ending")
            check_order(start, end)
            whole = [one for one in ranges(start, end) if pushdown.includes(one.partition)]
            first: Offsets = {}
            if pushdown.from_ms is not None:
                since = AtTime(pushdown.from_ms, LATEST)
                first = lookup.resolve(since, frozenset(one.partition for one in whole), "")
        finally:
            lookup.close()
        left = [pushdown.narrowed(one, first) for one in whole]
        return planned([one for one in left if one.size > 0], options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read the rows of a task as Arrow batches."""
        if not isinstance(partition, RangePartition):
            return iter(())  # Spark's own, when there are no tasks
        return self._task.read(partition.whole)


class OttlaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream in micro-batches."""

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        *,
        commits: bool = True,
        clock: Clock | None = None,
    ) -> None:
        """With `commits`, commit offsets to the group of the options, if they name one."""
        self._clock = clock or SystemClock()
        self._options = options
        self._commits = commits
        self._task = Task(options, schema)
        self._offset_lookup: OffsetLookup | None = None
        self._initial = InitialOffsets(options)
        self._target: dict[TopicPartition, int] | None = None  # the end of AvailableNow
        self._latest: dict[TopicPartition, int] = {}  # the ends at the last lookup
        self._target_error: DataLost | None = None  # why AvailableNow has no end
        self._planned_s = -inf  # time of the last micro-batch with records, or of the first lookup

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a task, without connections."""
        return {
            **self.__dict__,
            "_offset_lookup": None,
            "_initial": InitialOffsets(self._options),
        }

    @property
    def _lookup(self) -> "OffsetLookup":
        if self._offset_lookup is None:
            self._offset_lookup = _lookup(self._options)
        return self._offset_lookup

    def initialOffset(self) -> JsonOffsets:  # noqa: N802
        """Return where a query without a checkpoint starts."""
        return self._initial.get(self._lookup)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a micro-batch."""
        records_max = self._options.batch_records_max
        return ReadAllAvailable() if records_max is None else ReadMaxRows(records_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Set the end of the query to the current ends of the topics.

        A missing topic raises in `latestOffset`, which knows whether it ever existed.
        """
        try:
            self._target = self._ends()
        except DataLost as error:
            self._target, self._target_error = {}, error

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:  # noqa: N802
        """Return the end of the next micro-batch; the start if there is nothing to read."""
        begun, is_first = from_json(start), self._initial.is_first_batch(start)
        if self._target_error is not None:
            raise self._target_error
        stop_file = self._options.stop_file
        if not is_first and stop_file is not None and exists(stop_file):
            return start  # before the first micro-batch, its end fixes where the query starts
        if is_first and self._target is not None:
            self._target = self._initial.raise_target(self._target)
        ends = self._ends() if self._target is None else self._target
        self._latest = ends
        if is_first:
            ends = self._initial.first_batch_ends(ends)
            if self._options.fails_on_loss:
                self._check(begun, ends)  # before Spark logs the end, which would stay
        # A new partition starts at its earliest offset, which limits and waits have to know.
        known = {**begun, **self._earliest(ends.keys() - begun.keys())}
        # An end below the start is returned as it is: it is a loss, and not an empty micro-batch.
        reached = {one: end for one, end in ends.items() if one in known}
        if isinstance(limit, ReadMaxRows):
            if not self._waits(known, reached):
                return to_json(limited(known, reached, limit.max_rows))
            return start
        return start if self._waits(known, reached) else to_json(reached)

    def reportLatestOffset(self) -> JsonOffsets | None:  # noqa: N802
        """Return the ends of the topics at the last lookup."""
        return to_json(self._latest) if self._latest else None

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> Sequence[RangePartition]:
        """Plan the tasks of a micro-batch."""
        begun, ends = from_json(start), from_json(end)
        if self._initial.is_repeat(start):
            begun = self._lookup.initial_offsets_of_repeat(
                self._options.start, ends, ignore_missing=not self._options.fails_on_loss
            )
        first = self._earliest(ends.keys() - begun.keys())
        for one, offset in first.items():
            if offset > 0:
                self._lost(f"{one}: the new partition starts at offset {offset}, not at 0")
        begun |= first
        self._check(begun, ends)
        whole = ranges(begun, ends)
        if whole:
            self._planned_s = self._clock.elapsed_s()
        return planned(whole, self._options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read the rows of a task as Arrow batches."""
        if not isinstance(partition, RangePartition):
            return iter(())
        return self._task.read(partition.whole)

    def commit(self, end: JsonOffsets) -> None:
        """Commit the offsets to the group; Spark calls this when the next micro-batch starts."""
        if not self._commits or self._options.group is None:
            return
        try:
            self._lookup.commit(self._options.group, from_json(end))
        except RequestError as error:  # the query resumes from its checkpoint, not from the group
            _log.warning("offset commit failed: group %s: %s", self._options.group, error)

    def stop(self) -> None:
        """Close the connections."""
        if self._offset_lookup is not None:
            self._offset_lookup.close()

    def _ends(self) -> dict[TopicPartition, int]:
        lookup, ignore_missing = self._lookup, not self._options.fails_on_loss
        try:
            wanted = lookup.partitions(ignore_missing=ignore_missing)
            return lookup.latest(wanted, ignore_missing=ignore_missing)
        except RequestError as error:
            if not is_missing(error):
                raise
            raise DataLost(f"{error} {HINT}") from error

    def _earliest(self, partitions: Set[TopicPartition]) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        return self._lookup.earliest(partitions, ignore_missing=not self._options.fails_on_loss)

    def _check(self, begun: Offsets, ends: Offsets) -> None:
        """Report partitions that do not exist any more, or that end before their start."""
        if gone := begun.keys() - ends.keys():
            self._lost(f"{format_partitions(gone)}: the partitions do not exist any more")
        for one, offset in begun.items():
            if ends.get(one, offset) < offset:
                self._lost(
                    f"{one} ends at offset {ends[one]}, before its starting offset {offset}: the "
                    "topic was created again, or lost records at its end, or startingOffsets is "
                    "above the end"
                )

    def _waits(self, start: Offsets, end: Offsets) -> bool:
        """Return whether the micro-batch waits for more records."""
        least = self._options.batch_records_min
        if least is None or self._target is not None:
            return False
        waiting = sum(one.size for one in ranges(start, end))
        now_s = self._clock.elapsed_s()
        waited_s = now_s - self._planned_s
        if self._planned_s == -inf:
            self._planned_s = now_s  # the first lookup does not wait
        return waiting < least and waited_s < self._options.batch_delay_s

    def _lost(self, text: str) -> None:
        if self._options.fails_on_loss:
            raise DataLost(f"{text}. {HINT}")
        _log.warning("%s", text)


class OttlaSource(DataSource):
    """The data source; Spark constructs it with the options."""

    commits = True
    """Whether streams commit to their groups; False where a listener does, which is earlier."""

    batch_reader = OttlaReader

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given: Mapping[str, str] = dict(options)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns as DDL."""
        wanted = {name.lower(): value for name, value in self._given.items()}
        headers = wanted.get("includeheaders", "").strip().lower() == "true"
        json = json_options(wanted)
        return source_schema(source_columns(wanted.get("columns"), headers=headers, json=json))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch."""
        from ottla.pipeline.sink import OttlaWriter, row_writer

        return OttlaWriter(row_writer(self._given, schema, overwrite=overwrite))

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return the writer of a stream; Spark sets `overwrite` for output modes except append."""
        from ottla.pipeline.sink import OttlaStreamWriter, row_writer

        return OttlaStreamWriter(row_writer(self._given, schema, overwrite=False))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        options = source_options(self._given, Use.BATCH)
        check_source_schema(schema, options.columns)
        return self.batch_reader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of a stream."""
        options = source_options(self._given, Use.STREAM)
        check_source_schema(schema, options.columns)
        return OttlaStreamReader(options, schema, commits=self.commits)


class RegisteredSource(OttlaSource):
    """The data source of a session with a listener, which commits to the groups."""

    commits = False

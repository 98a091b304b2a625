"""`format("ottla")`: what Spark asks of a data source, in Spark's words.

Invariant: what is planned on the driver is pickled and sent to the tasks: options, schema and
ranges, and nothing that is connected. A batch is planned once, and a micro-batch the same way again
when it is repeated: its ranges follow from the two offsets alone, and those of the first one from
the second of them (`beginning.py`).

Spark starts a Python process for each thing that it asks: clients are imported by those that use
them, and by no others.
"""

import logging
from collections.abc import Iterator, Mapping, MutableMapping, Sequence, Set
from dataclasses import dataclass
from math import inf
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
from ottla.pipeline.columns import arrow_schema, check_source_schema, rows, source_schema
from ottla.pipeline.initial_offsets import InitialOffsets
from ottla.pipeline.loss import GOES_ON, DataLost, is_gone
from ottla.pipeline.offsets import LATEST, AtTime, Offsets, Written, names, read, written
from ottla.pipeline.options import Use
from ottla.pipeline.plan import Range, check_order, divided, limited, ranges
from ottla.pipeline.pushdown import Pushdown
from ottla.pipeline.source_options import SourceOptions, source_options

if TYPE_CHECKING:
    from ottla.pipeline.offset_lookup import OffsetLookup

FORMAT: Final = "ottla"

BULK: Final[Mapping[str, object]] = {"check.crcs": True, "max.partition.fetch.bytes": 4 << 20}
"""What tasks fetch with unless they are told otherwise: a fetch is a batch of Arrow, and small ones
cost more than what is in them."""

_log: Final = logging.getLogger(__name__)


class RangePartition(InputPartition):
    """What one task reads."""

    def __init__(self, whole: Range) -> None:
        super().__init__(whole)
        self.whole = whole


def planned(whole: Sequence[Range], options: SourceOptions) -> list[RangePartition]:
    """The tasks of ranges."""
    parts = divided(whole, tasks_min=options.tasks_min, records_max=options.task_records_max)
    return [RangePartition(one) for one in parts]


@dataclass(frozen=True, slots=True)
class Task:
    """Reads ranges in a worker: what the readers of both kinds send there."""

    options: SourceOptions
    schema: StructType

    def read(self, wanted: Range) -> Iterator[Any]:
        """Arrow batches of a range."""
        from ottla.pipeline.range_reader import READERS

        schema = arrow_schema(self.schema)
        options = self.options
        settings = {
            **BULK,
            "allow.auto.create.topics": False,  # what is gone is not to come back empty
            **options.settings,
            "auto.offset.reset": "none",
            "enable.auto.commit": False,
        }
        with READERS.lent(settings) as reader:
            found = reader.read(
                wanted, options.poll_timeout_s, skips_lost=not options.fails_on_loss
            )
            for columns in found:
                yield rows(wanted.partition, columns, wanted.end, schema)


def _survey(options: SourceOptions) -> "OffsetLookup":
    from ottla.pipeline.offset_lookup import OffsetLookup

    return OffsetLookup(options)


class OttlaReader(DataSourceReader):
    """Reads what is there, once."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.narrowing = Pushdown()
        self._options = options
        self._task = Task(options, schema)

    def partitions(self) -> list[RangePartition]:
        """The tasks."""
        options, narrowing = self._options, self.narrowing
        survey = _survey(options)
        try:
            wanted = survey.partitions()
            start = survey.resolved(options.start, wanted, "starting")
            end = survey.resolved(options.end, wanted, "ending")
            check_order(start, end)
            whole = [one for one in ranges(start, end) if narrowing.has(one.partition)]
            first: Offsets = {}
            if narrowing.from_ms is not None:
                since = AtTime(narrowing.from_ms, LATEST)
                first = survey.resolved(since, frozenset(one.partition for one in whole), "")
        finally:
            survey.close()
        left = [narrowing.of(one, first) for one in whole]
        return planned([one for one in left if one.size > 0], options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a task, as Arrow batches."""
        if not isinstance(partition, RangePartition):
            return iter(())  # Spark's own, when there is nothing to read
        return self._task.read(partition.whole)


class OttlaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what comes, micro-batch by micro-batch."""

    def __init__(
        self,
        options: SourceOptions,
        schema: StructType,
        *,
        commits: bool = True,
        clock: Clock | None = None,
    ) -> None:
        """With `commits` the group of the options, if they have one, hears from here."""
        self._clock = clock or SystemClock()
        self._options = options
        self._commits = commits
        self._task = Task(options, schema)
        self._survey: OffsetLookup | None = None
        self._beginning = InitialOffsets(options)
        self._target: dict[TopicPartition, int] | None = None  # where AvailableNow ends
        self._seen: dict[TopicPartition, int] = {}  # the ends as they were last
        self._absent: DataLost | None = None  # why AvailableNow has no end
        self._planned_s = -inf  # the last micro-batch with something in it, or the first look

    def __getstate__(self) -> dict[str, Any]:
        """What a task gets: nothing that is connected."""
        return {**self.__dict__, "_survey": None, "_beginning": InitialOffsets(self._options)}

    @property
    def _asked(self) -> "OffsetLookup":
        if self._survey is None:
            self._survey = _survey(self._options)
        return self._survey

    def initialOffset(self) -> Written:  # noqa: N802
        """Where a query begins that has no checkpoint."""
        return self._beginning.asked(self._asked)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """How much a micro-batch reads."""
        records_max = self._options.batch_records_max
        return ReadAllAvailable() if records_max is None else ReadMaxRows(records_max)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read what there is now, and then no more.

        What is not there is an error of `latestOffset`, which knows whether it was ever there.
        """
        try:
            self._target = self._ends()
        except DataLost as error:
            self._target, self._absent = {}, error

    def latestOffset(self, start: Written, limit: ReadLimit) -> Written:  # noqa: N802
        """Where the next micro-batch ends; where it starts when there is nothing."""
        begun, is_first = read(start), self._beginning.is_looked_for(start)
        if self._absent is not None:
            raise self._absent
        if is_first and self._target is not None:
            self._target = self._beginning.raised(self._target)
        ends = self._ends() if self._target is None else self._target
        self._seen = ends
        if is_first:
            ends = self._beginning.first_ends(ends)
            if self._options.fails_on_loss:
                self._check(begun, ends)  # before it is written down, where it would stay
        # What has no start yet begins at its first record; how much that is has to be known.
        known = {**begun, **self._earliest(ends.keys() - begun.keys())}
        # An end that is before the start is told as it is: that is a loss, and not nothing.
        reached = {one: end for one, end in ends.items() if one in known}
        if isinstance(limit, ReadMaxRows):
            if not self._waits(known, reached):
                return written(limited(known, reached, limit.max_rows))
            return start
        return start if self._waits(known, reached) else written(reached)

    def reportLatestOffset(self) -> Written | None:  # noqa: N802
        """How far the topics were when that was last looked at."""
        return written(self._seen) if self._seen else None

    def partitions(self, start: Written, end: Written) -> Sequence[RangePartition]:
        """The tasks of a micro-batch."""
        begun, ends = read(start), read(end)
        if self._beginning.is_repeated(start):
            if_there = not self._options.fails_on_loss
            begun = self._asked.repeated(self._options.start, ends, if_there=if_there)
        first = self._earliest(ends.keys() - begun.keys())
        for one, offset in first.items():
            if offset > 0:
                self._lost(f"{one} is new and begins at offset {offset}, and not at 0")
        begun |= first
        self._check(begun, ends)
        whole = ranges(begun, ends)
        if whole:
            self._planned_s = self._clock.elapsed_s()
        return planned(whole, self._options)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of a task, as Arrow batches."""
        if not isinstance(partition, RangePartition):
            return iter(())
        return self._task.read(partition.whole)

    def commit(self, end: Written) -> None:
        """What is before this is done; Spark says so when the next micro-batch begins."""
        if not self._commits or self._options.group is None:
            return
        try:
            self._asked.tell(self._options.group, read(end))
        except RequestError as error:  # the place that counts is in the checkpoint
            _log.warning("group %s was not told: %s", self._options.group, error)

    def stop(self) -> None:
        """End the connections."""
        if self._survey is not None:
            self._survey.close()

    def _ends(self) -> dict[TopicPartition, int]:
        survey, if_there = self._asked, not self._options.fails_on_loss
        try:
            return survey.latest(survey.partitions(if_there=if_there), if_there=if_there)
        except RequestError as error:
            if not is_gone(error):
                raise
            raise DataLost(f"{error} {GOES_ON}") from error

    def _earliest(self, partitions: Set[TopicPartition]) -> dict[TopicPartition, int]:
        if not partitions:
            return {}
        return self._asked.earliest(partitions, if_there=not self._options.fails_on_loss)

    def _check(self, begun: Offsets, ends: Offsets) -> None:
        """Say what cannot be read any more between two places."""
        if gone := begun.keys() - ends.keys():
            self._lost(f"{names(gone)}: no longer there")
        for one, offset in begun.items():
            if ends.get(one, offset) < offset:
                self._lost(
                    f"{one} ends at offset {ends[one]} and was to be read from {offset} on: its "
                    "topic was made anew, or records at its end were lost, or startingOffsets is "
                    "behind the end"
                )

    def _waits(self, start: Offsets, end: Offsets) -> bool:
        """Whether a micro-batch waits for more records."""
        least = self._options.batch_records_min
        if least is None or self._target is not None:
            return False
        waiting = sum(one.size for one in ranges(start, end))
        now_s = self._clock.elapsed_s()
        waited_s = now_s - self._planned_s
        if self._planned_s == -inf:
            self._planned_s = now_s  # nobody waits at the first look, whatever it has found
        return waiting < least and waited_s < self._options.batch_delay_s

    def _lost(self, text: str) -> None:
        if self._options.fails_on_loss:
            raise DataLost(f"{text}. {GOES_ON}")
        _log.warning("%s", text)


class OttlaSource(DataSource):
    """The data source; Spark makes it of the options that it was given."""

    commits = True
    """Whether its streams tell their groups; not where a listener does, which is sooner."""

    batch_reader = OttlaReader

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given: Mapping[str, str] = dict(options)

    @classmethod
    def name(cls) -> str:
        """What stands in `format`."""
        return FORMAT

    def schema(self) -> str:
        """The columns."""
        wanted = {name.lower(): value for name, value in self._given.items()}
        return source_schema(headers=wanted.get("includeheaders", "").strip().lower() == "true")

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Who writes a batch."""
        from ottla.pipeline.sink import OttlaWriter, writing

        return OttlaWriter(writing(self._given, schema, overwrite=overwrite))

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Who writes a stream; Spark says `overwrite` for output modes that are not append."""
        from ottla.pipeline.sink import OttlaStreamWriter, writing

        return OttlaStreamWriter(writing(self._given, schema, overwrite=False))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Who reads a batch."""
        options = source_options(self._given, Use.BATCH)
        check_source_schema(schema, headers=options.has_headers)
        return self.batch_reader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Who reads a stream."""
        options = source_options(self._given, Use.STREAM)
        check_source_schema(schema, headers=options.has_headers)
        return OttlaStreamReader(options, schema, commits=self.commits)


class RegisteredSource(OttlaSource):
    """The same in a session that has a listener."""

    commits = False

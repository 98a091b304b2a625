"""Runs micro-batches as Spark does, without Spark: it calls a stream reader in the same order.

This is for tests of offsets, which would take Spark a minute. A query ends when nothing is left, as
with Trigger.AvailableNow. Its offsets are kept as in Spark's checkpoint and outlive the reader: the
end of a micro-batch is logged before it runs, and its commit afterwards. The first micro-batch runs
also if it is empty.
"""

import json
import pickle
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import BinaryType, StructField, StructType

from ottla.pipeline.options import Use
from ottla.pipeline.source import OttlaStreamReader
from ottla.pipeline.source_options import source_options

SCHEMA = StructType([StructField("value", BinaryType())])


class MicroBatches:
    """A query and its checkpoint."""

    def __init__(self, **options: str) -> None:
        self._options = options
        self.place: str | None = None
        """The end of the last committed micro-batch."""
        self.logged: str | None = None
        """The end of a micro-batch that is logged and not committed."""
        self.batches: list[list[int]] = []
        """The numbers of each micro-batch, in order."""
        self.rows: list[dict[str, Any]] = []
        """The rows of all micro-batches."""
        self.step_taken: Callable[[str], None] = lambda step: None
        """Called after each step; an exception that it raises ends the run of the query."""

    def number(self, row: dict[str, Any]) -> int:
        """The number that stands for a row: its value."""
        return int(row["value"])

    def run(self, **options: str) -> list[int]:
        """Read what is available now; the numbers, in order."""
        reader = self.reader(**options)
        try:
            reader.prepareForTriggerAvailableNow()
            self.step_taken("prepared")
            return self.taken(reader)
        finally:
            reader.stop()

    def reader(self, **options: str) -> OttlaStreamReader:
        """A reader, as Spark makes one when the query starts."""
        given = source_options({**self._options, **options}, Use.STREAM)
        return OttlaStreamReader(given, SCHEMA)

    def taken(self, reader: OttlaStreamReader) -> list[int]:
        """Read what is available now, with a reader that stays open."""
        found: list[int] = []
        limit = reader.getDefaultReadLimit()
        while self.logged is not None or self._looked(reader, limit):
            assert self.logged is not None
            found += self._batch(reader, self._start(reader), self.logged)
            self.place, self.logged = self.logged, None
            self.step_taken("done")
            reader.commit(json.loads(self.place))
        return sorted(found)

    def _start(self, reader: OttlaStreamReader) -> str:
        """Spark asks for the initial offset each time that it needs it, until one is committed."""
        if self.place is not None:
            return self.place
        begun = json.dumps(reader.initialOffset())
        self.step_taken("begun")
        return begun

    def _looked(self, reader: OttlaStreamReader, limit: ReadLimit) -> bool:
        """Log the end of the next micro-batch; False if there is none."""
        end = json.dumps(reader.latestOffset(json.loads(self._start(reader)), limit))
        self.step_taken("looked")
        if end == self.place:
            return False
        self.logged = end
        self.step_taken("logged")
        return True

    def _batch(self, reader: OttlaStreamReader, start: str, end: str) -> list[int]:
        tasks = reader.partitions(json.loads(start), json.loads(end))
        self.step_taken("planned")
        worker: Any = pickle.loads(pickle.dumps(reader))  # as Spark sends it
        rows = [row for task in tasks for batch in worker.read(task) for row in batch.to_pylist()]
        self.step_taken("read")
        found = [self.number(row) for row in rows]
        self.rows += rows
        self.batches.append(sorted(found))
        return found

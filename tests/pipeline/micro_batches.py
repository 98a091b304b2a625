"""Micro-batches as Spark runs them, without Spark: it asks a stream reader in the same order.

For what is about offsets alone, and would take Spark a minute. A query ends when nothing is left,
as with Trigger.AvailableNow; its place is kept as in Spark's checkpoint, and outlives the reader:
the end of a micro-batch is written down before it is run, and that it is done afterwards. A first
one is run even if there is nothing in it.
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
    """A query, and its place."""

    def __init__(self, **options: str) -> None:
        self._options = options
        self.place: str | None = None
        self.logged: str | None = None
        """The end of a micro-batch that is written down, and is not done."""
        self.batches: list[list[int]] = []
        """The values of each batch, which are numbers."""
        self.step_taken: Callable[[str], None] = lambda step: None
        """Hears of each step; what it raises ends the life of the query."""

    def run(self, **options: str) -> list[int]:
        """Take what there is; the values, in order."""
        reader = self.reader(**options)
        try:
            reader.prepareForTriggerAvailableNow()
            self.step_taken("prepared")
            return self.taken(reader)
        finally:
            reader.stop()

    def reader(self, **options: str) -> OttlaStreamReader:
        """What reads, as after a start of the query."""
        given = source_options({**self._options, **options}, Use.STREAM)
        return OttlaStreamReader(given, SCHEMA)

    def taken(self, reader: OttlaStreamReader) -> list[int]:
        """Take what there is, with a reader that goes on to live."""
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
        """Spark asks a stream that has no place each time that it needs one."""
        if self.place is not None:
            return self.place
        begun = json.dumps(reader.initialOffset())
        self.step_taken("begun")
        return begun

    def _looked(self, reader: OttlaStreamReader, limit: ReadLimit) -> bool:
        """Whether there is a next micro-batch; it is written down then."""
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
        batches = [batch for task in tasks for batch in worker.read(task)]
        found = [int(value) for batch in batches for value in batch.column("value").to_pylist()]
        self.step_taken("read")
        self.batches.append(sorted(found))
        return found

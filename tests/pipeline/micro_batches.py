"""Micro-batches as Spark runs them, without Spark: it asks a stream reader in the same order.

For what is about offsets alone, and would take Spark a minute. A query ends when nothing is left,
as with Trigger.AvailableNow; its place is kept as in Spark's checkpoint, and outlives the reader.
"""

import json
import pickle
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
        self.batches: list[list[int]] = []
        """The values of each batch, which are numbers."""

    def run(self, **options: str) -> list[int]:
        """Take what there is; the values, in order."""
        reader = self.reader(**options)
        try:
            reader.prepareForTriggerAvailableNow()
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
        if self.place is None:
            self.place = json.dumps(reader.initialOffset())
        limit = reader.getDefaultReadLimit()
        while (end := self._looked(reader, limit)) != self.place:
            found += self._batch(reader, self.place, end)
            self.place = end
            reader.commit(json.loads(end))
        return sorted(found)

    def _looked(self, reader: OttlaStreamReader, limit: ReadLimit) -> str:
        assert self.place is not None
        return json.dumps(reader.latestOffset(json.loads(self.place), limit))

    def _batch(self, reader: OttlaStreamReader, start: str, end: str) -> list[int]:
        tasks = reader.partitions(json.loads(start), json.loads(end))
        worker: Any = pickle.loads(pickle.dumps(reader))  # as Spark sends it
        batches = [batch for task in tasks for batch in worker.read(task)]
        found = [int(value) for batch in batches for value in batch.column("value").to_pylist()]
        self.batches.append(sorted(found))
        return found

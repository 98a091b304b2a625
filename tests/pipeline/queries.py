"""Runs queries in a real Spark: to their end, or until a condition holds.

Spark gives a Python process ten seconds to start, too few on a busy machine. A query that failed
for this reason is started again.
"""

import glob
import json
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NOT_STARTED = "failed to connect back"
PATIENCE_S = 300.0
_POLL_S = 0.05


def source(
    spark: Any, servers: str, format_name: str = "ottla", *, stream: bool = True, **options: Any
) -> Any:
    """A DataFrame of topics; a stream starts at the first record."""
    reader = (spark.readStream if stream else spark.read).format(format_name)
    reader = reader.option("kafka.bootstrap.servers", servers)
    for name, value in {"startingOffsets": "earliest", **options}.items():
        reader = reader.option(name, str(value))
    return reader.load()


def _writer(frame: Any, folder: object) -> Any:
    return frame.writeStream.option("checkpointLocation", f"{folder}/place")


def taken(frame: Any, folder: object) -> list[Any]:
    """Write what is available now to files; the progress of each micro-batch that has rows."""
    writer = _writer(frame, folder).trigger(availableNow=True)
    query = finished(lambda: writer.start(f"{folder}/rows"))
    return [one for one in query.recentProgress if one.numInputRows]


def finished(start: Callable[[], Any]) -> Any:
    """Start a query that ends by itself, and wait for its end."""
    while True:
        query = start()
        try:
            assert query.awaitTermination(PATIENCE_S)
        except Exception as error:
            if NOT_STARTED not in str(error):
                raise
        else:
            return query


def numbers(spark: Any, folder: object) -> list[int]:
    """The values in the files of committed micro-batches."""
    found = spark.read.schema("value binary").parquet(f"{folder}/rows").collect()
    return sorted(int(row.value) for row in found)


def numbers_anywhere(spark: Any, folder: object) -> list[int]:
    """The values in all files, committed or not."""
    files = glob.glob(f"{folder}/rows/*.parquet")
    return sorted(int(row.value) for row in spark.read.parquet(*files).collect()) if files else []


def done(folder: Path) -> int:
    """The sum of the offsets up to which a query has committed, from its checkpoint."""
    finished = [int(one.name) for one in (folder / "place" / "commits").glob("[0-9]*")]
    if not finished:
        return 0
    *_, offsets = (folder / "place" / "offsets" / str(max(finished))).read_text().splitlines()
    return sum(sum(one.values()) for one in json.loads(offsets).values())


class Running:
    """A query that is running."""

    def __init__(self, start: Callable[[], Any]) -> None:
        self._start = start
        self.query = start()

    def until(self, is_so: Callable[[], bool]) -> None:
        """Wait until a condition holds; raise if the query fails first."""
        deadline_s = time.monotonic() + PATIENCE_S
        while not is_so():
            error = self.query.exception()
            if error is not None and NOT_STARTED in str(error):
                self.query = self._start()
            elif error is not None:
                raise error
            assert time.monotonic() < deadline_s, self.query.lastProgress
            time.sleep(_POLL_S)


@contextmanager
def running(frame: Any, folder: object) -> Generator[Running]:
    """A query into files that runs until the end of the `with`."""
    found = Running(lambda: _writer(frame, folder).start(f"{folder}/rows"))
    try:
        yield found
    finally:
        found.query.stop()

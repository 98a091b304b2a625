"""Queries of a real Spark, for tests: to their end, or until something is so.

Spark gives a Python process ten seconds to start, which is little on a machine that is busy; what
was not begun for that reason is begun again.
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
    """A DataFrame of topics; a stream begins with the first record."""
    reader = (spark.readStream if stream else spark.read).format(format_name)
    reader = reader.option("kafka.bootstrap.servers", servers)
    for name, value in {"startingOffsets": "earliest", **options}.items():
        reader = reader.option(name, str(value))
    return reader.load()


def _writer(frame: Any, folder: object) -> Any:
    return frame.writeStream.option("checkpointLocation", f"{folder}/place")


def taken(frame: Any, folder: object) -> list[Any]:
    """Let a query take what there is into files; its progress, where that is not nothing."""
    while True:
        query = _writer(frame, folder).trigger(availableNow=True).start(f"{folder}/rows")
        try:
            assert query.awaitTermination(PATIENCE_S)
        except Exception as error:
            if NOT_STARTED not in str(error):
                raise
        else:
            return [one for one in query.recentProgress if one.numInputRows]


def numbers(spark: Any, folder: object) -> list[int]:
    """The values in files, with all that Spark knows to be done."""
    found = spark.read.schema("value binary").parquet(f"{folder}/rows").collect()
    return sorted(int(row.value) for row in found)


def numbers_anywhere(spark: Any, folder: object) -> list[int]:
    """The same of all files that there are."""
    files = glob.glob(f"{folder}/rows/*.parquet")
    return sorted(int(row.value) for row in spark.read.parquet(*files).collect()) if files else []


def done(folder: Path) -> int:
    """How many offsets a query has behind it, of all partitions; its checkpoint tells."""
    finished = [int(one.name) for one in (folder / "place" / "commits").glob("[0-9]*")]
    if not finished:
        return 0
    *_, offsets = (folder / "place" / "offsets" / str(max(finished))).read_text().splitlines()
    return sum(sum(one.values()) for one in json.loads(offsets).values())


class Running:
    """A query that runs."""

    def __init__(self, start: Callable[[], Any]) -> None:
        self._start = start
        self.query = start()

    def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for something, while the query lives."""
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

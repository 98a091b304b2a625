"""The result of rows that were sent as columns.

Invariant: every row is reported as written or failed. The result is available when all rows are
settled; an error says how many were written and where.
"""

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from ottla.client.producer.producer_batch import ProducerBatch
from ottla.errors import RequestError


class Run(NamedTuple):
    """Consecutive rows in one batch."""

    batch: ProducerBatch
    first: int
    """The index of the first of them in the batch."""

    rows: int


class WrittenRows(NamedTuple):
    """What was written to one partition, in send order."""

    topic: str
    partition: int
    offset: int
    """Of the first row; -1 if the broker did not return one, as with acks=0."""

    rows: int
    """The number of rows; records of others may be in between."""


class RowsNotWritten(RequestError):
    """Some or all rows failed; the code is that of the first failure."""

    def __init__(self, first: RequestError, rows: int, written: Sequence[WrittenRows]) -> None:
        total = rows + sum(one.rows for one in written)
        super().__init__(
            first.code, f"{rows} of {total} rows were not written; the first error: {first}"
        )
        self.first = first
        self.rows = rows
        self.written = written

    def __reduce__(
        self,
    ) -> "tuple[type[RowsNotWritten], tuple[RequestError, int, Sequence[WrittenRows]]]":
        return RowsNotWritten, (self.first, self.rows, self.written)


class RowsAck:
    """The result of rows: await it for their offsets or the error."""

    __slots__ = ("_runs",)

    def __init__(self, runs: Sequence[Run]) -> None:
        self._runs = runs

    def __await__(self) -> Generator[Any, None, list[WrittenRows]]:
        for run in self._runs:
            run.batch.awaited = True
        written: dict[int, WrittenRows] = {}
        failure: RequestError | None = None
        lost = 0
        for run in self._runs:
            index, stop = run.first, run.first + run.rows
            while index < stop:
                batch, at = run.batch.holder(index)
                batch.awaited = True
                if not batch.is_settled:
                    # It may be split before it is settled; then parts have the rows.
                    yield from batch.settled_or_split().__await__()
                    continue
                count = min(stop - index, batch.builder.count - at)
                index += count
                if batch.failure is not None:
                    failure = failure or batch.failure
                    lost += count
                    continue
                place = batch.written(at)
                known = written.get(place.partition)
                if known is None:
                    known = WrittenRows(place.topic, place.partition, place.offset, 0)
                written[place.partition] = known._replace(rows=known.rows + count)
        told = [written[partition] for partition in sorted(written)]
        if failure is not None:
            raise RowsNotWritten(failure, lost, told) from failure
        return told

    @property
    def done(self) -> bool:
        """Whether the result of all rows is known."""
        return all(_is_settled(run.batch) for run in self._runs)


def _is_settled(batch: ProducerBatch) -> bool:
    return batch.is_settled and all(map(_is_settled, batch.parts))

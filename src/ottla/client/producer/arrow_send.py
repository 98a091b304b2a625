"""Sends rows of Arrow columns through the record accumulator.

Invariant: the rows of a partition join its batches in order, after everything sent before. Rows
that fit no batch are detected before anything is sent. No Python object per row; rows that have to
be sorted by partition are copied once, in pieces no larger than the record accumulator.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ottla.client.columns.arrow import (
    RowColumns,
    check_times,
    pieces,
    select,
    sorted_by_partition,
)
from ottla.client.partitioners import Partitions
from ottla.client.producer.producer_runtime import ProducerRuntime
from ottla.client.producer.row_ack import RowsAck, Run
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import TopicPartition
from ottla.records import Rows, from_arrow
from ottla.records.arrow import binary_column


@dataclass(slots=True)
class _Stretch:
    """Rows of a piece that go to one partition, or a batch of rows for any partition."""

    partition: int | None
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class ArrowSend:
    """Sends rows of one topic."""

    running: ProducerRuntime
    clock: Clock
    topic: str
    block_s: float
    """The maximum wait for room for a batch, and for the topic's metadata."""

    record_bytes_max: int

    async def send(self, given: Any, named: RowColumns, partition: int | str | None) -> RowsAck:
        """Add all rows to the record accumulator, waiting for room."""
        transactions = self.running.transactions
        number = None if transactions is None else transactions.check()
        now_ms = self.clock.now_ms()
        try:
            table = select(given, named, partition if isinstance(partition, str) else None)
            for batch in table.to_batches():
                columns = from_arrow(batch, now_ms=now_ms)
                if named.timestamp is not None:
                    check_times(columns, named.timestamp)
                self._check_sizes(Rows(columns))
        except ValueError as error:
            raise self._refused(str(error)) from error
        wanted = self._partitions(table, partition)
        choices = await self.running.routes.choices(self.topic, self.block_s, wanted)
        runs: list[Run] = []
        try:
            for piece in pieces(table, self.running.accumulator.rules.memory_bytes):
                batch, stretches = self._routed(piece, partition, choices)
                rows = Rows(from_arrow(batch, now_ms=now_ms))
                await self._place(rows, stretches, runs, number)
        except BaseException as error:
            if sent := sum(run.rows for run in runs):
                error.add_note(f"{sent} of {table.num_rows} rows were sent before this error")
            raise
        return RowsAck(runs)

    # Checks.

    def _check_sizes(self, rows: Rows) -> None:
        larger = rows.find_oversized(0, rows.count, self.record_bytes_max)
        if larger is not None:
            raise RequestError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"nothing was sent to {self.topic}: a record of {larger[1]} bytes exceeds "
                f"max.request.size={self.record_bytes_max}",
            )

    def _partitions(self, table: Any, partition: int | str | None) -> tuple[int, ...]:
        """Return the lowest and the highest partition of the rows."""
        if not isinstance(partition, str):
            return () if partition is None else (partition,)
        import pyarrow.compute

        compute: Any = pyarrow.compute
        column = table.column("partition")
        if column.null_count:
            raise self._refused(f"a row has null in column {partition!r}")
        ends = compute.min_max(column).as_py()
        return (ends["min"], ends["max"]) if len(column) else ()

    def _refused(self, why: str) -> RequestError:
        return RequestError(ErrorCode.INVALID_RECORD, f"nothing was sent to {self.topic}: {why}")

    # Partitioning.

    def _routed(
        self, piece: Any, partition: int | str | None, choices: Partitions
    ) -> tuple[Any, list[_Stretch]]:
        """Group the rows of a piece by partition and return the groups."""
        if isinstance(partition, int):
            return piece, [_Stretch(partition, 0, piece.num_rows)]
        if partition is not None:
            numbers = piece.column("partition")
        else:
            names = piece.schema.names
            keys = binary_column(piece.column("key")) if "key" in names else None
            numbers = self.running.routes.of_rows(self.topic, choices, keys, _contents(piece))
        if numbers is None:
            return piece, [_Stretch(None, 0, piece.num_rows)]
        gathered, counts = sorted_by_partition(piece, numbers)
        stretches: list[_Stretch] = []
        start = 0
        for number, count in counts:
            stretches.append(_Stretch(None if number < 0 else number, start, start + count))
            start += count
        return gathered, stretches

    # Batching.

    async def _place(
        self, rows: Rows, stretches: list[_Stretch], runs: list[Run], number: int | None
    ) -> None:
        """Fill the partitions in turns, a batch each, so that requests carry many."""
        while stretches:
            for stretch in stretches:
                run = await self._place_some(rows, stretch, number)
                stretch.start += run.rows
                runs.append(run)
                if self.running.turn_is_over(self.topic):
                    await self.running.end_turn()
            stretches = [one for one in stretches if one.start < one.stop]

    async def _place_some(self, rows: Rows, stretch: _Stretch, number: int | None) -> Run:
        """Add rows to the open batch, or to a new one if none has room."""
        accumulator, transactions = self.running.accumulator, self.running.transactions
        start, stop = stretch.start, stretch.stop
        run = self._place_at_once(rows, stretch)
        if run is not None:
            return run
        deadline_s = self.clock.elapsed_s() + self.block_s
        while True:
            where = await self._where(stretch.partition, deadline_s)
            if transactions is not None:
                transactions.check(number)
            run = accumulator.extend_rows(where, rows, start, stop)
            if run is not None:
                return run
            # The first row of a batch is accepted whatever its size, and its memory is reserved.
            larger = rows.find_oversized(start, start + 1, accumulator.rules.batch_bytes)
            # The open batch is closed now; rows for any partition go to another one.
            where = await self._where(stretch.partition, deadline_s)
            memory = await accumulator.reserve(
                larger[1] if larger else 0, max(0.0, deadline_s - self.clock.elapsed_s())
            )
            try:
                if transactions is not None:
                    transactions.check(number)
            except RequestError:
                accumulator.give_back(memory)
                raise
            accumulator.begin(where, memory)
            run = accumulator.extend_rows(where, rows, start, stop)
            if run is not None:
                return run

    def _place_at_once(self, rows: Rows, stretch: _Stretch) -> Run | None:
        """Add rows to a batch; None if that has to wait."""
        running, accumulator = self.running, self.running.accumulator
        if running.transactions is not None:
            return None
        start, stop = stretch.start, stretch.stop
        where = running.routes.find(self.topic, None, None, stretch.partition)
        if where is not None and accumulator.has_open(where):
            run = accumulator.extend_rows(where, rows, start, stop)
            if run is not None:
                return run
            # The open batch is closed now; rows for any partition go to another one.
            where = running.routes.find(self.topic, None, None, stretch.partition)
        if where is None or accumulator.has_open(where):
            return None
        # The first row of a batch is accepted whatever its size, and its memory is reserved.
        larger = rows.find_oversized(start, start + 1, accumulator.rules.batch_bytes)
        memory = accumulator.reserve_at_once(larger[1] if larger else 0)
        if memory is None:
            return None
        running.metadata.want(self.topic)
        accumulator.begin(where, memory)
        return accumulator.extend_rows(where, rows, start, stop)

    async def _where(self, partition: int | None, deadline_s: float) -> TopicPartition:
        left_s = max(0.0, deadline_s - self.clock.elapsed_s())
        return await self.running.routes.found(self.topic, None, None, partition, left_s)


def _contents(piece: Any) -> Callable[[], Iterator[tuple[bytes | None, bytes | None]]]:
    """Yield keys and values row by row, for a partitioner that needs them."""

    def contents() -> Iterator[tuple[bytes | None, bytes | None]]:
        import pyarrow

        pa: Any = pyarrow
        columns = [
            piece.column(name).cast(pa.binary()).to_pylist()
            if name in piece.schema.names
            else [None] * piece.num_rows
            for name in ("key", "value")
        ]
        return zip(*columns, strict=True)

    return contents

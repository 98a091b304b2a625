"""A consignment: rows of Arrow columns on their way into the outbox.

Invariant: the rows of a partition join its batches in their order, behind all that was sent to it
before. What no batch can have is found before anything is sent. No Python object is made per row;
of rows that have to be sorted by partition there is one copy, of a piece that is at most as large
as the outbox.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from ottla.client.columns.arrow import (
    RowColumns,
    check_times,
    pieces,
    select,
    sorted_by_partition,
)
from ottla.client.partitioners import Partitions
from ottla.client.produce.row_ack import RowsAck, Run
from ottla.client.producer_runtime import ProducerRuntime
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError
from ottla.ids import TopicPartition
from ottla.records import Rows, from_arrow
from ottla.records.arrow import key_column

TURN_BYTES: Final = 256 * 1024
"""So much is encoded before the event loop does something else: a fraction of a millisecond."""


@dataclass(slots=True)
class _Stretch:
    """Rows of a piece that go to one partition, or one batch of them to any."""

    partition: int | None
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class ArrowSend:
    """Rows of one topic."""

    running: ProducerRuntime
    clock: Clock
    topic: str
    block_s: float
    """The longest wait for room for a batch, and for the topic to be known."""

    record_bytes_max: int

    async def send(self, given: Any, named: RowColumns, partition: int | str | None) -> RowsAck:
        """Put all rows into the outbox, waiting for room."""
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
            for piece in pieces(table, self.running.outbox.rules.memory_bytes):
                batch, stretches = self._routed(piece, partition, choices)
                rows = Rows(from_arrow(batch, now_ms=now_ms))
                await self._place(rows, stretches, runs, number)
        except BaseException as error:
            if sent := sum(run.rows for run in runs):
                error.add_note(f"{sent} of {table.num_rows} rows were sent before this happened")
            raise
        return RowsAck(runs)

    # What is refused.

    def _check_sizes(self, rows: Rows) -> None:
        larger = rows.larger(0, rows.count, self.record_bytes_max)
        if larger is not None:
            raise RequestError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"nothing was sent to {self.topic}: a record of {larger[1]} bytes is more than "
                f"max.request.size={self.record_bytes_max}",
            )

    def _partitions(self, table: Any, partition: int | str | None) -> tuple[int, ...]:
        """The lowest and the highest that rows are to go to."""
        if not isinstance(partition, str):
            return () if partition is None else (partition,)
        import pyarrow.compute

        compute: Any = pyarrow.compute
        column = table.column("partition")
        if column.null_count:
            raise self._refused(f"a row of column {partition!r} has no partition")
        ends = compute.min_max(column).as_py()
        return (ends["min"], ends["max"]) if len(column) else ()

    def _refused(self, why: str) -> RequestError:
        return RequestError(ErrorCode.INVALID_RECORD, f"nothing was sent to {self.topic}: {why}")

    # Where rows go.

    def _routed(
        self, piece: Any, partition: int | str | None, choices: Partitions
    ) -> tuple[Any, list[_Stretch]]:
        """A piece with the rows of each partition together, and where those are."""
        if isinstance(partition, int):
            return piece, [_Stretch(partition, 0, piece.num_rows)]
        if partition is not None:
            numbers = piece.column("partition")
        else:
            names = piece.schema.names
            keys = key_column(piece.column("key")) if "key" in names else None
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

    # Into the outbox.

    async def _place(
        self, rows: Rows, stretches: list[_Stretch], runs: list[Run], number: int | None
    ) -> None:
        """Let the partitions take turns, a batch each, so that requests carry many."""
        turn_bytes = 0
        while stretches:
            for stretch in stretches:
                run = await self._place_some(rows, stretch, number)
                stretch.start += run.rows
                runs.append(run)
                turn_bytes += run.batch.builder.size
                if turn_bytes > TURN_BYTES:
                    # Others have a turn, the sender among them: what is full leaves meanwhile.
                    turn_bytes = 0
                    await asyncio.sleep(0)
            stretches = [one for one in stretches if one.start < one.stop]

    async def _place_some(self, rows: Rows, stretch: _Stretch, number: int | None) -> Run:
        """Put rows into the batch that is open, or into a new one when none has room."""
        outbox, transactions = self.running.outbox, self.running.transactions
        start, stop = stretch.start, stretch.stop
        deadline_s = self.clock.elapsed_s() + self.block_s
        while True:
            where = await self._where(stretch.partition, deadline_s)
            if transactions is not None:
                transactions.check(number)
            run = outbox.extend_rows(where, rows, start, stop)
            if run is not None:
                return run
            # The first row of a batch is taken whatever its size, and its memory with it.
            larger = rows.larger(start, start + 1, outbox.rules.batch_bytes)
            # The batch that was open is closed now: rows that may go anywhere go elsewhere.
            where = await self._where(stretch.partition, deadline_s)
            memory = await outbox.reserve(
                larger[1] if larger else 0, max(0.0, deadline_s - self.clock.elapsed_s())
            )
            try:
                if transactions is not None:
                    transactions.check(number)
            except RequestError:
                outbox.give_back(memory)
                raise
            outbox.begin(where, memory)
            run = outbox.extend_rows(where, rows, start, stop)
            if run is not None:
                return run

    async def _where(self, partition: int | None, deadline_s: float) -> TopicPartition:
        left_s = max(0.0, deadline_s - self.clock.elapsed_s())
        return await self.running.routes.found(self.topic, None, None, partition, left_s)


def _contents(piece: Any) -> Callable[[], Iterator[tuple[bytes | None, bytes | None]]]:
    """The keys and values of rows one by one, for a partitioner that has to see each."""

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

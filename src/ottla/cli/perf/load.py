"""Measures how fast records are written and read, and how long one takes.

Invariant: the client is used like an application does, record by record unless columns are
requested. Time counts from the first record to the last acknowledged or read one, without
connecting. Refused records do not count. Latency is sampled, because timing a record costs more
than sending it. A short run times enough records for percentiles.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice, repeat
from operator import itemgetter
from typing import Final, TypeAlias, cast

from ottla.cli.records.sending import NotAllSent
from ottla.cli.records.stream import ColumnConsumer
from ottla.client.consumer.record import Record
from ottla.client.producer.producer import Producer
from ottla.client.producer.producer_batch import Ack
from ottla.errors import RequestError
from ottla.ids import TopicPartition

SAMPLE_EVERY_MAX: Final = 1000
SAMPLES_MIN: Final = 200
"""The minimum number of timed records."""

POLL_RECORDS: Final = 500
"""Fits into the processor's cache: with ten times as many, each takes a third longer."""

POLL_S: Final = 0.1

_Part: TypeAlias = "Callable[[Record[bytes, bytes]], bytes | None]"
_KEY: Final = cast("_Part", itemgetter(Record._fields.index("key")))
_VALUE: Final = cast("_Part", itemgetter(Record._fields.index("value")))


@dataclass(slots=True)
class Latencies:
    """Measured milliseconds."""

    ms: list[float] = field(default_factory=list[float])

    def at(self, share: float) -> float:
        """Return a percentile; 0 without samples."""
        found = sorted(self.ms)
        return found[min(len(found) - 1, int(share * len(found)))] if found else 0.0

    @property
    def average(self) -> float:
        """The mean."""
        return sum(self.ms) / len(self.ms) if self.ms else 0.0

    @property
    def largest(self) -> float:
        """The maximum."""
        return max(self.ms, default=0.0)


@dataclass(frozen=True, slots=True)
class Span:
    """What was done in a period."""

    records: int
    bytes: int
    seconds: float
    latencies: Latencies = field(default_factory=Latencies)

    @property
    def rate(self) -> float:
        """Records per second."""
        return self.records / max(self.seconds, 1e-9)

    @property
    def mb_rate(self) -> float:
        """Megabytes (1024 * 1024 bytes) per second."""
        return self.bytes / max(self.seconds, 1e-9) / (1 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """What is sent."""

    topic: str
    count: int
    payloads: Callable[[], Iterator[bytes]]
    """An endless iterator of values."""

    rate: float | None = None
    """Maximum records per second."""

    report_s: float = 5.0
    warm_up: int = 0
    """Records sent before the steady state."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """The progress at a moment."""

    sent: int
    bytes: int
    refused: int
    at_s: float

    def until(self, end: "_Mark", latencies: Latencies) -> Span:
        """Return what was written since then, assuming that refused records had the same size."""
        sent = end.sent - self.sent
        written = max(0, sent - (end.refused - self.refused))
        size = (end.bytes - self.bytes) * written // max(1, sent)
        return Span(written, size, end.at_s - self.at_s, latencies)


class Sender:
    """Sends and measures."""

    def __init__(
        self,
        producer: Producer[bytes, bytes],
        sending: Sending,
        refused: Callable[[RequestError], object] | None = None,
    ) -> None:
        """`refused` is called for refused records and it continues; without it, it stops."""
        self._producer = producer
        self._sending = sending
        self._refused = refused
        self._failure: RequestError | None = None  # the first one
        self._steady = Latencies()
        self._all = Latencies()
        self._window = Latencies()
        self._waiting: set[asyncio.Task[None]] = set()

    async def run(self, report: Callable[[Span], object] = lambda span: None) -> tuple[Span, Span]:
        """Send everything; returns the whole and the steady state. `report` is called per period.

        Raises NotAllSent soon after a record was refused, unless it continues.
        """
        self._producer.on_failed = lambda error, count: self._refuse(error)
        sending, send, topic = self._sending, self._producer.send, self._sending.topic
        values = sending.payloads()
        sent = size = 0
        begun = window = steady = self._mark(sent, size)
        every = sample_every(sending.count) if sending.rate is None else 1
        while sent < sending.count and not self._is_over:
            # The first record of a run is timed; in between only the client runs.
            until = sending.warm_up if sent < sending.warm_up else sending.count
            count = min(until - sent, every)
            run = [*islice(values, count)]
            size += sum(map(len, run))
            now_s = time.perf_counter()
            self._time(await send(topic, run[0]), now_s, is_steady=sent >= sending.warm_up)
            for value in islice(run, 1, None):
                await send(topic, value)
            sent += count
            if sent == sending.warm_up:
                steady = self._mark(sent, size)
            if now_s - window.at_s >= sending.report_s:
                here, latencies, self._window = self._mark(sent, size), self._window, Latencies()
                report(window.until(here, latencies))
                window = here
            if sending.rate is not None:
                await _until(begun.at_s + sent / sending.rate)
        await self._producer.flush()
        end_s = time.perf_counter()
        await asyncio.gather(*self._waiting)
        if self._failure is not None and self._is_over:
            why = self._failure.message or self._failure.code.text
            written = self._producer.metrics().record_send_total
            raise NotAllSent(why, self._failure.code.name, written) from self._failure
        end = replace(self._mark(sent, size), at_s=end_s)
        return begun.until(end, self._all), steady.until(end, self._steady)

    @property
    def _is_over(self) -> bool:
        return self._failure is not None and self._refused is None

    def _mark(self, sent: int, size: int) -> _Mark:
        refused = self._producer.metrics().record_error_total
        return _Mark(sent, size, refused, time.perf_counter())

    def _time(self, ack: Ack, begun_s: float, *, is_steady: bool) -> None:
        kept = (self._all, self._window, *((self._steady,) if is_steady else ()))
        task = asyncio.get_running_loop().create_task(self._timed(ack, begun_s, kept))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def _timed(self, ack: Ack, begun_s: float, kept: Sequence[Latencies]) -> None:
        try:
            await ack
        except RequestError as error:  # `flush` does not raise it, because its result was awaited
            self._refuse(error)
            return
        took_ms = (time.perf_counter() - begun_s) * 1000
        for one in kept:
            one.ms.append(took_ms)

    def _refuse(self, error: RequestError) -> None:
        if self._failure is None:
            self._failure = error
        if self._refused is not None:
            self._refused(error)


def sample_every(count: int) -> int:
    """Return the sampling interval for this many records."""
    return max(1, min(SAMPLE_EVERY_MAX, count // SAMPLES_MIN))


async def _until(when_s: float) -> None:
    if (left_s := when_s - time.perf_counter()) > 0:
        await asyncio.sleep(left_s)


def same(size: int) -> Callable[[], Iterator[bytes]]:
    """Yield the same value endlessly."""
    return partial(repeat, b"x" * size)


async def read_load(
    consumer: ColumnConsumer,
    count: int,
    idle_s: float,
    *,
    columns: bool = False,
    ends: Mapping[TopicPartition, int] | None = None,
    report_s: float = 5.0,
    report: Callable[[Span, Span], object] = lambda window, whole: None,
) -> Span:
    """Read this many records (whole batches of columns), or until none comes for `idle_s`.

    With `ends` it also stops there: offsets may be without records in compacted topics. `report` is
    called with what was read since the last call and in total.
    """
    begun_s = window_s = heard_s = time.perf_counter()
    read = size = window_count = window_size = 0
    while read < count:
        wait_s = min(idle_s, POLL_S)
        if columns:
            got, more = await _columns(consumer, wait_s)
        else:
            got, more = await _records(consumer, wait_s, min(POLL_RECORDS, count - read))
        now_s = time.perf_counter()
        if got:
            heard_s = now_s
            read += got
            size += more
        elif ends is not None and has_reached(consumer, ends):
            return Span(read, size, heard_s - begun_s)
        elif now_s - heard_s >= idle_s:
            break
        if got and now_s - window_s >= report_s:
            window = Span(read - window_count, size - window_size, now_s - window_s)
            report(window, Span(read, size, now_s - begun_s))
            window_s, window_size, window_count = now_s, size, read
    return Span(read, size, time.perf_counter() - begun_s)


def has_reached(consumer: ColumnConsumer, ends: Mapping[TopicPartition, int]) -> bool:
    """Whether everything before the ends was read."""
    return len(consumer.partition_reader.finished(ends)) == len(ends)


async def _columns(consumer: ColumnConsumer, timeout_s: float) -> tuple[int, int]:
    """Return the number of records and the bytes of their keys and values."""
    taken = await consumer.columns(timeout_s)
    return (0, 0) if taken is None else (taken.rows, taken.size)


async def _records(consumer: ColumnConsumer, timeout_s: float, most: int) -> tuple[int, int]:
    records = await consumer.poll(timeout_s, max_records=most)
    size = sum(map(len, filter(None, map(_KEY, records))))
    return len(records), size + sum(map(len, filter(None, map(_VALUE, records))))


@dataclass(frozen=True, slots=True)
class Trips:
    """Times of single records: to the acknowledgement and to the read."""

    acked: Latencies
    read: Latencies


async def round_trips(
    producer: Producer[bytes, bytes],
    consumer: ColumnConsumer,
    where: TopicPartition,
    count: int,
    size: int,
    uncounted: int,
) -> Trips:
    """Send one record after the other, each after the previous one was read."""
    trips = Trips(Latencies(), Latencies())
    value = b"x" * size
    await consumer.position(where)
    for number in range(count + uncounted):
        begun_s = time.perf_counter()
        written = await (await producer.send(where.topic, value, partition=where.partition))
        acked_s = time.perf_counter()
        await _read_until(consumer, written.offset)
        read_s = time.perf_counter()
        if number >= uncounted:
            trips.acked.ms.append((acked_s - begun_s) * 1000)
            trips.read.ms.append((read_s - begun_s) * 1000)
    return trips


async def _read_until(consumer: ColumnConsumer, offset: int) -> None:
    while True:
        for record in await consumer.poll(1.0):
            if record.offset >= offset:
                return


def shares(latencies: Latencies, of: Sequence[float] = (0.5, 0.95, 0.99, 0.999)) -> list[float]:
    """Return percentiles of latencies."""
    return [latencies.at(one) for one in of]

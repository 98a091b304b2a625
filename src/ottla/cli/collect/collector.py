"""Sends the lines of tracked files to a topic, and stores how far their acknowledgements are.

One task reads and sends, another one waits for acknowledgements in the order of sending. Calls of
the tracker and of the state file can block, so they run in a thread, one at a time.

Invariant: the stored place of a file is never after a line that is not acknowledged. So a line is
written at least once, also if the process is killed; lines that were acknowledged after the last
write of the state are then written twice. Reading stops while `unacknowledged_bytes_max` bytes are
not acknowledged.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.cli.blocking_calls import BlockingCalls
from ottla.cli.collect.state import CollectorState
from ottla.cli.collect.tracker import ReadBlock, TrackedFile, Tracker
from ottla.client.producer.producer import Producer
from ottla.client.producer.producer_batch import Ack
from ottla.client.producer.record_accumulator import Headers
from ottla.clock import Clock
from ottla.errors import RequestError

POLL_S: Final = 0.1
"""The time between two looks at files that have nothing new."""

SCAN_S: Final = 1.0
"""The time between two looks for new files."""

STORE_S: Final = 0.5
"""The time between two writes of the state."""

RETRY_S: Final = 1.0
"""The time between two attempts to send a line while no broker is reachable."""

FINISH_S: Final = 0.3
"""How long the last write of the state may take."""


@dataclass(slots=True)
class Counts:
    """What a collector has done, and what it waits for."""

    files: int = 0
    lines: int = 0
    """Acknowledged lines; each part of a long line counts."""

    bytes: int = 0
    """Their bytes in the files."""

    behind_bytes: int = 0
    """The bytes of the files that are not acknowledged yet."""

    unacknowledged_lines: int = 0
    waiting_s: float = 0.0
    """How long the oldest of them waits."""

    problems: tuple[tuple[str, str], ...] = ()
    """Files that cannot be opened, and why."""


@dataclass(frozen=True, slots=True)
class CollectorConfig:
    """How lines are sent."""

    topic: str
    host: str
    unacknowledged_bytes_max: int
    once: bool = False


class Collector:
    """Sends lines until it is stopped."""

    def __init__(
        self,
        producer: Producer[bytes, bytes],
        tracker: Tracker,
        state: CollectorState,
        clock: Clock,
        config: CollectorConfig,
    ) -> None:
        self._producer = producer
        self._tracker = tracker
        self._state = state
        self._clock = clock
        self._config = config
        self._calls = BlockingCalls()
        self._counts = Counts()
        self._sent: deque[tuple[ReadBlock, Sequence[Ack], float]] = deque()
        self._acknowledged: list[ReadBlock] = []  # not passed to the tracker yet
        self._unacknowledged_bytes = 0
        self._unacknowledged_lines = 0
        self._blocked_s: float | None = None  # since when lines cannot be sent
        self._changed = asyncio.Event()  # something was sent or acknowledged
        self._written: object = None
        self._written_s = self._scanned_s = clock.elapsed_s()

    async def start(self, *, at_end: bool) -> None:
        """Find the files of an earlier run and new ones; raises Failed.

        With `at_end`, files begin at their end if there was no earlier run.
        """
        await self._calls.begin(lambda: self._start(at_end=at_end))

    async def run(self, is_stopping: Callable[[], bool]) -> None:
        """Collect until a stop, or with `once` until everything is acknowledged.

        Raises the RequestError of a line that cannot be written.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                acknowledging = tasks.create_task(self._acknowledge())
                await self._read(is_stopping)
                while self._sent:
                    await self._wait_for_change()
                acknowledging.cancel()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def finish(self) -> None:
        """Store what is acknowledged; raises OSError or TimeoutError."""
        acknowledged, self._acknowledged = self._acknowledged, []
        async with asyncio.timeout(FINISH_S):
            await self._calls.begin(lambda: self._finish(acknowledged))

    def counts(self) -> Counts:
        """Return the counts so far."""
        counts = self._counts
        counts.unacknowledged_lines = self._unacknowledged_lines
        now_s = self._clock.elapsed_s()
        since_s = self._sent[0][2] if self._sent else self._blocked_s
        counts.waiting_s = 0.0 if since_s is None else now_s - since_s
        return counts

    async def _read(self, is_stopping: Callable[[], bool]) -> None:
        while not is_stopping():
            if self._unacknowledged_bytes >= self._config.unacknowledged_bytes_max:
                await self._wait_for_change()
                continue
            acknowledged, self._acknowledged = self._acknowledged, []
            read = await self._calls.begin(lambda done=acknowledged: self._turn(done))
            if read is not None:
                await self._send(read)
            elif not self._config.once:
                await self._clock.sleep(POLL_S)
            elif self._sent:
                await self._wait_for_change()
            elif not self._acknowledged:
                return

    async def _send(self, read: ReadBlock) -> None:
        topic, send = self._config.topic, self._producer.send
        key = os.fsencode(read.source.path)
        headers = _headers(read, key, self._config.host)
        acks: list[Ack] = []
        for value in read.block.values:
            while True:
                try:
                    acks.append(await send(topic, value, key=key, headers=headers))
                    break
                except RequestError as error:  # it is not in the buffer
                    if not error.code.retriable:
                        raise
                self._blocked_s = self._blocked_s or self._clock.elapsed_s()
                await self._clock.sleep(RETRY_S)
        self._blocked_s = None
        self._unacknowledged_bytes += read.block.used
        self._unacknowledged_lines += len(acks)
        self._sent.append((read, acks, self._clock.elapsed_s()))
        self._changed.set()

    async def _acknowledge(self) -> None:
        while True:
            while not self._sent:
                await self._wait_for_change()
            read, acks, _ = self._sent[0]
            for ack in acks:
                await ack
            self._sent.popleft()
            self._unacknowledged_bytes -= read.block.used
            self._unacknowledged_lines -= len(acks)
            self._counts.lines += len(acks)
            self._counts.bytes += read.block.used
            self._acknowledged.append(read)
            self._changed.set()

    async def _wait_for_change(self) -> None:
        """Wait until something was sent or acknowledged, or for a moment: a stop is no change."""
        self._changed.clear()
        try:
            async with asyncio.timeout(POLL_S):
                await self._changed.wait()
        except TimeoutError:
            pass

    # In the thread.

    def _start(self, *, at_end: bool) -> None:
        stored, now_s = self._state.read(), self._clock.elapsed_s()
        self._tracker.restore(stored or (), now_s)
        self._tracker.scan(now_s, at_end=at_end and stored is None)
        self._store(now_s)
        self._count()

    def _turn(self, acknowledged: Sequence[ReadBlock]) -> ReadBlock | None:
        now_s = self._clock.elapsed_s()
        for read in acknowledged:
            self._tracker.acknowledge(read)
        if now_s >= self._scanned_s + SCAN_S:
            self._scanned_s = now_s
            self._tracker.scan(now_s)
            self._count()
        if now_s >= self._written_s + STORE_S:
            self._store(now_s)
            self._count()
        return self._tracker.read(now_s)

    def _finish(self, acknowledged: Sequence[ReadBlock]) -> None:
        for read in acknowledged:
            self._tracker.acknowledge(read)
        self._count()
        self._store(self._clock.elapsed_s())
        self._tracker.close()

    def _store(self, now_s: float) -> None:
        self._written_s = now_s
        stored = self._tracker.stored()
        if stored != self._written:
            self._state.write(stored)
            self._written = stored

    def _count(self) -> None:
        counts, files = self._counts, self._tracker.files
        counts.files = len(files)
        counts.behind_bytes = sum(map(_behind_bytes, files))
        counts.problems = tuple(self._tracker.problems.items())


def _behind_bytes(one: TrackedFile) -> int:
    return max(0, one.size - one.acknowledged.position)


def _headers(read: ReadBlock, file: bytes, host: str) -> Headers:
    """Return the headers of the records of a block."""
    headers = [("file", file), ("host", host.encode())]
    block = read.block
    if block.part:
        headers.append(("part", b"%d" % block.part))
    if block.is_last:
        headers.append(("parts", b"%d" % block.part))
    return headers

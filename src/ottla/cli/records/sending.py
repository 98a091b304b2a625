"""Sends records from lines for `ottla produce`.

Invariant: lines are sent in order, one record each. If one cannot be sent, none after it is, those
before it are awaited, and the number of written records is reported. The same after a signal; only
a second one stops without waiting.
"""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from ottla.cli.blocking_calls import BlockingCalls
from ottla.cli.records.input import BadLine, Draft
from ottla.cli.stop_request import StopRequest
from ottla.client.partitions import no_partition
from ottla.client.producer.producer import Producer
from ottla.client.producer.producer_batch import Ack
from ottla.errors import ErrorCode, OttlaError, RequestError

BLOCK_BYTES: Final = 1 << 18
LINE_BYTES_MAX: Final = 64 << 20
"""Longer than any record that a broker accepts by default; input without lines is not text."""

_NO_PARTITION: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Lines(Protocol):
    """Makes records of lines."""

    @property
    def is_plain(self) -> bool:
        """Whether a line is only a value."""
        ...

    @property
    def key(self) -> bytes | None:
        """The key of plain lines."""
        ...

    @property
    def partition(self) -> int | None:
        """The partition of plain lines."""
        ...

    def draft(self, line: bytes) -> Draft:
        """Return the record of a line; raises BadLine."""
        ...


class LineTooLong(BadLine):
    """A line is longer than the limit."""


class NotAllSent(OttlaError):
    """A record could not be sent or written; has the number of written ones."""

    def __init__(self, why: str, code: str, written: int) -> None:
        super().__init__(why)
        self.code = code
        self.written = written


@dataclass(slots=True)
class Sent:
    """What was written."""

    records: int = 0
    bytes: int = 0


async def send_lines(
    producer: Producer[bytes, bytes],
    topic: str,
    blocks: AsyncGenerator[list[bytes]],
    form: Lines,
) -> Sent:
    """Send all lines and wait until they are written."""
    line = 0
    try:
        async for lines in blocks:
            if producer.metrics().record_error_total:
                break  # `flush` raises it
            if form.is_plain:
                await _check_partition(producer, topic, form.partition)
                await producer.send_many(topic, lines, key=form.key, partition=form.partition)
                line += len(lines)
                continue
            for one in lines:
                line += 1
                draft = form.draft(one)
                try:
                    await _check_partition(producer, topic, draft.partition)
                    await send_draft(producer, topic, draft)
                except RequestError as error:
                    if draft.partition == form.partition or error.code is not _NO_PARTITION:
                        raise
                    # The partition is from the line itself, so the line is wrong.
                    raise BadLine(error.message or error.code.text) from error
        await producer.flush()
    except (BadLine, RequestError, OSError) as error:  # also a file that cannot be read any more
        line += isinstance(error, LineTooLong)  # the line without an end
        with suppress(RequestError):
            await producer.flush()
        written = producer.metrics().record_send_total
        why, code = _reason(error, line)
        raise NotAllSent(why, code, written) from error
    counted = producer.metrics()
    return Sent(counted.record_send_total, counted.byte_total)


async def _check_partition(
    producer: Producer[bytes, bytes], topic: str, partition: int | None
) -> None:
    """Refuse a partition that does not exist, for which the producer would wait."""
    if partition is None or partition in await producer.partitions(topic):
        return
    await producer.refresh_metadata()
    count = len(await producer.partitions(topic))
    if partition >= count:
        raise RequestError(_NO_PARTITION, no_partition(topic, count, partition))


def _reason(error: BadLine | RequestError | OSError, line: int) -> tuple[str, str]:
    """Return why not everything was sent, and the code."""
    if isinstance(error, BadLine):
        refused = error.__cause__
        code = refused.code.name if isinstance(refused, RequestError) else "BAD_RECORD"
        return f"line {line}: {error}", code
    if isinstance(error, RequestError):
        return error.message or error.code.text, error.code.name
    return f"{error.filename or 'the input'}: {error.strerror}", "FAILED"


async def send_draft(producer: Producer[bytes, bytes], topic: str, draft: Draft) -> Ack:
    """Send one record and return its result."""
    return await producer.send(
        topic,
        draft.value,
        key=draft.key,
        partition=draft.partition,
        headers=draft.headers,
        timestamp_ms=draft.timestamp_ms,
    )


async def lines_of(
    descriptors: Iterable[int],
    split: Callable[[bytes], tuple[list[bytes], bytes]],
    stop: StopRequest,
    read: Callable[[int], object] = lambda size: None,
) -> AsyncGenerator[list[bytes]]:
    """Yield the lines of files, one file after the other; `read` is called with the bytes read.

    `split` returns the complete lines and the rest. On a stop, everything read was yielded except a
    line without an end.
    """
    calls = BlockingCalls()
    for descriptor in descriptors:
        parts: list[bytes] = []  # of the line without an end
        while block := await calls.begin(lambda at=descriptor: stop.read(at, BLOCK_BYTES)):
            may_end = b"\n" in block or b"\r" in block or (parts and parts[-1].endswith(b"\r"))
            parts.append(block)
            if may_end:
                lines, rest = split(b"".join(parts))
                parts = [rest] if rest else []
                if lines:
                    yield lines
            elif sum(map(len, parts)) > LINE_BYTES_MAX:
                raise LineTooLong(f"longer than {LINE_BYTES_MAX >> 20} MB")
            read(len(block))
        if stop.number is not None:
            return
        if parts:
            lines, last = split(b"".join((*parts, b"\n")))
            yield [*lines, last] if last else lines


def split_lines(data: bytes) -> tuple[list[bytes], bytes]:
    """Return the complete lines and the rest."""
    lines = data.split(b"\n")
    return lines, lines.pop()

"""`kafka-verifiable-producer`: write increasing numbers and print the result of each.

Invariant: each record that was sent has one line: its offset, or its error. The last lines are a
summary, also after an error. A first signal stops sending, and the tool waits for the results; a
second signal ends that wait.
"""

import asyncio
import sys
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ottla.cli.kafka.argument_words import ArgumentUsage
from ottla.cli.kafka.client_flags import LONG_BITS, MEET_S, file_properties, reached
from ottla.cli.kafka.flags import Flag, Given
from ottla.cli.kafka.tool import run_tool

if TYPE_CHECKING:
    from ottla.client.producer.producer import Producer
    from ottla.client.producer.producer_batch import Ack

USAGE: Final = ArgumentUsage(
    "kafka-verifiable-producer",
    "Write increasing numbers and print the result of each write as JSON.",
    [
        Flag("bootstrap-server", "host:port,…", "Connect to these bootstrap servers. Required."),
        Flag("topic", "topic", "Write to this topic. Required."),
        Flag(
            "max-messages",
            "count",
            "Exit after this many records; -1 (default) disables the limit.",
        ),
        Flag(
            "throughput",
            "rate",
            "Write at most this many records per second; -1 (default) disables the limit.",
        ),
        Flag("acks", "acks", "Set acks: 0, 1 or -1 (default)."),
        Flag(
            "message-create-time",
            "ms",
            "Set the timestamp of the first record, in milliseconds since 1970.",
        ),
        Flag("value-prefix", "number", "Put this number and a dot before each value."),
        Flag("repeating-keys", "count", "Use the keys from 0 to count - 1 in turn."),
        Flag("command-config", "file", "Read producer properties from this file."),
        Flag("producer.config", "file", "Deprecated name of --command-config."),
    ],
    spoken="verifiable-producer",
)
_PENDING_MAX: Final = 10_000


async def act(given: Given) -> int:
    """Write records and print events."""
    topic = USAGE.text_of(given, "topic")
    if not topic.isascii():
        from ottla.client.arguments import checked_name

        checked_name(topic)  # raises an error with the valid characters
    servers = USAGE.text_of(given, "bootstrap-server")
    most = USAGE.number_of(given, "max-messages", -1)
    throughput = USAGE.number_of(given, "throughput", -1)
    acks = USAGE.number_of(given, "acks", -1)
    if acks not in (0, 1, -1):
        raise USAGE.refused(f"argument --acks: invalid choice: '{acks}' (choose from {{0,1,-1}})")
    if "producer.config" in given and "command-config" in given:
        raise USAGE.refused(
            "Options --producer.config and --command-config are mutually exclusive."
        )
    if "producer.config" in given:
        print(
            "Option --producer.config has been deprecated and will be removed in a future version. "
            "Use --command-config instead."
        )
    settings = {
        "bootstrap.servers": servers,
        "acks": str(acks),
        "retries": "0",
        **({} if acks == -1 else {"enable.idempotence": "false"}),
        **file_properties(given.one("command-config") or given.one("producer.config")),
    }
    for java in ("key.serializer", "value.serializer"):
        settings.pop(java, None)
    from ottla.client.producer.producer import Producer

    numbers = _Numbers(
        topic,
        most if most >= 0 else sys.maxsize,
        throughput,
        given.one("value-prefix"),
        USAGE.number_of(given, "repeating-keys", 0),
        USAGE.number_of(given, "message-create-time", -1, bits=LONG_BITS),
    )
    settings = await reached("producer", settings)
    return await numbers.write(Producer(settings))


class _Numbers:
    """Writes increasing numbers."""

    def __init__(
        self,
        topic: str,
        most: int,
        throughput: int,
        prefix: str | None,
        keys: int,
        created_ms: int,
    ) -> None:
        self._topic = topic
        self._most = most
        self._throughput = throughput
        self._prefix = "" if prefix is None else f"{prefix}."
        self._keys = keys
        self._created_ms = created_ms
        self._sent = 0
        self._acked = 0
        self._pending: deque[tuple[str | None, str, Ack]] = deque()

    async def write(self, producer: "Producer[bytes, bytes]") -> int:
        """Write all numbers, or until a signal; returns the exit code."""
        from ottla.cli.stop_request import StopRequest

        with StopRequest() as stop:
            async with producer:
                await stop.may_end(self._meet(producer))
                begun_s = time.monotonic()
                try:
                    if stop.number is None:
                        await stop.may_end(self._send_all(producer, begun_s))
                    await self._settle_all(producer)
                finally:
                    self._sum_up(begun_s)
        return 0 if stop.number is None else 128 + stop.number

    async def _meet(self, producer: "Producer[bytes, bytes]") -> None:
        from ottla.cli.kafka.verifiable.events import tell

        await producer.refresh_metadata(timeout_s=MEET_S)
        tell("startup_complete")

    async def _settle_all(self, producer: "Producer[bytes, bytes]") -> None:
        """Flush, and wait for the results of all records that were sent."""
        from ottla.errors import RequestError

        with suppress(RequestError):  # each record's line has its error
            await producer.flush()
        await self._settle(0)

    def _sum_up(self, begun_s: float) -> None:
        from ottla.cli.kafka.verifiable.events import tell

        tell("shutdown_complete")
        rate = self._acked / max(time.monotonic() - begun_s, 1e-3)
        tell(
            "tool_data",
            sent=self._sent,
            acked=self._acked,
            target_throughput=self._throughput,
            avg_throughput=rate,
        )

    async def _send_all(self, producer: "Producer[bytes, bytes]", begun_s: float) -> None:
        from ottla.errors import RequestError

        started_ms = int(time.time() * 1000)
        for number in range(self._most):
            key = str(number % self._keys) if self._keys else None
            value = f"{self._prefix}{number}"
            created_ms = None
            if self._created_ms >= 0:
                created_ms = self._created_ms
                self._created_ms += int(time.time() * 1000) - started_ms
            try:
                ack = await producer.send(
                    self._topic,
                    value.encode(),
                    key=None if key is None else key.encode(),
                    timestamp_ms=created_ms,
                )
            except RequestError as error:
                self._sent += 1
                self._tell_failed(key, value, error)
                continue
            self._sent += 1  # not counted if a signal cancels the send
            self._pending.append((key, value, ack))
            while self._pending and self._pending[0][2].done:
                await self._settle_one()
            await self._settle(_PENDING_MAX)
            if self._throughput > 0:
                left_s = begun_s + self._sent / self._throughput - time.monotonic()
                if left_s > 0:
                    await asyncio.sleep(left_s)

    async def _settle(self, most: int) -> None:
        """Wait until at most this many records are without a result."""
        while len(self._pending) > most:
            await self._settle_one()

    async def _settle_one(self) -> None:
        from ottla.cli.kafka.verifiable.events import tell
        from ottla.errors import RequestError

        key, value, ack = self._pending[0]
        try:
            written = await ack  # if a signal cancels the wait, the record stays pending
        except RequestError as error:
            self._pending.popleft()
            self._tell_failed(key, value, error)
            return
        self._pending.popleft()
        self._acked += 1
        tell(
            "producer_send_success",
            key=key,
            value=value,
            topic=written.topic,
            partition=written.partition,
            offset=written.offset,
        )

    def _tell_failed(self, key: str | None, value: str, error: Exception) -> None:
        from ottla.cli.kafka.verifiable.events import tell

        tell(
            "producer_send_error",
            key=key,
            value=value,
            topic=self._topic,
            exception=type(error).__name__,
            message=str(error),
        )


def run() -> None:
    """Run the console script."""
    run_tool(USAGE, act, is_fast=True)

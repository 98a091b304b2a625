"""Request and reply over topics, with a correlation id and the reply topic in headers.

Invariant: a reply goes to the request with its correlation id. A reply that nobody waits for, such
as one to an earlier process, is ignored.
"""

import asyncio
import uuid
from collections.abc import Mapping
from typing import Final

from messaging.topics import CORRELATION_ID, Headers, Refused, Retry, header
from ottla import Consumer, Producer, Record

REPLY_TO: Final = "reply-to"
"""The header with the topic in which the sender of a request waits for the reply."""


class Requester:
    """Sends requests, and reads the replies from a topic while `listen` runs."""

    def __init__(
        self,
        producer: Producer[bytes, bytes],
        settings: Mapping[str, object],
        reply_topic: str,
        timeout_s: float,
    ) -> None:
        self._producer = producer
        self._settings = settings
        self._reply_topic = reply_topic
        self._timeout_s = timeout_s
        self._waiting: dict[str, asyncio.Future[bytes]] = {}

    async def listen(self, is_ready: asyncio.Event) -> None:
        """Read the replies from now on, and set the event when no reply can be missed."""
        async with Consumer({**self._settings, "auto.offset.reset": "latest"}) as consumer:
            partitions = await consumer.partitions(self._reply_topic)
            consumer.assign(*partitions)
            for partition in partitions:
                await consumer.position(partition)
            is_ready.set()
            async for record in consumer:
                waiting = self._waiting.get(header(record.headers, CORRELATION_ID) or "")
                if waiting is not None and not waiting.done():
                    waiting.set_result(record.value or b"")

    async def ask(
        self, topic: str, value: bytes, *, key: bytes | None, headers: Headers = ()
    ) -> bytes:
        """Send a request, and return the value of its reply; raises Retry if there is none."""
        correlation_id = uuid.uuid4().hex
        waiting: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = waiting
        added = [(CORRELATION_ID, correlation_id.encode()), (REPLY_TO, self._reply_topic.encode())]
        try:
            await self._producer.send(topic, value, key=key, headers=[*headers, *added])
            async with asyncio.timeout(self._timeout_s):
                return await waiting
        except TimeoutError:
            raise Retry(f"no reply from {topic} within {self._timeout_s:g} s") from None
        finally:
            del self._waiting[correlation_id]


class ReplyAddress:
    """Where the sender of a request waits for the reply."""

    def __init__(self, request: Record[bytes, bytes]) -> None:
        """Read the headers of a request; raises Refused if one is missing."""
        found = {name: header(request.headers, name) for name in (REPLY_TO, CORRELATION_ID)}
        if missing := [name for name, value in found.items() if not value]:
            raise Refused(f"the header {missing[0]} is missing")
        self.topic = found[REPLY_TO] or ""
        self.headers = [(CORRELATION_ID, (found[CORRELATION_ID] or "").encode())]

"""Sends generated records to the input of an example, each when it is due.

Invariant: messages from the start time on are sent, each once and in order. A feed that was stopped
has sent everything that was due before that.
"""

import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from ottla.errors import OttlaError
from ottla.sync import Producer
from shared.example import Context, Message, Messages

INTERVAL_S: Final = 0.1
CLOSE_S: Final = 5.0


def generated(topic: str, messages: Messages) -> "Callable[[Context], GeneratedFeed]":
    """Return the feed of an example that sends generated records to a topic."""

    def feed(context: Context) -> GeneratedFeed:
        return GeneratedFeed(
            context.servers,
            topic,
            partial(messages, context.seed),
            context.start_ms,
            context.is_broker_running,
        )

    return feed


class GeneratedFeed:
    """Sends in its own thread during the `with` block.

    `messages` returns what is due from one time to another. When `is_broker_running` returns False,
    the feed does not wait for the acknowledgements of the rest.
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        messages: Callable[[int, int], Iterable[Message]],
        start_ms: int,
        is_broker_running: Callable[[], bool],
    ) -> None:
        self.sent = 0
        self.failure: Exception | None = None
        self._servers = servers
        self._topic = topic
        self._messages = messages
        self._start_ms = start_ms
        self._is_broker_running = is_broker_running
        self._producer: Producer[bytes, bytes] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def __enter__(self) -> "GeneratedFeed":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop sending and wait for the acknowledgements; a second call does nothing."""
        self._stopping.set()
        while self._thread.is_alive() and self._is_broker_running():
            self._thread.join(INTERVAL_S)
        if self._thread.is_alive() and self._producer is not None:
            self._producer.close()  # the rest cannot be acknowledged
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        try:
            with Producer({"bootstrap.servers": self._servers}) as producer:
                self._producer = producer
                while not self._stopping.wait(INTERVAL_S):
                    end_ms = time.time_ns() // 1_000_000
                    for one in self._messages(self._start_ms, end_ms):
                        producer.send(
                            self._topic,
                            one.value,
                            key=one.key.encode(),
                            headers=one.headers,
                            timestamp_ms=one.due_ms,
                        )
                        self.sent += 1
                    self._start_ms = end_ms
        except (OttlaError, OSError) as error:
            self.failure = error

"""The feed: sends what the devices have to say, when it is due.

Invariant: what was due before the feed began is sent first, as after a break of the line. A feed
that ends has sent everything up to that moment, and one that failed says why. Who is not served any
more is not waited for.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

from ottla.errors import OttlaError
from ottla.sync import Producer
from sensors.devices import messages
from sensors.topics import READINGS

STEP_S: Final = 0.1
CLOSE_S: Final = 5.0


class Feed:
    """Sends in a thread of its own while the `with` lasts."""

    def __init__(
        self, servers: str, seed: int, start_ms: int, is_served: Callable[[], bool]
    ) -> None:
        self.sent = 0
        self.failure: Exception | None = None
        self._servers = servers
        self._seed = seed
        self._start_ms = start_ms
        self._is_served = is_served
        self._producer: Producer[bytes, bytes] | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def __enter__(self) -> "Feed":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Send nothing more; a second time does nothing."""
        self._over.set()
        while self._thread.is_alive() and self._is_served():
            self._thread.join(STEP_S)
        if self._thread.is_alive() and self._producer is not None:
            self._producer.close()  # nobody is there to take what is left
            self._thread.join(CLOSE_S)

    def _run(self) -> None:
        try:
            with Producer({"bootstrap.servers": self._servers}) as producer:
                self._producer = producer
                while not self._over.wait(STEP_S):
                    end_ms = time.time_ns() // 1_000_000
                    for one in messages(self._seed, self._start_ms, end_ms):
                        producer.send(
                            READINGS, key=one.key.encode(), value=one.value, timestamp_ms=one.due_ms
                        )
                        self.sent += 1
                    self._start_ms = end_ms
        except (OttlaError, OSError) as error:
            self.failure = error

"""A limit on the bytes a second that background work reads and writes.

Invariant: over any time since the start no more passes than the rate allows, up to the last piece,
and what was not used is not saved up: after a rest the rate is the same as before.
"""

from collections.abc import Callable


class Throttle:
    """Lets its caller sleep; clock and sleep are in seconds."""

    __slots__ = ("_bytes_per_second", "_clock", "_free_at", "_sleep")

    def __init__(
        self,
        bytes_per_second: float | None,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()

    def passed(self, size: int) -> None:
        """Wait until so many bytes more are within the limit."""
        if self._bytes_per_second is None:
            return
        now = self._clock()
        self._free_at = max(self._free_at, now) + size / self._bytes_per_second
        if self._free_at > now:
            self._sleep(self._free_at - now)

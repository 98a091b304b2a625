"""The traffic of the partitions over the last minutes, from the counters that requests increase.

Produce and Fetch only increase the counters of a partition (`TrafficCounts`), as they did for the
metrics of its topic. Twice per window, the counters are copied; a rate is what a counter has gained
since the copy before the last, so it covers between half a window and a whole one.
"""

from collections.abc import Callable, Mapping

from ottla.clock import Clock
from ottla.cluster.traffic import Key, Rates
from ottla.metrics import TrafficCounts

Counters = Mapping[str, Mapping[int, TrafficCounts]]
"""The counters by topic and partition."""


class TrafficWindow:
    """The traffic of this broker in bytes per second."""

    def __init__(self, counters: Counters, clock: Clock, window_s: Callable[[], float]) -> None:
        """`window_s` returns the longest time that a rate covers."""
        self._counters = counters
        self._clock = clock
        self._window_s = window_s
        self._since_s = self._copied_s = clock.elapsed_s()
        self._since: Mapping[Key, Rates] = {}  # the counters at `_since_s`
        self._copied: Mapping[Key, Rates] = {}  # the newer copy

    async def run(self) -> None:
        """Copy the counters twice per window, until cancelled."""
        while True:
            await self._clock.sleep(self._window_s() / 2)
            self.advance()

    def advance(self) -> None:
        """Forget what is older than the last copy, and copy the counters again."""
        self._since_s, self._since = self._copied_s, self._copied
        self._copied_s, self._copied = self._clock.elapsed_s(), self._copy()

    @property
    def seconds(self) -> float:
        """The time that the rates cover."""
        return self._clock.elapsed_s() - self._since_s

    def rates(self) -> dict[Key, Rates]:
        """Return the rates of the partitions with traffic."""
        seconds = self.seconds
        if seconds <= 0:
            return {}
        found: dict[Key, Rates] = {}
        for key, now in self._copy().items():
            before = self._since.get(key, Rates())
            # A topic that was deleted and created again starts to count from 0.
            one = Rates(*(round(max(0, b - a) / seconds) for a, b in zip(before, now, strict=True)))
            if any(one):
                found[key] = one
        return found

    def _copy(self) -> dict[Key, Rates]:
        """Return the counters of all partitions that have had traffic."""
        return {
            (topic, index): Rates(one.bytes_in, one.bytes_out)
            for topic, partitions in self._counters.items()
            for index, one in partitions.items()
            if one.bytes_in or one.bytes_out
        }

"""The traffic of partitions over the last minutes."""

from ottla.broker.traffic_window import TrafficWindow
from ottla.clock import SystemClock
from ottla.cluster.traffic import Rates
from ottla.metrics import TrafficCounts


class SteppedClock(SystemClock):
    """A clock that a test sets."""

    now_s = 1000.0

    def elapsed_s(self) -> float:
        return self.now_s


def test_rates_cover_the_last_window() -> None:
    clock, counts = SteppedClock(), TrafficCounts()
    window = TrafficWindow({"t": {0: counts, 1: TrafficCounts()}}, clock, lambda: 20.0)
    assert window.rates() == {}
    counts.bytes_in, counts.bytes_out = 1000, 100
    clock.now_s += 10
    assert window.rates() == {("t", 0): Rates(100, 10)}
    window.advance()
    counts.bytes_in += 3000
    clock.now_s += 10
    assert window.seconds == 20
    assert window.rates() == {("t", 0): Rates(200, 5)}
    window.advance()
    assert window.rates() == {("t", 0): Rates(300, 0)}, "the first ten seconds are forgotten"
    clock.now_s += 10
    window.advance()
    clock.now_s += 10
    assert window.rates() == {}, "idle"


def test_topic_that_was_created_again_counts_from_zero() -> None:
    clock = SteppedClock()
    counters = {"t": {0: TrafficCounts(bytes_in=5000)}}
    window = TrafficWindow(counters, clock, lambda: 20.0)
    window.advance()
    window.advance()
    counters["t"] = {0: TrafficCounts(bytes_in=100)}
    clock.now_s += 10
    assert window.rates() == {}
    window.advance()
    counters["t"][0].bytes_in += 500
    clock.now_s += 10
    window.advance()
    assert window.rates() == {("t", 0): Rates(50, 0)}

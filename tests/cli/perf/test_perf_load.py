"""Latencies, rates and samples of measurements."""

import pytest

from ottla.cli.kafka.flags import NotDone
from ottla.cli.kafka.perf.consumer import DateFormat
from ottla.cli.perf.load import Latencies, Span, sample_every, shares


def test_latencies_have_percentiles() -> None:
    found = Latencies([float(n) for n in range(100, 0, -1)])
    assert shares(found) == [51.0, 96.0, 100.0, 100.0]
    assert (found.average, found.largest) == (50.5, 100.0)
    assert (Latencies().at(0.5), Latencies().average, Latencies().largest) == (0.0, 0.0, 0.0)


def test_short_runs_time_at_least_two_hundred_records() -> None:
    assert [sample_every(count) for count in (1, 399, 400, 20_000)] == [1, 1, 2, 100]
    assert [sample_every(count) for count in (200_000, 1_000_000, 10**9)] == [1000, 1000, 1000]


def test_rates_are_per_second() -> None:
    span = Span(1000, 2 << 20, 0.5)
    assert (span.rate, span.mb_rate) == (2000.0, 4.0)


def test_dates_follow_javas_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert (
        DateFormat("yyyy-MM-dd HH:mm:ss:SSS").text(1_700_000_000_007) == "2023-11-14 22:13:20:007"
    )
    assert DateFormat("'at' HH''mm %").text(0) == "at 00'00 %"
    with pytest.raises(NotDone, match="z in --date-format"):
        DateFormat("z")

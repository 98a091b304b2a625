"""The rate limit of log lines about peers; suppressed lines are counted."""

from ottla.transport.log_rate_limit import LINES_MAX, SECONDS, LogRateLimit


def test_peer_is_logged_once_a_minute_per_reason() -> None:
    rate_limit = LogRateLimit()
    assert rate_limit.suppressed("a", "refused", 0) == 0
    assert rate_limit.suppressed("a", "refused", 1) is None
    assert rate_limit.suppressed("a", "refused", SECONDS - 0.1) is None
    assert rate_limit.suppressed("a", "violation", 1) == 2
    assert rate_limit.suppressed("b", "refused", 1) == 0
    assert rate_limit.suppressed("a", "refused", SECONDS) == 0
    assert rate_limit.suppressed("a", "refused", SECONDS + 1) is None
    assert rate_limit.suppressed("a", "refused", 2 * SECONDS) == 1


def test_many_peers_do_not_fill_the_log() -> None:
    rate_limit = LogRateLimit()
    suppressed_counts = [
        rate_limit.suppressed(f"10.0.{n >> 8}.{n & 255}", "refused", 0) for n in range(5000)
    ]
    assert suppressed_counts == [0] * LINES_MAX + [None] * (5000 - LINES_MAX)
    assert rate_limit.suppressed("late", "refused", SECONDS) == 5000 - LINES_MAX

"""LogRateLimit about peers: said once, counted always."""

from ottla.transport.log_rate_limit import LINES_MAX, SECONDS, LogRateLimit


def test_a_peer_is_complained_about_once_a_minute_for_a_reason() -> None:
    complaints = LogRateLimit()
    assert complaints.suppressed("a", "refused", 0) == 0
    assert complaints.suppressed("a", "refused", 1) is None
    assert complaints.suppressed("a", "refused", SECONDS - 0.1) is None
    assert complaints.suppressed("a", "violation", 1) == 2
    assert complaints.suppressed("b", "refused", 1) == 0
    assert complaints.suppressed("a", "refused", SECONDS) == 0
    assert complaints.suppressed("a", "refused", SECONDS + 1) is None
    assert complaints.suppressed("a", "refused", 2 * SECONDS) == 1


def test_many_peers_together_do_not_fill_the_log() -> None:
    complaints = LogRateLimit()
    said = [complaints.suppressed(f"10.0.{n >> 8}.{n & 255}", "refused", 0) for n in range(5000)]
    assert said == [0] * LINES_MAX + [None] * (5000 - LINES_MAX)
    assert complaints.suppressed("late", "refused", SECONDS) == 5000 - LINES_MAX

"""The simulated services: generates the lines that they log from one time to another.

Invariant: the lines depend only on the seed and the time. Intervals next to each other return
together what the whole interval returns.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

SERVICES: Final = ("web", "orders", "payment", "mail")
PERIOD_MS: Final = 20
"""The time between two lines of a service."""

OUTAGE_S: Final = 15
"""For so long in each minute the bank does not answer, and most payments fail."""

TRACEBACK: Final = (
    b"Traceback (most recent call last):",
    b'  File "/srv/mail/smtp.py", line 81, in send',
    b"ConnectionResetError: [Errno 104] Connection reset by peer",
    b"\xff\xfe\x00 core dumped",
)
MESSAGES: Final = {
    "web": ("GET /", "GET /cart", "POST /orders"),
    "orders": ("order accepted", "order packed"),
    "payment": ("paid", "refunded"),
    "mail": ("mail sent", "mail queued"),
}


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that a service logs."""

    at_ms: int
    service: str
    text: bytes


def lines(seed: int, start_ms: int, end_ms: int) -> Iterator[LogLine]:
    """Generate the lines from one time to another, ordered by time."""
    for tick in range(-(-start_ms // PERIOD_MS), -(-end_ms // PERIOD_MS)):
        for number, service in enumerate(SERVICES):
            source = random.Random((seed << 72) | (number << 56) | tick)
            at_ms = tick * PERIOD_MS
            yield LogLine(at_ms, service, _text(service, at_ms, source))


def _text(service: str, at_ms: int, source: random.Random) -> bytes:
    if service == "mail" and source.random() < 0.02:
        return source.choice(TRACEBACK)
    error_rate = 0.01
    if service == "payment" and at_ms // 1000 % 60 < OUTAGE_S:
        error_rate = 0.7
    at = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    level, message = "INFO", source.choice(MESSAGES[service])
    if source.random() < error_rate:
        level, message = "ERROR", "the bank does not answer" if service == "payment" else "timeout"
    number = source.randrange(1_000_000)
    return f"{at.replace('+00:00', 'Z')} {level} {service} {message} request={number}".encode()

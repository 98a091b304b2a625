"""The topics of the services, and where a record goes after a failure.

A record that could not be handled waits in a retry topic. Each attempt has its own retry topic with
its own delay, so the first record of a topic is always the next one that is due. After the last
attempt the record is parked: nobody reads the parking topic but people.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

ORDERS: Final = "messaging.orders"
ANSWERS: Final = "messaging.answers"
STOCK: Final = "messaging.stock"
STOCK_REPLIES: Final = "messaging.stock-replies"
MAILS: Final = "messaging.mails"
SENT_MAILS: Final = "messaging.sent-mails"

DELAYS_S: Final = (1.0, 2.0, 4.0)
"""The delays before the second attempt, the third and so on."""

ATTEMPTS: Final = "attempts"
"""The header with the number of attempts that have failed."""

ERROR: Final = "error"
"""The header with the reason of the last failure."""

CORRELATION_ID: Final = "correlation-id"
"""The header with the id of a request, which its reply and its outcome have, too."""

Headers = Sequence[tuple[str, bytes | None]]


class Retry(Exception):
    """A record cannot be handled now, but perhaps later; the text has the reason."""


class Refused(Exception):
    """A record can never be handled; the text has the reason."""


class Move(NamedTuple):
    """Where a record goes, and with which headers."""

    topic: str
    headers: Headers


def retry_topic(topic: str, attempts: int) -> str:
    """The topic in which records wait that have failed so many times."""
    return f"{topic}.retry-{attempts}"


def parking_topic(topic: str) -> str:
    """The topic of the records that are not tried again."""
    return f"{topic}.parked"


def attempts_of(headers: Headers) -> int:
    """Return how many attempts have failed."""
    text = header(headers, ATTEMPTS) or ""
    return int(text) if text.isascii() and text.isdecimal() else 0


def header(headers: Headers, name: str) -> str | None:
    """Return the last value of a header."""
    found = [value for key, value in headers if key == name and value is not None]
    return found[-1].decode(errors="replace") if found else None


def after_failure(topic: str, headers: Headers, failure: Retry | Refused, retries: int) -> Move:
    """Decide where a record of a topic goes after a failure, if it may be retried so often."""
    attempts = attempts_of(headers) + 1
    kept = [one for one in headers if one[0] not in (ATTEMPTS, ERROR)]
    added = [(ATTEMPTS, str(attempts).encode()), (ERROR, str(failure).encode())]
    is_parked = isinstance(failure, Refused) or attempts > retries
    target = parking_topic(topic) if is_parked else retry_topic(topic, attempts)
    return Move(target, [*kept, *added])

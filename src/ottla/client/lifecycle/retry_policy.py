"""The retry policy of a call: timeouts and backoff.

Invariant: a call ends at its deadline, however many attempts it made.
"""

import sys
from typing import NamedTuple

from ottla.transport.backoff import Backoff


class RetryPolicy(NamedTuple):
    """Timeouts and backoff of a call."""

    request_timeout_s: float
    """Of one request."""

    call_timeout_s: float
    """Of a call with all its attempts, unless the caller gives a timeout."""

    backoff: Backoff
    retries: int = sys.maxsize

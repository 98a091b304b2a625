"""RetryPolicy: how long a call is tried, and how often.

Invariant: a call ends with its deadline, however many tries there were.
"""

import sys
from typing import NamedTuple

from ottla.client.lifecycle.backoff import Backoff


class RetryPolicy(NamedTuple):
    """How long and how often."""

    request_timeout_s: float
    """For one request."""

    call_timeout_s: float
    """For a call with all its tries, if it names no limit of its own."""

    backoff: Backoff
    retries: int = sys.maxsize

"""The counters of requests.

Invariant: every API that the broker serves has its counters from the start.
"""

from collections.abc import Iterable

from ottla.metrics import ApiCounts
from ottla.protocol.message import Api


class RequestMetrics:
    """The counters of each API that the broker serves."""

    __slots__ = ("by_key",)

    def __init__(self, keys: Iterable[int]) -> None:
        self.by_key = {key: ApiCounts() for key in keys}

    def of(self, api: Api) -> ApiCounts:
        """Return the counters of an API."""
        return self.by_key[api.key]

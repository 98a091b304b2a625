"""The shutdown of the broker, as requests see it.

Invariant: `begun` never becomes False again. While it is True, no request waits for records, for
memory or for other requests.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class Shutdown:
    """Whether the broker is stopping."""

    begun: bool = False

"""A digest of the events of a simulated run.

Invariant: two runs have the same digest if and only if the same events were recorded in the same
order.
"""

from hashlib import blake2b


class Trace:
    """Records events."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)
        self.count = 0

    def note(self, *what: int | str | bytes) -> None:
        """Record an event."""
        self.count += 1
        for one in what:
            if isinstance(one, int):
                self._hash.update(b"%d;" % one)
            else:
                data = one.encode() if isinstance(one, str) else one
                self._hash.update(b"%d:%b" % (len(data), data))

    @property
    def digest(self) -> str:
        """Return the digest of all recorded events."""
        return self._hash.hexdigest()

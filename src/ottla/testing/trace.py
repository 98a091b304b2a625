"""What happened in a simulated run, as one number.

Invariant: two runs have the same digest exactly when the same things were noted in the same order.
"""

from hashlib import blake2b


class Trace:
    """Takes notes."""

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)
        self.count = 0

    def note(self, *what: int | str | bytes) -> None:
        """Something happened."""
        self.count += 1
        for one in what:
            data = one if isinstance(one, bytes) else str(one).encode()
            self._hash.update(b"%d:" % len(data))
            self._hash.update(data)

    @property
    def digest(self) -> str:
        """The number for all that was noted."""
        return self._hash.hexdigest()

"""What a broker serves, beside what we speak.

Invariant: an API is usable in the newest version that both ends have, and in none where there is
no such version.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.protocol.apis import API_OF_KEY
from ottla.protocol.conversation import negotiate
from ottla.protocol.schema import Versions


@dataclass(frozen=True, slots=True)
class ServedApi:
    """An API, as one end or both have it."""

    key: int
    name: str | None
    """None for one that we do not know."""

    theirs: Versions | None
    ours: Versions | None

    @property
    def usable(self) -> int | None:
        """The version that the two would speak."""
        if self.theirs is None or self.ours is None:
            return None
        return negotiate(self.ours, self.theirs)

    @property
    def verdict(self) -> str:
        """Why it cannot be used, or that it can."""
        if self.theirs is None:
            return "not served"
        if self.ours is None:
            return "not supported"
        if self.usable is not None:
            return "usable"
        return "too new" if self.theirs.low > self.ours.high else "too old"


def compared(served: Mapping[int, Versions]) -> list[ServedApi]:
    """All APIs that one of the two ends knows, in the order of their keys."""
    found: list[ServedApi] = []
    for key in sorted({*served, *API_OF_KEY}):
        api = API_OF_KEY.get(key)
        found.append(
            ServedApi(
                key,
                None if api is None else api.name,
                served.get(key),
                None if api is None else api.versions,
            )
        )
    return found

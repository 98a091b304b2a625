"""Compares the APIs of a broker with those of this client.

Invariant: an API is usable in the newest common version, or not at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ottla.protocol.apis import API_OF_KEY
from ottla.protocol.conversation import negotiate
from ottla.protocol.schema import Versions


@dataclass(frozen=True, slots=True)
class ServedApi:
    """An API of one or both ends."""

    key: int
    name: str | None
    """None for an API that this client does not know."""

    theirs: Versions | None
    ours: Versions | None

    @property
    def usable(self) -> int | None:
        """The version that both ends would use."""
        if self.theirs is None or self.ours is None:
            return None
        return negotiate(self.ours, self.theirs)

    @property
    def verdict(self) -> str:
        """Whether it can be used, or why not."""
        if self.theirs is None:
            return "not served"
        if self.ours is None:
            return "not supported"
        if self.usable is not None:
            return "usable"
        return "too new" if self.theirs.low > self.ours.high else "too old"


def compared(served: Mapping[int, Versions]) -> list[ServedApi]:
    """Return all APIs of both ends, by API key."""
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

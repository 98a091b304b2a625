"""The shutdown of the broker, as requests see it.

Invariant: `begun` never becomes False again. While it is True, no request waits for records, for
memory or for other requests, and no change of topics begins.
"""

from dataclasses import dataclass

from ottla.errors import ErrorCode, RequestError


@dataclass(slots=True)
class Shutdown:
    """Whether the broker is stopping."""

    begun: bool = False

    def refusal(self) -> RequestError:
        """Return the error of a change that comes too late; clients retry it."""
        return RequestError(ErrorCode.NOT_CONTROLLER, "the broker is stopping")

    def refusal_if_begun(self) -> RequestError | None:
        """Return the error of a change that comes too late, or None."""
        return self.refusal() if self.begun else None

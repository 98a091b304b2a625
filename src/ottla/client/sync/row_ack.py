"""The result of rows that were sent as columns, for the synchronous client.

Invariant: a known result is returned without the loop, which may be closed.
"""

from ottla.client.producer.row_ack import RowsAck as AsyncRowsAck
from ottla.client.producer.row_ack import WrittenRows
from ottla.client.sync.portal import Portal


class RowsAck:
    """The result of rows: `result()` waits for their offsets or raises the error."""

    __slots__ = ("_behind", "_portal")

    def __init__(self, portal: Portal, behind: AsyncRowsAck) -> None:
        self._portal = portal
        self._behind = behind

    def result(self, timeout_s: float | None = None) -> list[WrittenRows]:
        """Wait for the result; raises TimedOut, after which it may be called again."""
        if not self._behind.done:
            return self._portal.run(self._outcome(), timeout_s)
        try:
            self._outcome().send(None)
        except StopIteration as known:
            return known.value
        raise AssertionError("what is done waits for nothing")

    def done(self) -> bool:
        """Whether the result of all rows is known."""
        return self._behind.done

    async def _outcome(self) -> list[WrittenRows]:
        return await self._behind

"""What becomes of rows that were sent as columns, for code without an event loop.

Invariant: what is known is told without the loop, which may have ended since.
"""

from ottla.client.produce.row_ack import RowsAck as AsyncRowsAck
from ottla.client.produce.row_ack import WrittenRows
from ottla.client.sync.portal import Portal


class RowsAck:
    """What becomes of rows: `result()` waits for where they are, or raises why some are not."""

    __slots__ = ("_behind", "_portal")

    def __init__(self, portal: Portal, behind: AsyncRowsAck) -> None:
        self._portal = portal
        self._behind = behind

    def result(self, timeout_s: float | None = None) -> list[WrittenRows]:
        """Wait until all is known; TimedOut when that takes too long, and one may ask again."""
        if not self._behind.done:
            return self._portal.run(self._outcome(), timeout_s)
        try:
            self._outcome().send(None)
        except StopIteration as known:
            return known.value
        raise AssertionError("what is done waits for nothing")

    def done(self) -> bool:
        """Whether it is known already, of all rows."""
        return self._behind.done

    async def _outcome(self) -> list[WrittenRows]:
        return await self._behind

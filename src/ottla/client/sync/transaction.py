"""A transaction of the synchronous producer.

Invariant: it ends after all records sent before have reached the producer. A record that failed on
its way there without anybody asking aborts it, as if `send` had raised. An interrupted call may
take a while to end; the next one waits for it.
"""

import asyncio
from collections.abc import Mapping
from typing import Self

from ottla.client.group.interfaces import GroupMember
from ottla.client.group.offsets import OffsetAndMetadata
from ottla.client.partitions import P
from ottla.client.producer.transaction import Transaction as AsyncTransaction
from ottla.client.sync.portal import Portal
from ottla.client.sync.send_queue import SendQueue


class Transaction:
    """Created by `producer.transaction()`; `with` begins and ends it."""

    def __init__(self, portal: Portal, handover: SendQueue, behind: AsyncTransaction) -> None:
        self._portal = portal
        self._handover = handover
        self._behind = behind
        self._ending = asyncio.Lock()

    def __enter__(self) -> Self:
        async def begun() -> None:
            # Records sent before do not belong to it.
            await self._handover.passed()
            await self._behind.__aenter__()

        self._portal.run(begun())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        async def ended() -> None:
            await self._handover.passed()
            async with self._ending:
                try:
                    if error is None:
                        self._handover.raise_unheard()
                except Exception as failure:
                    await self._behind.__aexit__(type(failure), failure, None)
                    raise
                await self._behind.__aexit__(kind, error, None)

        self._portal.run(ended())

    def send_offsets(
        self,
        offsets: Mapping[P, int | OffsetAndMetadata],
        group: GroupMember | str,
    ) -> None:
        """Commit the offsets of a group with the transaction: the offsets of the next records.

        With a group member, it counts only if the group still knows that member.
        """
        self._portal.run(self._behind.send_offsets(offsets, group))

    def commit(self) -> None:
        """Commit; leaving the context then does nothing more.

        Raises OutcomeUnknown if the coordinator did not respond: call it again. It commits once.
        """

        async def committed() -> None:
            await self._handover.passed()
            async with self._ending:
                self._handover.raise_unheard()
                await self._behind.commit()

        self._portal.run(committed())

    def abort(self) -> None:
        """Abort; leaving the context then does nothing more.

        Raises OutcomeUnknown if the coordinator did not respond: call it again.
        """

        async def aborted() -> None:
            await self._handover.passed()
            async with self._ending:
                await self._behind.abort()

        self._portal.run(aborted())

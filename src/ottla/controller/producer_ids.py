"""Producer ids, each issued once in the life of a cluster.

Invariant: a block of ids is reserved in coordination, at the version that was read, before any of
its ids is issued (rule B12). The rest of a block is never issued after the broker ends.
"""

import asyncio
from typing import Final

from ottla.cluster.znodes import PRODUCER_ID_BLOCK, ProducerIdBlock, parse_producer_id_block
from ottla.coordination.errors import BadVersion, NodeExists, NoNode
from ottla.coordination.session import Session
from ottla.ids import BrokerId, ProducerId

BLOCK_SIZE: Final = 1000


class ProducerIds:
    """Issues ids and reserves a new block when the current one is used up."""

    def __init__(self, session: Session, broker: BrokerId) -> None:
        self._session = session
        self._broker = broker
        self._next = 0
        self._end = 0
        self._turn = asyncio.Lock()

    async def take(self) -> ProducerId:
        """Return a new producer id.

        A reservation whose response is lost raises ConnectionLoss: nobody knows whether it was
        made, so that block is never issued (rule B6). The next call reserves another one.
        """
        async with self._turn:
            while self._next >= self._end:
                await self._reserve()
            self._next += 1
            return ProducerId(self._next - 1)

    async def _reserve(self) -> None:
        try:
            found = await self._session.get(PRODUCER_ID_BLOCK)
        except NoNode:
            first, version = 0, None
        else:
            first, version = parse_producer_id_block(found.data).last + 1, found.stat.version
        block = ProducerIdBlock(self._broker, first, first + BLOCK_SIZE - 1)
        try:
            if version is None:
                await self._session.create(PRODUCER_ID_BLOCK, block.format())
            else:
                await self._session.set(PRODUCER_ID_BLOCK, block.format(), version)
        except (NodeExists, BadVersion):
            return  # another broker reserved a block first: read again
        self._next, self._end = block.first, block.last + 1

"""The partitions of a member, as its membership hands them out and takes them back.

Invariant: a partition has a number while it is owned, and another one after it was away. So who
waited knows whether it was owned all the time, or somebody else's in between.
"""

from collections.abc import Set as AbstractSet
from typing import Final

from ottla.client.group.interfaces import GroupOwner, Rebalance
from ottla.ids import TopicPartition


class OwnedPartitions:
    """What the owner has, with what it is told."""

    def __init__(self, owner: GroupOwner) -> None:
        self.owner: Final = owner
        self._since: dict[TopicPartition, int] = {}
        self._assignments = 0

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that the owner has."""
        return self.owner.owned()

    def held(self, partition: TopicPartition) -> int | None:
        """Since which assignment it is owned without a break; None: it is not."""
        return self._since.get(partition)

    async def revoke(self, partitions: AbstractSet[TopicPartition], why: str) -> None:
        """Have partitions given up, if there are any."""
        if partitions:
            try:
                await self.owner.revoke(frozenset(partitions), Rebalance(why))
            finally:
                self._drop(partitions)

    async def lose(self, why: str) -> None:
        """Have all dropped, if there are any."""
        partitions = self.owned
        self._drop(partitions)  # nobody commits what may be another's
        if partitions:
            await self.owner.lose(partitions, Rebalance(why))

    async def assign(self, partitions: AbstractSet[TopicPartition], why: str) -> None:
        """Have partitions taken; none tells the owner that all stays as it is."""
        self._assignments += 1
        self._since |= dict.fromkeys(partitions, self._assignments)
        await self.owner.assign(frozenset(partitions), Rebalance(why))

    def _drop(self, partitions: AbstractSet[TopicPartition]) -> None:
        for partition in partitions:
            self._since.pop(partition, None)

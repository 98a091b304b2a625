"""The partitions of a member, as assigned and revoked.

Invariant: an owned partition has a number, and another one after it was away. A caller that waited
thus knows whether the partition was owned all the time.
"""

from collections.abc import Set as AbstractSet
from typing import Final

from ottla.client.group.interfaces import GroupOwner, Rebalance
from ottla.ids import TopicPartition


class OwnedPartitions:
    """The partitions of the owner, and the calls to it."""

    def __init__(self, owner: GroupOwner) -> None:
        self.owner: Final = owner
        self._since: dict[TopicPartition, int] = {}
        self._assignments = 0

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions of the owner."""
        return self.owner.owned()

    def held(self, partition: TopicPartition) -> int | None:
        """Return the assignment since which it is owned without a break; None if it is not."""
        return self._since.get(partition)

    async def revoke(self, partitions: AbstractSet[TopicPartition], why: str) -> None:
        """Revoke partitions, if there are any."""
        if partitions:
            try:
                await self.owner.revoke(frozenset(partitions), Rebalance(why))
            finally:
                self._drop(partitions)

    async def lose(self, why: str) -> None:
        """Drop all partitions, if there are any."""
        partitions = self.owned
        self._drop(partitions)  # nothing is committed for partitions that another member may own
        if partitions:
            await self.owner.lose(partitions, Rebalance(why))

    async def assign(self, partitions: AbstractSet[TopicPartition], why: str) -> None:
        """Assign partitions; none tells the owner that nothing changes."""
        self._assignments += 1
        self._since |= dict.fromkeys(partitions, self._assignments)
        await self.owner.assign(frozenset(partitions), Rebalance(why))

    def _drop(self, partitions: AbstractSet[TopicPartition]) -> None:
        for partition in partitions:
            self._since.pop(partition, None)

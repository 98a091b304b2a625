"""Chooses the partition of a record.

Invariant: the partition exists. What is known about a topic's partitions is prepared once per
metadata change, so that a record costs one call to the partitioner.
"""

import logging
from array import array
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from ottla.client.arguments import checked_name, whole_of
from ottla.client.network.cluster_view import TopicView
from ottla.client.network.metadata import Metadata
from ottla.client.partitioners import KeyPartitioner, Partitioner, Partitions
from ottla.client.partitions import no_partition
from ottla.errors import ErrorCode, RequestError
from ottla.ids import PartitionIndex, TopicPartition
from ottla.protocol.primitives import Buffer
from ottla.records import Column, partitions

_log: Final = logging.getLogger(__name__)


class _Topic(NamedTuple):
    """What a choice needs, valid until the metadata change."""

    view: TopicView
    choices: Partitions
    places: dict[int, TopicPartition]


class PartitionChooser:
    """Calls the partitioner."""

    def __init__(self, metadata: Metadata, partitioner: Partitioner) -> None:
        self._metadata = metadata
        self._partitioner = partitioner
        self._topics: dict[str, _Topic] = {}
        self._waited_for: set[tuple[str, int]] = set()  # partitions that did not exist
        # By key, the choice is the same until a batch is full or the metadata change.
        self._is_steady = isinstance(partitioner, KeyPartitioner)
        self._heeds_keys = isinstance(partitioner, KeyPartitioner) and partitioner.heeds_keys

    @property
    def hashes_keys(self) -> bool:
        """Whether only the hash of a key determines its partition."""
        # A subclass may choose otherwise.
        return self._heeds_keys and type(self._partitioner) is KeyPartitioner

    def is_sticky(self, key: bytes | None) -> bool:
        """Whether a record with this key goes where records without a key go."""
        return self._is_steady and (key is None or not self._heeds_keys)

    def count(self, topic: str) -> int:
        """Return the number of partitions of a topic; 0 before `find` has found it."""
        known = self._topics.get(topic)
        return 0 if known is None else known.choices.count

    def is_steady(self, partition: int | None) -> bool:
        """Whether records of one key keep going to this partition until its batch is full."""
        return self._is_steady or partition is not None

    def kept(self, where: TopicPartition | None, partition: int | None) -> int | None:
        """Return the partition to use when a record is retried after it was chosen for `where`.

        A round-robin partitioner is called once per record. Otherwise, with two partitions, the
        first record of each batch would take two turns and one partition would get none.
        """
        return partition if where is None or self._is_steady else where.partition

    def find(
        self, topic: str, key: bytes | None, value: bytes | None, partition: int | None
    ) -> TopicPartition | None:
        """Return the partition of a record; None while the topic or partition is unknown."""
        known = self._known(topic)
        if known is None:
            return None
        if partition is None:
            partition = self._partitioner.choose(topic, key, value, known.choices)
        return known.places.get(partition)

    async def choices(self, topic: str, timeout_s: float, wanted: Iterable[int] = ()) -> Partitions:
        """Return the partitions of a topic once it is known and has the wanted ones.

        Raises RequestError at the timeout.
        """
        self._metadata.want(checked_name(topic))
        while (known := self._known(topic)) is None:
            await self._metadata.topic(topic, timeout_s)
        for partition in wanted:
            if partition not in known.places:
                await self._added(topic, partition, timeout_s)
                known = self._topics[topic]
        return known.choices

    def of_rows(
        self,
        topic: str,
        choices: Partitions,
        keys: Column | None,
        contents: Callable[[], Iterable[tuple[bytes | None, bytes | None]]],
    ) -> Buffer | None:
        """Return the partitions of rows as 32-bit integers, -1 for any; None if that is so for all.

        Rows for any partition go where `find` says, per batch. `contents` yields keys and values
        for partitioners that need them.
        """
        partitioner = self._partitioner
        if not isinstance(partitioner, KeyPartitioner):
            chosen = (partitioner.choose(topic, *one, choices) for one in contents())
            return memoryview(array("i", chosen))
        if keys is None or not partitioner.heeds_keys or choices.count == 1:
            return None
        return partitions(keys, choices.count)

    async def found(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timeout_s: float,
    ) -> TopicPartition:
        """Return the partition of a record once its topic is known; raises RequestError."""
        self._metadata.want(checked_name(topic))
        place = self.find(topic, key, value, partition)
        while place is None:
            if self._known(topic) is not None:
                return await self._added(topic, partition, timeout_s)
            await self._metadata.topic(topic, timeout_s)
            place = self.find(topic, key, value, partition)
        return place

    async def _added(self, topic: str, partition: int | None, timeout_s: float) -> TopicPartition:
        """Wait for a partition that the last metadata did not contain, as Kafka's producer does.

        It may have just been added, and the brokers learn of it one after the other.
        """
        if partition is None:  # chosen from metadata with a gap
            raise _missing(f"the metadata of {topic} are incomplete")
        number, late = whole_of(partition, "a partition number"), ""
        known = self._metadata.want(topic)
        if number >= 0:
            known = await self._metadata.topic(
                topic, timeout_s, number, lambda view: self._missed(view, number)
            )
            late = f", and did not appear in {round(timeout_s, 1):g} s (max.block.ms)"
        prepared = self._known(topic)
        if prepared is None or number not in prepared.places:
            count = 0 if known is None else len(known.partitions)
            raise _missing(f"{no_partition(topic, count, number)}{late}")
        self._waited_for.discard((topic, number))
        return prepared.places[number]

    def _missed(self, topic: TopicView, number: int) -> None:
        """Log once that a call waits for a partition."""
        if (topic.name, number) not in self._waited_for:
            self._waited_for.add((topic.name, number))
            why = no_partition(topic.name, len(topic.partitions), number)
            _log.warning("%s; waiting for it", why)

    def _known(self, topic: str) -> _Topic | None:
        view = self._metadata.view.topics.get(topic)
        known = self._topics.get(topic)
        if known is None or known.view is not view:
            if view is None or not view.partitions:
                return None
            known = self._topics[topic] = _seen(view)
        return known


def _missing(why: str) -> RequestError:
    return RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"nothing was sent: {why}")


def _seen(view: TopicView) -> _Topic:
    led = (one.index for one in view.partitions.values() if one.leader >= 0)
    places = {
        index: TopicPartition(view.name, PartitionIndex(index)) for index in sorted(view.partitions)
    }
    return _Topic(view, Partitions(len(view.partitions), tuple(sorted(led))), places)

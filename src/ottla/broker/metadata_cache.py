"""The metadata cache: the cluster as this broker knows it, and responses encoded from it.

Invariant: accessed only on the event loop. `image` describes the whole cluster and is replaced, not
changed. An encoded response is used only while the image from which it was encoded is current.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ottla.cluster.image import Address, Broker, ClusterImage, Topic
from ottla.errors import ErrorCode, RequestError
from ottla.ids import BrokerEpoch, BrokerId, Uuid
from ottla.protocol.primitives import Buffer


class MetadataResponseKey(NamedTuple):
    """What a Metadata response with all topics depends on, apart from the image."""

    version: int
    listener: str
    with_topic_operations: bool
    with_cluster_operations: bool
    lost_brokers: tuple[tuple[BrokerId, BrokerEpoch], ...]  # listed although they are not alive


class MetadataCache:
    """The current image of the cluster."""

    __slots__ = ("_encoded", "_encoded_version", "image")

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self._encoded: dict[MetadataResponseKey, Sequence[Buffer]] = {}
        self._encoded_version = image.version  # of the image from which they were encoded

    def topic(self, name: str, topic_id: Uuid | None = None) -> Topic:
        """Return a topic by name, or by id if one is given; raises RequestError."""
        if topic_id is not None:
            found = self.image.topic_of_id(topic_id)
            if found is None:
                raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID)
            return found
        found = self.image.topics.get(name)
        if found is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return found

    def partition_count(self, topic: str) -> int:
        """Return the number of partitions of a topic; 0 if the topic does not exist."""
        found = self.image.topics.get(topic)
        return 0 if found is None else len(found.partitions)

    def leader_addresses(
        self, leaders: Iterable[BrokerId], listener: str
    ) -> list[tuple[Broker, Address]]:
        """Return where clients of a listener reach the leaders in hints (KIP-951)."""
        brokers = self.image.brokers
        return [
            (broker, broker.addresses[listener])
            for leader in sorted({*leaders})
            if (broker := brokers.get(leader)) is not None and listener in broker.addresses
        ]

    def encoded_response(
        self, key: MetadataResponseKey, encode: Callable[[], Sequence[Buffer]]
    ) -> Sequence[Buffer]:
        """Return the encoded response with all topics; `encode` makes it once per image."""
        if self._encoded_version != self.image.version:
            self._encoded = {}
            self._encoded_version = self.image.version
        known = self._encoded.get(key)
        if known is None:
            known = self._encoded[key] = encode()
        return known

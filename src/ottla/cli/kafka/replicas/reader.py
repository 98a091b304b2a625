"""Reads records from every replica of a partition."""

from collections.abc import Mapping, Sequence
from typing import Final

from ottla.cli.kafka.replicas.comparison import Fetched
from ottla.client.admin.administration import Administration
from ottla.client.admin.records import RecordCalls
from ottla.client.admin.topic_descriptions import TopicDescription
from ottla.client.admin.topics import TopicCalls
from ottla.client.calls.caller import ApiCall
from ottla.client.partitions import Partition, partition
from ottla.ids import ZERO_UUID
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

DEBUGGING_CONSUMER: Final = -2
"""The replica id of a consumer that may read from followers."""

_NEWEST: Final = 14  # the last version of Fetch with the replica id in this place
_BYTES_MAX: Final = 0x7FFF_FFFF


class ReplicaReader(Administration, RecordCalls, TopicCalls):
    """Reads from every replica."""

    async def fetch(
        self,
        topics: Mapping[str, TopicDescription],
        offsets: Mapping[Partition, int],
        size: int,
        wait_ms: int,
    ) -> dict[int, Mapping[Partition, Fetched]]:
        """Fetch from all brokers; one that does not respond is missing."""
        names = {one.id: name for name, one in topics.items()}
        brokers = {
            broker for one in topics.values() for row in one.partitions for broker in row.replicas
        }

        def request(keys: Sequence[int], _: object) -> FetchRequest:
            (broker,) = keys
            wanted = [
                FetchTopic(
                    topic=name,
                    topic_id=one.id or ZERO_UUID,
                    partitions=[
                        FetchPartition(
                            partition=row.index,
                            fetch_offset=offsets[name, row.index],
                            partition_max_bytes=size,
                        )
                        for row in one.partitions
                        if broker in row.replicas
                    ],
                )
                for name, one in topics.items()
            ]
            return FetchRequest(
                replica_id=DEBUGGING_CONSUMER,
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=_BYTES_MAX,
                topics=[one for one in wanted if one.partitions],
            )

        def read(
            keys: Sequence[int], answer: FetchResponse
        ) -> dict[int, Mapping[Partition, Fetched]]:
            found: dict[Partition, Fetched] = {
                partition(topic.topic or names[topic.topic_id], one.partition_index): Fetched(
                    one.high_watermark, bytes(one.records or b"")
                )
                for topic in answer.responses
                for one in topic.partitions
            }
            return dict.fromkeys(keys, found)

        call = ApiCall[int, FetchResponse, Mapping[Partition, Fetched]](
            request=request, answer=FetchResponse, read=read, newest=_NEWEST
        )
        asking = self._asking
        return {**(await asking.many(asking.to_brokers, brokers, call, None)).succeeded}

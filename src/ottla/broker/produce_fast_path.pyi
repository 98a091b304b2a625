from typing import Final

from ottla.broker.metadata_cache import MetadataCache
from ottla.clock import Clock
from ottla.ids import TopicPartition
from ottla.log.appender import Appended
from ottla.metrics import ApiCounts
from ottla.replication.partition import Partition
from ottla.transport.pending_acks import PendingAck

PARTITIONS_MAX: Final[int]

class ProduceFastPath:
    appended: Final[list[tuple[Partition, Appended]]]
    def __init__(
        self,
        *,
        partitions: dict[TopicPartition, Partition],
        metadata_cache: MetadataCache,
        clock: Clock,
        counts: ApiCounts,
    ) -> None: ...
    def serve(self, frame: memoryview) -> bytes | PendingAck | None: ...

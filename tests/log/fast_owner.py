"""A log whose owner appends through the compiled path of Produce."""

from collections.abc import Sequence
from typing import Any, cast

from broker.produce_worlds import ManualClock, produce_frame
from log.log_managers import TOPIC_ID, partition
from log.log_model import Owner
from log.logs import made
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.produce_fast_path import ProduceFastPath
from ottla.cluster.image import ClusterImage
from ottla.ids import TopicPartition
from ottla.log.directory import DataDirectory
from ottla.log.loading import HostedLog
from ottla.log.log_manager import LogManager
from ottla.metrics import ApiCounts
from ottla.records.validation import ValidationConfig
from ottla.replication.partition import Partition
from ottla.testing.disk import SimulatedDisk

PLACE = partition(0)


class FastOwner(Owner):
    """Appends what is ordinary by the compiled path, and the rest as any other owner."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.served = 0
        self._clock = ManualClock()
        self._partitions: dict[TopicPartition, Partition] = {}
        self._path = ProduceFastPath(
            partitions=self._partitions,
            metadata_cache=MetadataCache(ClusterImage("c")),
            clock=self._clock,
            counts=ApiCounts(),
        )
        super().__init__(disk)

    def append_batch(
        self,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes],
        producer_id: int,
        sequence: int,
        transactional: bool,
    ) -> None:
        data = made(
            values,
            keys=keys,
            timestamp=self.now_ms,
            producer_id=producer_id,
            epoch=0 if producer_id >= 0 else -1,
            sequence=sequence if producer_id >= 0 else -1,
            transactional=transactional,
        )
        self._clock.ms = self.now_ms
        self._lead()
        if self._path.serve(memoryview(produce_frame(data, {PLACE.topic: 1}))) is not None:
            self.served += 1
            return
        super().append_batch(
            values,
            keys=keys,
            producer_id=producer_id,
            sequence=sequence,
            transactional=transactional,
        )

    def _lead(self) -> None:
        """Lead with the log that is open now, in its epoch."""
        lock = SimulatedDisk().lock("/data/.lock")
        assert lock is not None
        hosted = HostedLog(PLACE, TOPIC_ID, self.log, DataDirectory(self.disk, "/data", lock))
        logs: Any = None  # the compiled path does not use it
        self._partitions[PLACE] = Partition(
            cast("LogManager", logs),
            hosted,
            TOPIC_ID,
            self.log.state.leader_epoch,
            ValidationConfig(),
            1,
        )

"""Repairs damaged records of this broker with those of other replicas (rule C4).

A damaged batch is refused, and its replica keeps everything else. So it stays in the ISR, and only
the damaged batches are fetched again, as a consumer would fetch them: from the leader, or from a
follower if this broker leads. Decision 0040 has the reasons.

Invariant: only committed records are repaired. Every in-sync replica has the same batch at an
offset below the high watermark. What is fetched is written only if its CRC, its offsets and its
leader epochs are right and it fits into the damaged bytes.
"""

import logging
from typing import Final

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.metadata_cache import MetadataCache
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError, StorageFailure
from ottla.ids import BrokerId, TopicPartition
from ottla.log.damage import Damage
from ottla.log.loading import HostedLog
from ottla.log.log_manager import LogManager
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.primitives import Buffer
from ottla.records.errors import CorruptRecords
from ottla.transport.broker_channels import BrokerChannels

_LOG = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 10.0  # between two looks at the damage of all logs
CHUNK_BYTES: Final = 1024 * 1024
TIMEOUT_SECONDS: Final = 30.0
_WITHOUT_SESSION: Final = -1


class DamageRepair:
    """Looks for known damage and repairs it."""

    def __init__(
        self,
        node_id: BrokerId,
        *,
        clock: Clock,
        logs: LogManager,
        metadata_cache: MetadataCache,
        channels: BrokerChannels,
        scheduler: CooperativeScheduler,
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        self._logs = logs
        self._metadata_cache = metadata_cache
        self._channels = channels
        self._scheduler = scheduler
        self._refused: dict[TopicPartition, str] = {}  # the reasons that were logged

    async def run(self) -> None:
        """Repair what is found, until cancelled."""
        while True:
            await self._clock.sleep(PAUSE_SECONDS)
            await self.repair_all()

    async def repair_all(self) -> None:
        """Repair the known damage of every log, as far as other replicas have the records."""
        logs = [one for one in self._logs if one.log.is_damaged]
        async for hosted in self._scheduler.new_loop().over(logs):
            if hosted.directory.failure is None and self._others(hosted.partition):
                for damage in hosted.log.damaged:
                    await self._repair(hosted, damage)

    async def _repair(self, hosted: HostedLog, damage: Damage) -> None:
        left: Damage | None = damage
        try:
            while left and left.first_offset < left.end_offset <= hosted.high_watermark:
                left = await self._repair_part(hosted, left)
        except (RequestError, CorruptRecords) as error:
            about = {"partition": str(hosted.partition), "damage": str(left), "reason": str(error)}
            if self._refused.get(hosted.partition) != about["reason"]:
                self._refused[hosted.partition] = about["reason"]
                _LOG.warning("damage not repaired", about)
        except StorageFailure as failure:
            self._logs.fail(hosted.directory, failure)
        else:
            if left is None:
                self._refused.pop(hosted.partition, None)
                about = {"partition": str(hosted.partition), "damage": str(damage)}
                _LOG.warning("damage repaired from another replica", about)

    async def _repair_part(self, hosted: HostedLog, damage: Damage) -> Damage | None:
        """Repair the first batches of a range; raises the error of the last replica that was asked.

        A replica may be out of reach, or damaged at the same place.
        """
        reason: RequestError | CorruptRecords | None = None
        for broker in self._others(hosted.partition):
            try:
                records = await self._fetch(broker, hosted.partition, damage)
                return await hosted.log.repair(damage, records)
            except (RequestError, CorruptRecords) as error:
                reason = error
        raise reason or RequestError(ErrorCode.REPLICA_NOT_AVAILABLE, "no other in-sync replica")

    def _others(self, partition: TopicPartition) -> list[BrokerId]:
        """The other in-sync replicas, the leader first."""
        state = self._metadata_cache.image.state(*partition)
        if state is None:
            return []
        others = [one for one in state.in_sync if one != self._node_id]
        return sorted(others, key=lambda one: one != state.leader)

    async def _fetch(self, broker: BrokerId, partition: TopicPartition, damage: Damage) -> Buffer:
        """Fetch the batches of a range, or the first of them."""
        topic = self._metadata_cache.image.topics[partition.topic]
        bytes_max = min(damage.size or CHUNK_BYTES, CHUNK_BYTES)
        wanted = FetchPartition(
            partition=partition.partition,
            fetch_offset=damage.first_offset,
            partition_max_bytes=bytes_max,
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=bytes_max,
            session_epoch=_WITHOUT_SESSION,
            topics=[FetchTopic(topic_id=topic.id, partitions=[wanted])],
        )
        response = await self._channels.ask(
            broker, request, FetchResponse, timeout_s=TIMEOUT_SECONDS
        )
        data = response.responses[0].partitions[0] if response.responses else None
        code = ErrorCode.of(data.error_code if data is not None else response.error_code)
        if data is None or code is not ErrorCode.NONE:
            raise RequestError(code, f"broker {broker} does not send the records")
        return data.records or b""

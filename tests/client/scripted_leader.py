"""A scripted leader: it keeps a log and checks sequence numbers as a broker does.

A test decides about each batch: an error code refuses it, AppendedWith appends it and returns an
error, LOST appends it without a response, UNSEEN does neither, and None treats it as a broker does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from client.scripted_broker import ScriptedBroker
from ottla.errors import ErrorCode, RequestError
from ottla.ids import Offset, Uuid
from ottla.log.producer_state_manager import ProducerStateManager
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.records import Batch, BatchHeader, batches

TOPIC = "t"
TOPIC_ID = Uuid(b"t" * 16)
LOST = "lost"
UNSEEN = "unseen"


@dataclass(frozen=True)
class AppendedWith:
    """An error after the append, for example because the ISR has shrunk."""

    code: ErrorCode


Word: TypeAlias = ErrorCode | AppendedWith | str | None


class Leader:
    """The leader of the partitions of one topic."""

    def __init__(self, word: Callable[[BatchHeader], Word], partitions: int = 1) -> None:
        self.word = word
        self.came: list[BatchHeader] = []
        self.logs: list[list[bytes | None]] = [[] for _ in range(partitions)]
        self.producers = [ProducerStateManager() for _ in range(partitions)]
        self.broker: ScriptedBroker | None = None

    def join(self, broker: ScriptedBroker) -> None:
        """Let a scripted broker answer for this leader."""
        self.broker = broker
        broker.answers[MetadataRequest] = self._metadata
        broker.answers[ProduceRequest] = self._produce

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        assert self.broker is not None
        known = self.broker.metadata(request)
        me = self.broker.number
        topic = MetadataResponseTopic(
            error_code=0,
            name=TOPIC,
            topic_id=TOPIC_ID,
            partitions=[
                MetadataResponsePartition(
                    error_code=0,
                    partition_index=index,
                    leader_id=me,
                    leader_epoch=0,
                    replica_nodes=[me],
                    isr_nodes=[me],
                )
                for index in range(len(self.logs))
            ],
        )
        return MetadataResponse(
            brokers=known.brokers, cluster_id="scripted", controller_id=me, topics=[topic]
        )

    def _produce(self, request: ProduceRequest) -> ProduceResponse | None:
        parts: list[PartitionProduceResponse] = []
        is_mute = False
        for topic in request.topic_data:
            for one in topic.partition_data:
                assert one.records is not None
                [batch] = batches(one.records)
                self.came.append(batch.header)
                word = self.word(batch.header)
                is_mute = is_mute or isinstance(word, str)
                parts.append(self._judged(one.index, batch, word))
        if is_mute:
            return None
        answered = TopicProduceResponse(name=TOPIC, topic_id=TOPIC_ID, partition_responses=parts)
        return ProduceResponse(responses=[answered])

    def _judged(self, index: int, batch: Batch, word: Word) -> PartitionProduceResponse:
        code, offset = ErrorCode.NONE, -1
        if isinstance(word, ErrorCode):
            code = word
        elif word != UNSEEN:
            try:
                offset = self._appended(index, batch)
                code = word.code if isinstance(word, AppendedWith) else code
            except RequestError as error:
                code = error.code
        return PartitionProduceResponse(index=index, error_code=code, base_offset=offset)

    def _appended(self, index: int, batch: Batch) -> int:
        producers, log = self.producers[index], self.logs[index]
        found = producers.check(batch.header, from_client=True)
        if found is not None:
            return found.base_offset
        offset = len(log)
        values: list[Any] = [record.value for record in batch.records()]
        log += values
        producers.append(batch.header, Offset(offset), 0)
        return offset

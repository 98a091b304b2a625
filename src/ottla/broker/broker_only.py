"""The APIs that only a broker of the cluster may use, and the responses to others that try it.

Invariant: a connection acts as a broker only after a login with the credential of the cluster
(`Connection.is_broker`), on every listener. Kafka allows this to every client of a listener without
authentication.
"""

from collections.abc import Callable, Mapping
from typing import Final

from ottla.broker.cooperative import CooperativeScheduler
from ottla.errors import ErrorCode
from ottla.protocol import apis
from ottla.protocol.apis import API_OF_KEY
from ottla.protocol.conversation import Request, Response
from ottla.protocol.message import Api, Message, Use
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from ottla.protocol.messages.alter_partition import AlterPartitionResponse
from ottla.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse
from ottla.protocol.messages.controlled_shutdown import ControlledShutdownResponse
from ottla.protocol.messages.envelope import EnvelopeResponse
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from ottla.protocol.messages.stop_replica import StopReplicaResponse
from ottla.protocol.messages.update_metadata import UpdateMetadataResponse
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.transport.connection import Connection, DeferredResponse

BROKER_ONLY: Final = frozenset(api for api in API_OF_KEY.values() if api.use is Use.BROKERS)
"""The APIs that brokers and controllers use among themselves."""

_REFUSED: Final = int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def refuse(
    request: Request, connection: Connection, *, scheduler: CooperativeScheduler
) -> Response | DeferredResponse:
    """Return CLUSTER_AUTHORIZATION_FAILED to a request of BROKER_ONLY."""
    message = request.message
    if isinstance(message, WriteTxnMarkersRequest):
        return DeferredResponse(_refuse_markers(message, scheduler))
    return _REFUSALS[request.api]()


async def _refuse_markers(
    message: WriteTxnMarkersRequest, scheduler: CooperativeScheduler
) -> Response:
    """Return the error for each partition: the response has no other error code."""
    turns = scheduler.new_loop()
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=_REFUSED
                            )
                            async for index in turns.over(topic.partition_indexes)
                        ],
                    )
                    async for topic in turns.over(marker.topics)
                ],
            )
            async for marker in turns.over(message.markers)
        ]
    )


_REFUSALS: Final[Mapping[Api, Callable[[], Message]]] = {
    apis.ALLOCATE_PRODUCER_IDS: lambda: AllocateProducerIdsResponse(
        throttle_time_ms=0, error_code=_REFUSED, producer_id_start=-1, producer_id_len=0
    ),
    apis.ALTER_PARTITION: lambda: AlterPartitionResponse(
        throttle_time_ms=0, error_code=_REFUSED, topics=()
    ),
    apis.ASSIGN_REPLICAS_TO_DIRS: lambda: AssignReplicasToDirsResponse(
        throttle_time_ms=0, error_code=_REFUSED, directories=()
    ),
    apis.CONTROLLED_SHUTDOWN: lambda: ControlledShutdownResponse(
        error_code=_REFUSED, remaining_partitions=()
    ),
    apis.ENVELOPE: lambda: EnvelopeResponse(response_data=None, error_code=_REFUSED),
    apis.LEADER_AND_ISR: lambda: LeaderAndIsrResponse(error_code=_REFUSED),
    apis.STOP_REPLICA: lambda: StopReplicaResponse(error_code=_REFUSED, partition_errors=()),
    apis.UPDATE_METADATA: lambda: UpdateMetadataResponse(error_code=_REFUSED),
}

REFUSABLE: Final = _REFUSALS.keys() | {apis.WRITE_TXN_MARKERS}
"""The APIs that `refuse` knows."""

"""StopReplica: the controller takes replicas away from this broker."""

from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replica_roles import ReplicaRoles
from ottla.controller.control_requests import update_of
from ottla.errors import RequestError
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
)
from ottla.transport.connection import Connection, DeferredResponse


def handle(
    request: Request, connection: Connection, *, roles: ReplicaRoles, metadata_cache: MetadataCache
) -> DeferredResponse:
    """Stop or delete replicas, and answer when this is done."""
    message = request.message
    assert isinstance(message, StopReplicaRequest)
    return DeferredResponse(answer(message, roles, metadata_cache))


async def answer(
    message: StopReplicaRequest, roles: ReplicaRoles, metadata_cache: MetadataCache
) -> Response:
    """Apply a request and return the response."""
    try:
        failures = await roles.apply(update_of(message, metadata_cache.image))
    except RequestError as error:
        return StopReplicaResponse(error_code=int(error.code), partition_errors=())
    return StopReplicaResponse(
        error_code=0,
        partition_errors=[
            StopReplicaPartitionError(
                topic_name=key.topic, partition_index=key.partition, error_code=int(error.code)
            )
            for key, error in failures.items()
        ],
    )

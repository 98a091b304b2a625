"""UpdateMetadata: the controller tells this broker the metadata of the cluster."""

from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replica_roles import ReplicaRoles
from ottla.controller.control_requests import update_of
from ottla.errors import ErrorCode, RequestError
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from ottla.transport.connection import Connection, DeferredResponse


def handle(
    request: Request, connection: Connection, *, roles: ReplicaRoles, metadata_cache: MetadataCache
) -> DeferredResponse:
    """Take over the metadata, and answer when this is done."""
    message = request.message
    assert isinstance(message, UpdateMetadataRequest)
    return DeferredResponse(answer(message, roles, metadata_cache))


async def answer(
    message: UpdateMetadataRequest, roles: ReplicaRoles, metadata_cache: MetadataCache
) -> Response:
    """Apply a request and return the response."""
    try:
        failures = await roles.apply(update_of(message, metadata_cache.image))
    except RequestError as error:
        return UpdateMetadataResponse(error_code=int(error.code))
    # A deleted topic whose files remain: the controller keeps the record of the deletion.
    code = ErrorCode.KAFKA_STORAGE_ERROR if failures else ErrorCode.NONE
    return UpdateMetadataResponse(error_code=int(code))

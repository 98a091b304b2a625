"""LeaderAndIsr: the controller tells this broker which partitions it leads and follows."""

from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replica_roles import ReplicaRoles
from ottla.controller.control_requests import leader_and_isr_response, update_of
from ottla.errors import RequestError
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from ottla.transport.connection import Connection, DeferredResponse


def handle(
    request: Request, connection: Connection, *, roles: ReplicaRoles, metadata_cache: MetadataCache
) -> DeferredResponse:
    """Become leader or follower, and answer when this is done."""
    message = request.message
    assert isinstance(message, LeaderAndIsrRequest)
    return DeferredResponse(answer(message, roles, metadata_cache))


async def answer(
    message: LeaderAndIsrRequest, roles: ReplicaRoles, metadata_cache: MetadataCache
) -> Response:
    """Apply a request and return the response."""
    try:
        failures = await roles.apply(update_of(message, metadata_cache.image))
    except RequestError as error:
        return LeaderAndIsrResponse(error_code=int(error.code), topics=())
    return leader_and_isr_response(message, failures)

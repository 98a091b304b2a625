"""AssignReplicasToDirs: a broker tells the controller that data directories failed or are full."""

from ottla.broker.topics import Topics
from ottla.controller.directory_report import report_of
from ottla.errors import ErrorCode, RequestError
from ottla.ids import BrokerEpoch, BrokerId
from ottla.protocol.conversation import Request
from ottla.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from ottla.transport.connection import Connection, DeferredResponse


def handle(request: Request, connection: Connection, *, topics: Topics) -> DeferredResponse:
    """Move leaderships away from these directories, and answer when that is stored."""
    message = request.message
    assert isinstance(message, AssignReplicasToDirsRequest)
    return DeferredResponse(answer(message, topics))


async def answer(
    message: AssignReplicasToDirsRequest, topics: Topics
) -> AssignReplicasToDirsResponse:
    """Carry out a request and return the response."""
    code = ErrorCode.NONE
    try:
        await topics.in_turn(
            lambda controller: controller.directories_changed(
                BrokerId(message.broker_id),
                BrokerEpoch(message.broker_epoch),
                report_of(message, controller.image),
            )
        )
    except RequestError as error:
        code = error.code
    return AssignReplicasToDirsResponse(throttle_time_ms=0, error_code=int(code), directories=())

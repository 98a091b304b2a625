"""AlterPartition: a leader asks the controller to change the ISRs of its partitions."""

from ottla.broker.topics import Topics
from ottla.errors import RequestError
from ottla.protocol.conversation import Request
from ottla.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ottla.transport.connection import Connection, DeferredResponse


def handle(request: Request, connection: Connection, *, topics: Topics) -> DeferredResponse:
    """Store the ISRs, and answer when they are stored."""
    message = request.message
    assert isinstance(message, AlterPartitionRequest)
    return DeferredResponse(answer(message, topics))


async def answer(message: AlterPartitionRequest, topics: Topics) -> AlterPartitionResponse:
    """Carry out a request and return the response."""
    try:
        return await topics.in_turn(lambda controller: controller.alter_partition(message))
    except RequestError as error:
        return AlterPartitionResponse(throttle_time_ms=0, error_code=int(error.code), topics=())

"""ControlledShutdown: a broker asks the controller to move its leaderships before it stops."""

from ottla.broker.topics import Topics
from ottla.errors import RequestError
from ottla.ids import BrokerEpoch, BrokerId
from ottla.protocol.conversation import Request
from ottla.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from ottla.transport.connection import Connection, DeferredResponse


def handle(request: Request, connection: Connection, *, topics: Topics) -> DeferredResponse:
    """Move the leaderships, and answer with those that remain."""
    message = request.message
    assert isinstance(message, ControlledShutdownRequest)
    return DeferredResponse(answer(message, topics))


async def answer(message: ControlledShutdownRequest, topics: Topics) -> ControlledShutdownResponse:
    """Carry out a request and return the response."""
    try:
        remaining = await topics.in_turn(
            lambda controller: controller.controlled_shutdown(
                BrokerId(message.broker_id), BrokerEpoch(message.broker_epoch)
            )
        )
    except RequestError as error:
        return ControlledShutdownResponse(error_code=int(error.code), remaining_partitions=())
    return ControlledShutdownResponse(
        error_code=0,
        remaining_partitions=[
            RemainingPartition(topic_name=one.topic, partition_index=one.partition)
            for one in remaining
        ],
    )

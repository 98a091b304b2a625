"""InitProducerId: a producer id for an idempotent producer.

A transactional producer is refused with the error code on which every client gives up at once
(docs/decisions/0014-transactions-are-refused.md).
"""

import logging

from ottla.controller.producer_ids import ProducerIds
from ottla.coordination.errors import CoordinationError
from ottla.errors import ErrorCode, StorageFailure
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ottla.transport.connection import Connection, DeferredResponse

_LOG = logging.getLogger(__name__)


def handle(
    request: Request,
    connection: Connection,
    *,
    producer_ids: ProducerIds,
) -> Response | DeferredResponse:
    """Return a new producer id with epoch 0; transactions are not supported yet."""
    message = request.message
    assert isinstance(message, InitProducerIdRequest)
    if message.transactional_id == "" or (message.producer_id < 0) != (message.producer_epoch < 0):
        return _failed(ErrorCode.INVALID_REQUEST)
    if message.transactional_id is not None:
        return _failed(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return DeferredResponse(_give(producer_ids))


async def _give(producer_ids: ProducerIds) -> Response:
    try:
        given = await producer_ids.take()
    except (CoordinationError, StorageFailure) as error:
        _LOG.warning("producer id not assigned", {"reason": str(error)})
        return _failed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # as in Kafka: the client retries
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=0, producer_id=given, producer_epoch=0
    )


def _failed(code: ErrorCode) -> Response:
    return InitProducerIdResponse(throttle_time_ms=0, error_code=int(code), producer_epoch=-1)

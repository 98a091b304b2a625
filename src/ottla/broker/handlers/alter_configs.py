"""AlterConfigs: the settings of a resource are replaced by others."""

from ottla.broker.configs import alter
from ottla.broker.state import BrokerState
from ottla.errors import ErrorCode, RequestError
from ottla.protocol.conversation import Answer, Request
from ottla.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ottla.transport.connection import Connection, Later


def handle(state: BrokerState, request: Request, connection: Connection) -> Answer | Later:
    """Change each resource for itself."""
    message = request.message
    assert isinstance(message, AlterConfigsRequest)
    return Later(_answer(state, message))


async def _answer(state: BrokerState, message: AlterConfigsRequest) -> Answer:
    return AlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            await _alter(state, one, validate_only=message.validate_only)
            for one in message.resources
        ],
    )


async def _alter(
    state: BrokerState, asked: AlterConfigsResource, *, validate_only: bool
) -> AlterConfigsResourceResponse:
    code, text = ErrorCode.NONE, None
    try:
        values = {one.name: one.value for one in asked.configs if one.value is not None}
        if len(values) < len(asked.configs):
            raise RequestError(ErrorCode.INVALID_REQUEST, "a value is missing, or given twice")
        await alter(
            state,
            asked.resource_type,
            asked.resource_name,
            values,
            validate_only=validate_only,
        )
    except RequestError as error:
        code, text = error.code, error.message or error.code.text
    return AlterConfigsResourceResponse(
        error_code=int(code),
        error_message=text,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
    )

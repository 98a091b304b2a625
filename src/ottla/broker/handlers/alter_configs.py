"""AlterConfigs: replace the configs of resources."""

from ottla.broker.configs import TWICE, given_twice, outcome
from ottla.broker.cooperative import CooperativeLoop
from ottla.broker.state import BrokerState
from ottla.errors import ErrorCode
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ottla.transport.connection import Connection, DeferredResponse


def handle(
    state: BrokerState, request: Request, connection: Connection
) -> Response | DeferredResponse:
    """Replace the configs of each resource independently."""
    message = request.message
    assert isinstance(message, AlterConfigsRequest)
    return DeferredResponse(_answer(state, message))


async def _answer(state: BrokerState, message: AlterConfigsRequest) -> Response:
    twice = given_twice((one.resource_type, one.resource_name) for one in message.resources)
    return AlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            _response(one, *TWICE)
            if (one.resource_type, one.resource_name) in twice
            else await _alter(state, one, validate_only=message.validate_only)
            async for one in CooperativeLoop(state).over(message.resources)
        ],
    )


async def _alter(
    state: BrokerState, asked: AlterConfigsResource, *, validate_only: bool
) -> AlterConfigsResourceResponse:
    values = {one.name: one.value for one in asked.configs if one.value is not None}
    if len(values) < len(asked.configs):
        code, text = ErrorCode.INVALID_REQUEST, "a value is missing, or given twice"
    else:
        code, text = await outcome(
            state, asked.resource_type, asked.resource_name, values, validate_only=validate_only
        )
    return _response(asked, code, text)


def _response(
    asked: AlterConfigsResource, code: ErrorCode, text: str | None
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=int(code),
        error_message=text,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
    )

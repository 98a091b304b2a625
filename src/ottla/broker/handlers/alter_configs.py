"""AlterConfigs: replace the configs of resources."""

from collections.abc import Mapping

from ottla.broker.configs import ConfigAdminManager
from ottla.broker.cooperative import CooperativeScheduler
from ottla.errors import ErrorCode, RequestError
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from ottla.transport.connection import Connection, DeferredResponse


def handle(
    request: Request,
    connection: Connection,
    *,
    config_admin: ConfigAdminManager,
    scheduler: CooperativeScheduler,
) -> Response | DeferredResponse:
    """Replace the configs of each resource independently."""
    message = request.message
    assert isinstance(message, AlterConfigsRequest)
    return DeferredResponse(_answer(message, config_admin, scheduler))


async def _answer(
    message: AlterConfigsRequest, config_admin: ConfigAdminManager, scheduler: CooperativeScheduler
) -> Response:
    outcomes = await config_admin.alter_all(
        message.resources, _values, scheduler, validate_only=message.validate_only
    )
    return AlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            AlterConfigsResourceResponse(
                error_code=int(code),
                error_message=text,
                resource_type=asked.resource_type,
                resource_name=asked.resource_name,
            )
            for asked, (code, text) in zip(message.resources, outcomes, strict=True)
        ],
    )


def _values(asked: AlterConfigsResource) -> Mapping[str, str]:
    values = {one.name: one.value for one in asked.configs if one.value is not None}
    if len(values) < len(asked.configs):
        why = "a config has no value or is given twice"
        raise RequestError(ErrorCode.INVALID_REQUEST, why)
    return values

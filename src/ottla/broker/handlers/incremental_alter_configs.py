"""IncrementalAlterConfigs: set, delete, append to or subtract from single configs."""

from ottla.broker.configs import Changes, ConfigAdminManager
from ottla.broker.cooperative import CooperativeScheduler
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.transport.connection import Connection, DeferredResponse


def handle(
    request: Request,
    connection: Connection,
    *,
    config_admin: ConfigAdminManager,
    scheduler: CooperativeScheduler,
) -> Response | DeferredResponse:
    """Change each resource independently."""
    message = request.message
    assert isinstance(message, IncrementalAlterConfigsRequest)
    return DeferredResponse(_answer(message, config_admin, scheduler))


async def _answer(
    message: IncrementalAlterConfigsRequest,
    config_admin: ConfigAdminManager,
    scheduler: CooperativeScheduler,
) -> Response:
    outcomes = await config_admin.alter_all(
        message.resources, _changes, scheduler, validate_only=message.validate_only
    )
    return IncrementalAlterConfigsResponse(
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


def _changes(asked: AlterConfigsResource) -> Changes:
    return [(one.name, one.config_operation, one.value) for one in asked.configs]

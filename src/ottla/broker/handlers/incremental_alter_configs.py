"""IncrementalAlterConfigs: set, delete, append to or subtract from single configs."""

from ottla.broker.configs import TWICE, ConfigAdminManager, given_twice
from ottla.broker.cooperative import CooperativeScheduler
from ottla.controller.propagation import Propagation, Updates
from ottla.errors import ErrorCode
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
    twice = given_twice((one.resource_type, one.resource_name) for one in message.resources)
    propagation = config_admin.propagation()
    responses: list[AlterConfigsResourceResponse] = []
    stored: list[tuple[AlterConfigsResourceResponse, Updates]] = []

    async def alter_all() -> None:
        async for one in scheduler.new_loop().over(message.resources):
            if (one.resource_type, one.resource_name) in twice:
                responses.append(_response(one, *TWICE))
                continue
            response = await _alter(
                config_admin, one, propagation, validate_only=message.validate_only
            )
            responses.append(response)
            if not response.error_code:
                stored.append((response, propagation.late))

    await propagation.carry_out(alter_all())
    for response, updates in stored:
        if (error := await propagation.timed_out("the configs are stored", updates)) is not None:
            response.error_code, response.error_message = int(error.code), error.message
    return IncrementalAlterConfigsResponse(throttle_time_ms=0, responses=responses)


async def _alter(
    config_admin: ConfigAdminManager,
    asked: AlterConfigsResource,
    propagation: Propagation,
    *,
    validate_only: bool,
) -> AlterConfigsResourceResponse:
    changes = [(one.name, one.config_operation, one.value) for one in asked.configs]
    code, text = await config_admin.outcome(
        asked.resource_type, asked.resource_name, changes, propagation, validate_only=validate_only
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

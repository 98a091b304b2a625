"""SaslAuthenticate: one step of a login that SaslHandshake has begun."""

from ottla.access.scram_server import LoginRefused
from ottla.controller.credential import CLUSTER_MECHANISM
from ottla.errors import ErrorCode
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from ottla.transport.connection import Connection


def handle(request: Request, connection: Connection) -> Response:
    """Return the reply of the mechanism; the connection closes after a refusal."""
    message = request.message
    assert isinstance(message, SaslAuthenticateRequest)
    if connection.login is None:
        # Kafka's text, also for a client that has not logged in.
        return _failed(
            ErrorCode.ILLEGAL_SASL_STATE,
            "SaslAuthenticate request received after successful authentication",
        )
    try:
        reply = connection.login.reply(bytes(message.auth_bytes))
    except LoginRefused:
        return _failed(
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            "Authentication failed during authentication due to invalid credentials with SASL "
            f"mechanism {CLUSTER_MECHANISM}",
        )
    return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=reply)


def _failed(code: ErrorCode, message: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=int(code), error_message=message, auth_bytes=b"")

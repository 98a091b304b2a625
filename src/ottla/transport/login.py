"""SASL authentication of a channel: the side that logs in.

Invariant: authentication ends with an authenticated connection, with AuthenticationFailed, which is
not retriable, or with an error that may be retried. Credentials go to the broker and nowhere else.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ottla.access.scram_client import Exchange, LoginFailed
from ottla.errors import ErrorCode
from ottla.protocol.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE
from ottla.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.transport.channel import Channel
from ottla.transport.failures import AuthenticationFailed, NotSupported

_NO_SASL = "this listener does not use SASL: set security.protocol to PLAINTEXT or SSL"


@dataclass(frozen=True, slots=True)
class Login:
    """How a client or a broker authenticates."""

    mechanism: str
    exchange: Callable[[], Awaitable[Exchange]] = field(repr=False)
    """Starts a new exchange of the mechanism."""

    async def on(self, channel: Channel, timeout_s: float) -> float:
        """Authenticate a connection; returns the session lifetime in seconds, 0 for unlimited."""
        exchange = await self.exchange()
        await _agree(channel, self.mechanism, timeout_s)
        lifetime_ms = 0
        try:
            ours = next(exchange)
            while True:
                answer = await channel.ask(
                    SaslAuthenticateRequest(auth_bytes=ours), SaslAuthenticateResponse, timeout_s
                )
                if answer.error_code:
                    raise _refused(channel, self.mechanism, answer)
                lifetime_ms = answer.session_lifetime_ms
                ours = exchange.send(bytes(answer.auth_bytes))
        except StopIteration:
            return lifetime_ms / 1000
        except LoginFailed as failed:
            raise AuthenticationFailed(
                f"{self.mechanism} authentication at {channel.address} failed: {failed}"
            ) from None
        finally:
            exchange.close()


@dataclass(frozen=True, slots=True)
class BrokerLogin:
    """The login of a broker at another broker, which then serves it the APIs of brokers.

    `await login(channel)` raises AuthenticationFailed if the other end refuses the credential or
    does not have it, and an error that may be retried if the connection breaks.
    """

    login: Login
    software: tuple[str, str]  # name and version, for ApiVersions
    timeout_s: float

    async def __call__(self, channel: Channel) -> None:
        """Log in on a channel that has learned the versions of the other end."""
        await self.login.on(channel, self.timeout_s)
        await channel.greet(self.software, self.timeout_s)


async def _agree(channel: Channel, mechanism: str, timeout_s: float) -> None:
    """Send SaslHandshake with the mechanism."""
    try:
        version = channel.version(SASL_HANDSHAKE)
        channel.version(SASL_AUTHENTICATE)
        if version < 1:
            raise NotSupported(
                f"the broker at {channel.address} is older than Kafka 1.0: its SASL "
                "authentication is not supported"
            )
    except NotSupported as error:
        message = f"SASL authentication at {channel.address} failed: {error.message}"
        raise AuthenticationFailed(message, _NO_SASL, error.code) from None
    answer = await channel.ask(
        SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, timeout_s
    )
    code = ErrorCode.of(answer.error_code)
    if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(sorted(answer.mechanisms))
        raise AuthenticationFailed(
            f"{channel.address} does not support the SASL mechanism {mechanism}",
            f"set sasl.mechanism to one of the supported mechanisms: {offered}",
            code,
        )
    if code is ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationFailed(
            f"SASL authentication at {channel.address} failed", _NO_SASL, code
        )
    if code is not ErrorCode.NONE:
        raise AuthenticationFailed(
            f"SASL authentication at {channel.address} failed", code.text, code
        )


def _refused(
    channel: Channel, mechanism: str, answer: SaslAuthenticateResponse
) -> AuthenticationFailed:
    told = f" ({answer.error_message})" if answer.error_message else ""
    hint = (
        "check that the token is valid for this broker"
        if mechanism == "OAUTHBEARER"
        else "check the user name and the password, and that the user exists for this mechanism"
    )
    return AuthenticationFailed(
        f"{channel.address} rejected the {mechanism} authentication{told}",
        hint,
        ErrorCode.of(answer.error_code),
    )

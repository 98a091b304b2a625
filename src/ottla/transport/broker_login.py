"""The login of a broker at another broker of its cluster."""

from dataclasses import dataclass

from ottla.transport.channel import Channel
from ottla.transport.login import Login


@dataclass(frozen=True, slots=True)
class BrokerLogin:
    """Logs a channel in, and learns the APIs that are served only to brokers.

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

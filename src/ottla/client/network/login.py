"""How clients log in: with a password or with a token."""

from collections.abc import Callable

from ottla.access.mechanisms import oauthbearer, plain
from ottla.access.scram import Exchange, scram
from ottla.client.network.tokens import Tokens
from ottla.settings.config_types import Secret
from ottla.settings.credentials import Credentials
from ottla.transport.login import Login


def login_with_password(
    mechanism: str, credentials: Credentials, nonce: Callable[[], str]
) -> Login:
    """Authenticate with user name and password."""

    async def exchange() -> Exchange:
        if mechanism == "PLAIN":
            return plain(*credentials)
        return scram(mechanism, *credentials, nonce())

    return Login(mechanism, exchange)


def login_with_token(tokens: Tokens) -> Login:
    """Authenticate with OAUTHBEARER."""

    async def exchange() -> Exchange:
        token = await tokens.current()
        return oauthbearer(Secret(token.text), token.extensions)

    return Login("OAUTHBEARER", exchange)

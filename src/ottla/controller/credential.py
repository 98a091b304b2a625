"""The credential with which the brokers of a cluster log in to each other.

The first broker generates it and stores it in coordination. Whoever can read that node can act as a
broker, so access to coordination is what makes a process a member of the cluster.

Invariant: the credential is created once and never replaced, also if several brokers start at the
same time. No log, error message or repr contains it.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ottla.access.scram_client import Exchange, scram
from ottla.access.scram_server import SALT_BYTES, ScramServer, ScramUsers, ScramVerifier
from ottla.cluster.znodes import CREDENTIAL, format_credential, parse_credential
from ottla.coordination.errors import NodeExists, NoNode
from ottla.coordination.session import Session
from ottla.settings.config_types import Secret
from ottla.settings.credentials import Credentials
from ottla.transport.login import Login

CLUSTER_MECHANISM: Final = "SCRAM-SHA-256"
CLUSTER_USER: Final = "ottla-broker"

_PASSWORD_BYTES: Final = 32
_NONCE_BYTES: Final = 24

RandomBytes = Callable[[int], bytes]
"""Returns that many bytes that nobody can predict."""


class ClusterCredential:
    """The credential of a cluster: logs this broker in, and checks the logins of others."""

    __slots__ = ("_random_bytes", "_users", "credentials")

    def __init__(self, password: Secret, random_bytes: RandomBytes) -> None:
        """Derive what checks logins, once; this takes about a millisecond."""
        self.credentials: Final = Credentials(CLUSTER_USER, password)
        self._random_bytes = random_bytes
        verifier = ScramVerifier.of(CLUSTER_MECHANISM, password, random_bytes(SALT_BYTES))
        self._users = ScramUsers(CLUSTER_MECHANISM, {CLUSTER_USER: verifier}, random_bytes(32))

    def __repr__(self) -> str:
        return f"{type(self).__name__}([hidden])"

    def nonce(self) -> str:
        """Return a new nonce for a login."""
        return urlsafe_b64encode(self._random_bytes(_NONCE_BYTES)).decode("ascii")

    def login(self) -> Login:
        """Return how this broker logs in to another one."""

        async def exchange() -> Exchange:
            return scram(CLUSTER_MECHANISM, *self.credentials, self.nonce())

        return Login(CLUSTER_MECHANISM, exchange)

    def begin_login(self) -> ScramServer:
        """Begin to check the login of another broker."""
        return self._users.begin(self.nonce())


async def cluster_credential(session: Session, random_bytes: RandomBytes) -> ClusterCredential:
    """Return the credential of the cluster; the first broker creates it."""
    try:
        found = await session.get(CREDENTIAL)
    except NoNode:
        password = urlsafe_b64encode(random_bytes(_PASSWORD_BYTES)).decode("ascii")
        with suppress(NodeExists):  # another broker was faster: its credential counts
            await session.create(CREDENTIAL, format_credential(password))
        found = await session.get(CREDENTIAL)
    return ClusterCredential(Secret(parse_credential(found.data)), random_bytes)

"""SaslHandshake: begins a login as a broker of the cluster.

A listener without SASL accepts no other login. A client that tries one gets the response that Kafka
sends on such a listener, and can continue without a login.
"""

from ottla.controller.credential import CLUSTER_MECHANISM, ClusterCredential
from ottla.errors import ErrorCode
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.transport.connection import Connection


def handle(
    request: Request, connection: Connection, *, cluster_credential: ClusterCredential
) -> Response:
    """Begin a login with the mechanism of the cluster; a connection logs in once.

    Version 0 would be followed by messages without a header, which only old clients send.
    """
    message = request.message
    assert isinstance(message, SaslHandshakeRequest)
    if message.mechanism != CLUSTER_MECHANISM or request.version == 0 or connection.is_broker:
        return SaslHandshakeResponse(error_code=int(ErrorCode.ILLEGAL_SASL_STATE), mechanisms=[])
    connection.begin_login(cluster_credential.begin_login())
    return SaslHandshakeResponse(error_code=0, mechanisms=[CLUSTER_MECHANISM])

"""Errors of connections, with messages that say how to fix them.

A retriable error may disappear on a new connection. AuthenticationFailed is not retriable: the
other end would refuse again.

Invariant: no message contains a password, a key or a token.
"""

import socket
import ssl
from typing import Final

from ottla.errors import ErrorCode, RequestError

_OTHER_HOST: Final = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH
_OUT_OF_DATE: Final = frozenset({9, 10})  # X509_V_ERR_CERT_NOT_YET_VALID, _HAS_EXPIRED
_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST"})
_DEV_PORT: Final = "9092"  # of `ottla dev` without options
_ENDED: Final = frozenset({"UNEXPECTED_EOF_WHILE_READING", None})

SPEAKS_TLS: Final = "it requires TLS: set security.protocol to SSL or SASL_SSL"
NO_TLS: Final = "if this port does not use TLS, set security.protocol to PLAINTEXT"
SERVERS: Final = "check the host name in bootstrap.servers"
WANTS_LOGIN: Final = "if this port requires SASL, set security.protocol"
WANTS_TLS: Final = "if this port requires TLS, set security.protocol"
SEE_LOG: Final = "its log has the reason, for example too many connections"


class Disconnected(RequestError):
    """The connection failed or was closed; a request in flight may have been executed."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, f"{message}: {hint}" if hint else message)
        self._hint = hint

    @property
    def hint(self) -> str:
        """How to fix it."""
        return self._hint or self.code.text


class NotRunning(Disconnected):
    """The client is not started, is closed, or runs in another event loop: do not retry."""

    @property
    def retriable(self) -> bool:
        """False, whatever the error code says."""
        return False


class TimedOut(RequestError):
    """No response arrived in time; the request may have been executed, or may still be."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, f"{message}: {hint}" if hint else message)
        self._hint = hint

    @property
    def hint(self) -> str:
        """How to fix it."""
        return self._hint or self.code.text


class NotSupported(RequestError):
    """The broker does not offer an API, or no version of it that this client supports."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


class AuthenticationFailed(RequestError):
    """One end does not accept the identity of the other: do not retry."""

    def __init__(
        self,
        message: str,
        hint: str | None = None,
        code: ErrorCode = ErrorCode.SASL_AUTHENTICATION_FAILED,
    ) -> None:
        super().__init__(code, f"{message}: {hint}" if hint else message)
        self._hint = hint

    @property
    def retriable(self) -> bool:
        """False, whatever the error code says."""
        return False

    @property
    def hint(self) -> str:
        """How to fix it."""
        return self._hint or self.code.text


def not_connected(address: str, host: str, error: OSError) -> RequestError:
    """Return the error for a connection that could not be opened."""
    if isinstance(error, ssl.SSLError):
        return tls_failed(address, error)
    if isinstance(error, ConnectionRefusedError):
        hint = "check that the broker is running"
        if is_loopback(host):
            port = address.rpartition(":")[2]
            option = "" if port == _DEV_PORT else f" --port {port}"
            hint += f"; `ottla dev{option}` starts one on 127.0.0.1:{port}"
        return Disconnected(f"connection refused by {address}", hint)
    unknown = isinstance(error, socket.gaierror)
    return Disconnected(
        f"cannot connect to {address}: {error.strerror or error}", SERVERS if unknown else None
    )


def is_loopback(host: str) -> bool:
    """Whether a host name or address, without brackets, means the local machine."""
    from ipaddress import ip_address  # on use, because an import takes time at every start

    if host.lower() == "localhost" or host.lower().endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def tls_failed(address: str, error: ssl.SSLError) -> RequestError:
    """Return the error for a failed TLS handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _certificate_refused(address, error)
    reason: str | None = error.reason
    if reason in _ENDED or isinstance(error, ssl.SSLEOFError):
        return Disconnected(f"{address} closed the connection in the TLS handshake", NO_TLS)
    if reason in _NOT_TLS:
        return _refused(f"{address} does not use TLS", NO_TLS)
    spelled = reason.lower().replace("_", " ")
    if ("ALERT" in reason and "PROTOCOL_VERSION" in reason) or reason == "UNSUPPORTED_PROTOCOL":
        return _refused(
            f"{address} and this client have no TLS version in common",
            "compare ssl.enabled.protocols on both sides",
        )
    if "ALERT" in reason:
        return _refused(
            f"{address} rejected the TLS handshake ({spelled})",
            "if it requires a client certificate, set ssl.keystore.location; see the broker's log",
        )
    return _refused(f"TLS handshake with {address} failed ({spelled})", "see the broker's log")


def _certificate_refused(address: str, error: ssl.SSLCertVerificationError) -> RequestError:
    why = error.verify_message.removesuffix(".")
    if error.verify_code in _OTHER_HOST:
        return _refused(
            f"the certificate of {address} is for another host ({why})",
            "connect by a name in the certificate, or issue one for this name; in tests, an empty "
            "ssl.endpoint.identification.algorithm disables the check",
        )
    if error.verify_code in _OUT_OF_DATE:
        return _refused(
            f"the certificate of {address} is not valid now ({why})",
            "renew the certificate, and check this machine's clock",
        )
    return _refused(
        f"the certificate of {address} is not trusted ({why})",
        "set ssl.truststore.location to the certificate of the authority that signed it",
    )


def _refused(message: str, hint: str) -> AuthenticationFailed:
    # Kafka has no error code for failures before the first request.
    return AuthenticationFailed(message, hint, ErrorCode.NETWORK_EXCEPTION)


def not_kafka(address: str, first: bytes) -> RequestError | None:
    """Return the error for a peer whose first bytes are not a Kafka response, else None.

    A TLS server answers plaintext with an alert, which starts with 0x15 0x03.
    """
    if first[:2] in (b"\x15\x03", b"\x16\x03"):
        return _refused(f"{address} does not accept plaintext", SPEAKS_TLS)
    return None

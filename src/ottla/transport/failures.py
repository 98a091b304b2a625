"""What can go wrong with a connection, in words that say what to do.

Invariant: an error that is retriable may pass when the connection is made again. One that is not
is AuthenticationFailed: an end that does not accept the other says the same again. No message
holds a password, a key or a token.
"""

import socket
import ssl
from typing import Final

from ottla.errors import ErrorCode, RequestError

_OTHER_HOST: Final = frozenset({62, 64})  # X509_V_ERR_HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH
_OUT_OF_DATE: Final = frozenset({9, 10})  # X509_V_ERR_CERT_NOT_YET_VALID, _HAS_EXPIRED
_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "HTTP_REQUEST"})
_ENDED: Final = frozenset({"UNEXPECTED_EOF_WHILE_READING", None})

SPEAKS_TLS: Final = "it speaks TLS: set security.protocol to SSL or SASL_SSL"
NO_TLS: Final = "does this port speak TLS? If not, set security.protocol to PLAINTEXT"
SERVERS: Final = "look at the name in bootstrap.servers"
WANTS_LOGIN: Final = "does this port want a login, or TLS? See security.protocol"


class Disconnected(RequestError):
    """The connection could not be made or has ended; what was asked may have been done."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, f"{message}: {hint}" if hint else message)
        self._hint = hint

    @property
    def hint(self) -> str:
        """What to do."""
        return self._hint or self.code.text


class NotRunning(Disconnected):
    """The client was not started, has ended, or runs elsewhere: to try again does not help."""

    @property
    def retriable(self) -> bool:
        """Never, whatever the code says."""
        return False


class TimedOut(RequestError):
    """There was no answer in time; what was asked may have been done, or may be done yet."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, f"{message}: {hint}" if hint else message)
        self._hint = hint

    @property
    def hint(self) -> str:
        """What to do."""
        return self._hint or self.code.text


class NotSupported(RequestError):
    """The broker does not offer an API, or no version of it that we speak."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


class AuthenticationFailed(RequestError):
    """One end does not accept who the other one is: to try again does not help."""

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
        """Never, whatever the code says."""
        return False

    @property
    def hint(self) -> str:
        """What to do."""
        return self._hint or self.code.text


def not_connected(address: str, error: OSError) -> RequestError:
    """What to say of a connection that could not be made, with what to do."""
    if isinstance(error, ssl.SSLError):
        return tls_failed(address, error)
    if isinstance(error, ConnectionRefusedError):
        return Disconnected(
            f"connection refused at {address}",
            "is the broker running? `ottla dev` starts one on 127.0.0.1:9092",
        )
    unknown = isinstance(error, socket.gaierror)
    return Disconnected(
        f"no connection to {address}: {error.strerror or error}", SERVERS if unknown else None
    )


def tls_failed(address: str, error: ssl.SSLError) -> RequestError:
    """What to say of a TLS connection that one of its ends refused."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _certificate_refused(address, error)
    reason: str | None = error.reason
    if reason in _ENDED or isinstance(error, ssl.SSLEOFError):
        return Disconnected(f"{address} ended the TLS connection", NO_TLS)
    if reason in _NOT_TLS:
        return _refused(f"{address} does not speak TLS", NO_TLS)
    spelled = reason.lower().replace("_", " ")
    if ("ALERT" in reason and "PROTOCOL_VERSION" in reason) or reason == "UNSUPPORTED_PROTOCOL":
        return _refused(
            f"{address} and this client have no version of TLS in common",
            "see ssl.enabled.protocols on both sides",
        )
    if "ALERT" in reason:
        return _refused(
            f"{address} did not accept our end of the TLS connection ({spelled})",
            "does it want a client's certificate, or one of another authority? "
            "Give it in ssl.keystore.location; its log tells more",
        )
    return _refused(f"no TLS connection to {address} ({spelled})", "the broker's log tells more")


def _certificate_refused(address: str, error: ssl.SSLCertVerificationError) -> RequestError:
    why = error.verify_message.removesuffix(".")
    if error.verify_code in _OTHER_HOST:
        return _refused(
            f"the certificate of {address} is another host's ({why})",
            "connect by a name that is in the certificate, or have one made with this name; an "
            "empty ssl.endpoint.identification.algorithm does not look at it, which is for tests",
        )
    if error.verify_code in _OUT_OF_DATE:
        return _refused(
            f"the certificate of {address} is not valid now ({why})",
            "have it renewed, and look at this machine's clock",
        )
    return _refused(
        f"the certificate of {address} is not trusted ({why})",
        "give the certificate of the authority that signed it in ssl.truststore.location",
    )


def _refused(message: str, hint: str) -> AuthenticationFailed:
    # Kafka has no code for what happens before the first request.
    return AuthenticationFailed(message, hint, ErrorCode.NETWORK_EXCEPTION)


def not_kafka(address: str, first: bytes) -> RequestError | None:
    """What to say of one who answers the first request with something else; None if it may not be.

    TLS answers what it does not understand with an alert, whose first bytes are 0x15 and 0x03.
    """
    if first[:2] in (b"\x15\x03", b"\x16\x03"):
        return _refused(f"{address} does not answer in the clear", SPEAKS_TLS)
    return None

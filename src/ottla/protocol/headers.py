"""Hand-written codecs of request and response headers.

A request header can be read without knowing the API; only the tagged fields at its end depend on
the API. The client id has a two-byte length in every version (KIP-511).
"""

from struct import Struct as Layout
from typing import Final, NamedTuple

from ottla.errors import ProtocolViolation
from ottla.protocol.primitives import Buffer, skip_tags

CLIENT_ID_BYTES_MAX: Final = 0x7FFF
HEADER_TAGS_MAX: Final = 1000

_REQUEST: Final = Layout(">hhih")
REQUEST_START: Final = Layout(">hhi")  # API key, version and correlation id
_LENGTH: Final = Layout(">h")
_RESPONSE: Final = Layout(">i")


class RequestHeader(NamedTuple):
    """The header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def read_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Return the header without tagged fields, and the position after it."""
    if len(frame) < _REQUEST.size:
        raise ProtocolViolation(f"request of {len(frame)} bytes is too short for a header")
    api_key, api_version, correlation_id, length = _REQUEST.unpack_from(frame)
    position = _REQUEST.size
    client_id = None
    if length >= 0:
        stop = position + length
        if stop > len(frame):
            raise ProtocolViolation("client id ends after the end of the request")
        try:
            client_id = str(frame[position:stop], "utf-8")
        except UnicodeDecodeError as error:
            raise ProtocolViolation(f"client id: {error.reason}") from None
        position = stop
    elif length != -1:
        raise ProtocolViolation(f"client id has invalid length {length}")
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def write_request_header(header: RequestHeader, header_version: int) -> bytes:
    """Encode a request header of version 1 or 2."""
    fixed = REQUEST_START.pack(header.api_key, header.api_version, header.correlation_id)
    return fixed + request_header_end(header.client_id, header_version)


def request_header_end(client_id: str | None, header_version: int) -> bytes:
    """Encode what follows the correlation id of a request header."""
    raw = b"" if client_id is None else client_id.encode()
    assert len(raw) <= CLIENT_ID_BYTES_MAX
    length = -1 if client_id is None else len(raw)
    return _LENGTH.pack(length) + raw + (b"\0" if header_version >= 2 else b"")


def read_response_header(frame: Buffer) -> int:
    """Return the correlation id, which identifies the request."""
    if len(frame) < _RESPONSE.size:
        raise ProtocolViolation(f"response of {len(frame)} bytes is too short for a header")
    return _RESPONSE.unpack_from(frame)[0]


def response_body_position(frame: Buffer, header_version: int) -> int:
    """Return the position of the body of a response."""
    return header_tags_end(frame, _RESPONSE.size) if header_version >= 1 else _RESPONSE.size


def write_response_header(correlation_id: int, header_version: int) -> bytes:
    """Encode a response header of version 0 or 1."""
    return _RESPONSE.pack(correlation_id) + (b"\0" if header_version >= 1 else b"")


def header_tags_end(frame: Buffer, position: int) -> int:
    """Return the position after the tagged fields of a header, which are skipped."""
    try:
        count = frame[position]
        if count == 0:
            return position + 1
        return skip_tags(frame, position + 1, count, HEADER_TAGS_MAX)[0]
    except IndexError:
        raise ProtocolViolation("truncated header") from None

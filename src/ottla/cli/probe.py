"""Probes whether a broker responds at the bootstrap servers.

Invariant: it sends only ApiVersions, which every broker answers; with TLS it only connects.
Something that is not a broker is reported at once. A slow broker is not a failure: the client
waits, and the user is told.
"""

import asyncio
import struct
import sys
from collections.abc import Mapping
from typing import Final

from ottla.cli.escapes import printable
from ottla.client.network.config import DEFAULT_PORT, parse_address
from ottla.settings.connection import BOOTSTRAP_SERVERS
from ottla.settings.security import SECURITY_PROTOCOL
from ottla.transport.failures import is_loopback

REACH_S: Final = 5.0
"""Timeout of a connection attempt."""

QUIET_S: Final = 2.0
"""Time without a response after which the user is told."""

_CORRELATION: Final = 0x6F74746C
_QUESTION: Final = struct.pack(">ihhih5s", 15, 18, 0, _CORRELATION, 5, b"ottla")
"""ApiVersions in version 0, with a client id."""

_HEAD: Final = struct.Struct(">ii")
_ANSWER_MAX: Final = 1 << 20

_WHO: Final = "check that it is a Kafka broker; if the port requires TLS, set security.protocol"


async def probe(
    settings: Mapping[str, str], timeout_s: float = REACH_S, *, tells: bool = True
) -> str | None:
    """Return None if an address may be a broker's, else why none is.

    With `tells`, an address that does not respond is named on stderr. Raises InvalidSettings.
    """
    in_clear = "SSL" not in settings.get(SECURITY_PROTOCOL.name, "").upper().split("_")
    whys: list[str] = []
    is_local = True
    free_port: int | None = None  # the first that refused the connection
    for text in settings.get(BOOTSTRAP_SERVERS.name, "").split(","):
        where = parse_address(text)
        is_local = is_local and is_loopback(where.host)
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await asyncio.open_connection(where.host, where.port)
        except TimeoutError:
            whys.append(f"{where}: no response")
        except ConnectionRefusedError:
            whys.append(f"{where}: connection refused")
            free_port = free_port or where.port
        except OSError as error:
            whys.append(f"{where}: {error.strerror or error}")
        else:
            try:
                why = await _met(reader, writer) if in_clear else None
            except TimeoutError:
                why = None
                if tells:
                    _tell(str(where))
            finally:
                writer.close()
            if why is None:
                return None
            whys.append(f"{where}: {why}")
    why_not = f"no broker found: {'; '.join(whys)}"
    option = "" if free_port in (None, DEFAULT_PORT) else f" --port {free_port}"
    return f"{why_not}. `ottla dev{option}` starts one on this machine" if is_local else why_not


async def _met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str | None:
    """Return why the peer is not a broker; raises TimeoutError without a response.

    A peer that closes may be a broker that is stopping or full: the client tries again.
    """
    try:
        async with asyncio.timeout(QUIET_S):
            writer.write(_QUESTION)
            size, correlation = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    if correlation == _CORRELATION and 4 < size <= _ANSWER_MAX:
        return None
    return f"invalid response: {_WHO}"


def _tell(address: str) -> None:
    print(
        f"{printable(address)} accepts connections but has not responded yet: waiting. Check "
        "that it is a Kafka broker",
        file=sys.stderr,
        flush=True,
    )

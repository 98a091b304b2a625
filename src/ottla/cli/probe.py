"""Whether a broker answers where a cluster is said to be.

Invariant: it asks which versions are spoken, which any broker answers to anybody, and nothing else;
where TLS is spoken it only looks whether connections are taken. What is no broker is told at once.
One that is slow to answer is no failure: the client has patience, and whoever waits is told.
"""

import asyncio
import struct
import sys
from collections.abc import Mapping
from typing import Final

from ottla.cli.escapes import printable
from ottla.client.options.connection import place
from ottla.settings.connection import BOOTSTRAP_SERVERS
from ottla.settings.security import SECURITY_PROTOCOL

REACH_S: Final = 5.0
"""So long an address may take to take a connection."""

QUIET_S: Final = 2.0
"""So long a broker may take to answer before that is told."""

_CORRELATION: Final = 0x6F74746C
_QUESTION: Final = struct.pack(">ihhih5s", 15, 18, 0, _CORRELATION, 5, b"ottla")
"""ApiVersions in its oldest version; with a name, as every client has one."""

_HEAD: Final = struct.Struct(">ii")
_ANSWER_MAX: Final = 1 << 20

_WHO: Final = "check that it is a Kafka broker; if the port requires TLS, set security.protocol"


async def probe(
    settings: Mapping[str, str], timeout_s: float = REACH_S, *, tells: bool = True
) -> str | None:
    """None when one of the addresses may be a broker's; else why none is.

    With `tells` one that does not answer at once is named on stderr. InvalidSettings for one that
    is no address.
    """
    in_clear = "SSL" not in settings.get(SECURITY_PROTOCOL.name, "").upper().split("_")
    whys: list[str] = []
    for text in settings.get(BOOTSTRAP_SERVERS.name, "").split(","):
        where = place(text)
        try:
            async with asyncio.timeout(timeout_s):
                reader, writer = await asyncio.open_connection(where.host, where.port)
        except TimeoutError:
            whys.append(f"{text.strip()}: no response")
        except ConnectionRefusedError:
            whys.append(f"{text.strip()}: connection refused")
        except OSError as error:
            whys.append(f"{text.strip()}: {error}")
        else:
            try:
                why = await _met(reader, writer) if in_clear else None
            except TimeoutError:
                why = None
                if tells:
                    _tell(text.strip())
            finally:
                writer.close()
            if why is None:
                return None
            whys.append(f"{text.strip()}: {why}")
    return f"no broker found: {'; '.join(whys)}. `ottla dev` starts one on this machine"


async def _met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str | None:
    """Why it is no broker who took the connection; TimeoutError when it does not say.

    One that hangs up may be a broker that is stopping, or has no room: the client tries again.
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

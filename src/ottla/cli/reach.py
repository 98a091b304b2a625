"""Whether somebody listens where a cluster is said to be.

Invariant: it sends nothing, and takes no longer than it may.
"""

import asyncio
from typing import Final

from ottla.client.options.connection import place

REACH_S: Final = 5.0
"""So long an address may take to answer."""


async def reach(servers: str, timeout_s: float = REACH_S) -> str | None:
    """None when one of the addresses takes connections; else why none does.

    InvalidSettings for one that is no address.
    """
    whys: list[str] = []
    for text in servers.split(","):
        where = place(text)
        try:
            async with asyncio.timeout(timeout_s):
                _, writer = await asyncio.open_connection(where.host, where.port)
        except TimeoutError:
            whys.append(f"{text.strip()} does not answer")
        except OSError as error:
            why = (
                "nobody listens there" if isinstance(error, ConnectionRefusedError) else str(error)
            )
            whys.append(f"{text.strip()}: {why}")
        else:
            writer.close()
            return None
    return f"no broker: {'; '.join(whys)}. `ottla dev` starts one on this machine"

"""Facts about a cluster: whether its advertised addresses can be reached.

Invariant: each address is tried from here like a client would, for a limited time, and only asked
who it is.
"""

import asyncio
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from ottla.cli.cluster.admin import ClusterAdmin
from ottla.cli.doctor.facts import AddressFacts, BrokerIdentity, ClusterFacts
from ottla.cli.probe import probe
from ottla.client.admin.cluster import BrokerDescription, ClusterDescription
from ottla.errors import OttlaError
from ottla.metrics import BROKER_INFO
from ottla.settings.connection import BOOTSTRAP_SERVERS

PATIENCE_S: Final = 5.0

PAGE_BYTES: Final = 4096
"""How much of a metrics page is read."""

_INFO: Final = re.compile(
    rb'^%s\{node="(?P<node>[0-9]+)",cluster="(?P<cluster>[!-~]*?)"' % BROKER_INFO.name.encode(),
    re.MULTILINE,
)


async def cluster(settings: Mapping[str, str], *, chosen: bool) -> ClusterFacts:
    """Return facts about the cluster of a client's settings."""
    servers = settings[BOOTSTRAP_SERVERS.name]
    if why_not := await probe(settings, PATIENCE_S, tells=False):
        return ClusterFacts(servers, chosen, why_not)
    try:
        found = await asked(settings)
    except OttlaError as error:
        return ClusterFacts(servers, chosen, str(error))
    tried = (_address(one, found.id, settings) for one in found.brokers)
    return ClusterFacts(servers, chosen, None, await asyncio.gather(*tried), found.id)


async def is_here(settings: Mapping[str, str]) -> bool:
    """Whether one of the bootstrap servers is on this machine."""
    from ottla.client.network.config import parse_address

    for one in settings[BOOTSTRAP_SERVERS.name].split(","):
        with suppress(OSError, UnicodeError):  # the host is unknown
            found = await asyncio.get_running_loop().getaddrinfo(
                parse_address(one).host, None, type=socket.SOCK_STREAM
            )
            if any(_is_own(family, address) for family, *_, address in found):
                return True
    return False


def _is_own(family: int, address: tuple[Any, ...]) -> bool:
    """Whether an address is one of this machine's: only those can be bound."""
    with suppress(OSError), socket.socket(family) as tried:
        tried.bind(address)
        return True
    return False


async def asked(settings: Mapping[str, str]) -> ClusterDescription:
    """Return what the cluster reports about itself."""
    async with ClusterAdmin(settings) as admin:
        return await admin.describe_cluster(timeout_s=PATIENCE_S)


async def _address(
    broker: BrokerDescription, cluster_id: str | None, settings: Mapping[str, str]
) -> AddressFacts:
    host = f"[{broker.host}]" if ":" in broker.host else broker.host
    where = f"{host}:{broker.port}"
    if why := await unreached(where):
        return AddressFacts(broker.id, broker.host, broker.port, why)
    try:
        found = await asked({**settings, BOOTSTRAP_SERVERS.name: where})
    except OttlaError as error:
        return AddressFacts(broker.id, broker.host, broker.port, str(error))
    is_other = cluster_id is not None and found.id not in (None, cluster_id)
    return AddressFacts(broker.id, broker.host, broker.port, is_other=is_other)


async def unreached(where: str) -> str | None:
    """Return why an address does not accept connections; None if it does."""
    from ottla.client.network.config import parse_address

    spot = parse_address(where)
    try:
        async with asyncio.timeout(PATIENCE_S):
            _, writer = await asyncio.open_connection(spot.host, spot.port)
    except TimeoutError:
        return "no response"
    except ConnectionRefusedError:
        return "connection refused"
    except OSError as error:
        return f"cannot connect: {error.strerror or error}"
    writer.close()
    return None


async def broker_at(port: int) -> BrokerIdentity | None:
    """Return the broker that responds on a local port; None if none does."""
    from ottla import __version__
    from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
    from ottla.transport.channel import open_channel
    from ottla.transport.network import TcpNetwork

    try:
        channel = await open_channel(
            TcpNetwork(),
            "127.0.0.1",
            port,
            client_id="ottla",
            software=("ottla", __version__),
            setup_timeout_s=PATIENCE_S,
            request_timeout_s=PATIENCE_S,
            ended=lambda: None,
        )
    except OttlaError:
        return None
    try:
        found = await channel.ask(MetadataRequest(topics=[]), MetadataResponse, PATIENCE_S)
    except OttlaError:
        return BrokerIdentity()  # it requires authentication
    finally:
        channel.close()
    # A broker does not report its own id, so its port has to be that of one broker only.
    ids = [one.node_id for one in found.brokers if one.port == port]
    return BrokerIdentity(found.cluster_id, ids[0] if len(ids) == 1 else None)


async def metrics_page_at(port: int) -> BrokerIdentity | None:
    """Return the broker whose metrics page is on a local port; None if there is no such page."""
    page = b""
    try:
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
            # The first metric identifies the broker; the rest of the page can be long.
            while len(page) < PAGE_BYTES and (block := await reader.read(PAGE_BYTES)):
                page += block
            writer.close()
    except (TimeoutError, OSError):
        return None
    found = _INFO.search(page)
    return None if found is None else BrokerIdentity(found["cluster"].decode(), int(found["node"]))

"""Facts about a cluster: whether its advertised addresses can be reached.

Invariant: each address is tried from here like a client would, for a limited time, and only asked
who it is.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from ottla.cli.cluster.admin import ClusterAdmin
from ottla.cli.doctor.facts import AddressFacts, ClusterFacts
from ottla.cli.probe import probe
from ottla.client.admin.cluster import BrokerDescription, ClusterDescription
from ottla.errors import OttlaError
from ottla.settings.connection import BOOTSTRAP_SERVERS

PATIENCE_S: Final = 5.0


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
    return ClusterFacts(servers, chosen, None, await asyncio.gather(*tried))


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


async def is_broker(port: int) -> bool:
    """Whether a broker responds on a local port."""
    from ottla import __version__
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
        return False
    channel.close()
    return True


async def is_metrics_page(port: int) -> bool:
    """Whether a broker's metrics page is on a local port."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /healthz HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
            told = await reader.read(64)
            writer.close()
    except (TimeoutError, OSError):
        return False
    return told.startswith((b"HTTP/1.0 200", b"HTTP/1.0 503", b"HTTP/1.1 200", b"HTTP/1.1 503"))

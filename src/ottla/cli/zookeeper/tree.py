"""Reads the nodes of a ZooKeeper ensemble, for `ottla zookeeper` and `zookeeper-shell`.

Invariant: nothing is changed, and the path of zookeeper.connect is not created. The password of a
cluster is never returned.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from ottla.cluster.znodes import CREDENTIAL
from ottla.coordination.kazoo_thread import KazooStat
from ottla.coordination.zookeeper import ZooKeeper, ZooKeeperSession
from ottla.errors import OttlaError

CONNECTION_TIMEOUT_MS: Final = 10_000


class SecretNode(OttlaError):
    """The node has a secret that no tool prints."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: the password of the cluster is not printed")


class Tree:
    """The nodes below the path of zookeeper.connect."""

    def __init__(self, session: ZooKeeperSession, root: str) -> None:
        self._session = session
        self._root = root

    async def children(self, path: str) -> list[str]:
        """Return the names of a node's children, sorted. Raises NoNode."""
        return await self._session.children(path)

    async def data(self, path: str) -> bytes:
        """Return the data of a node. Raises NoNode, or SecretNode."""
        node = await self._session.get(path)
        # A cluster can be at any path, and the path of a node can be given with or without it.
        if f"{self._root}{path}".endswith(CREDENTIAL):
            raise SecretNode(path)
        return node.data

    async def stat(self, path: str) -> KazooStat:
        """Return the metadata of a node. Raises NoNode."""
        return await self._session.details(path)

    async def descendants(self, path: str) -> list[str]:
        """Return a node and all nodes below it, parents first."""
        found: list[str] = [path]
        for name in await self.children(path):
            found += await self.descendants(f"{path.rstrip('/')}/{name}")
        return found


@asynccontextmanager
async def tree(connect: str) -> AsyncGenerator[Tree]:
    """Open a session for reading."""
    ensemble = ZooKeeper(connect, connection_timeout_ms=CONNECTION_TIMEOUT_MS, creates_root=False)
    session = await ensemble.connect(lambda state: None)
    try:
        yield Tree(session, f"/{connect.partition('/')[2]}".rstrip("/"))
    finally:
        await session.close()


def stat_lines(stat: KazooStat) -> list[str]:
    """Return metadata as ZooKeeper's shell prints it."""
    return [
        f"cZxid = {_hex(stat.czxid)}",
        f"ctime = {_date(stat.ctime)}",
        f"mZxid = {_hex(stat.mzxid)}",
        f"mtime = {_date(stat.mtime)}",
        f"pZxid = {_hex(stat.pzxid)}",
        f"cversion = {stat.cversion}",
        f"dataVersion = {stat.version}",
        f"aclVersion = {stat.aversion}",
        f"ephemeralOwner = {_hex(stat.ephemeralOwner)}",
        f"dataLength = {stat.dataLength}",
        f"numChildren = {stat.numChildren}",
    ]


def _hex(number: int) -> str:
    return f"0x{number & 0xFFFF_FFFF_FFFF_FFFF:x}"


def _date(milliseconds: int) -> str:
    """Format a time like Java's Date, in the local time zone."""
    from datetime import UTC, datetime

    local = datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone()
    return f"{local:%a %b %d %H:%M:%S %Z %Y}"

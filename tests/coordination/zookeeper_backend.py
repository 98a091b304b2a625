"""A real ZooKeeper server for the conformance tests; each scenario has its own root path."""

import asyncio
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient

from coordination.backends import Scenario, ignore
from coordination.proxy import Proxy
from ottla.coordination.session import Session, SessionState
from ottla.coordination.zookeeper import ZooKeeper, ZooKeeperSession

SESSION_TIMEOUT_MS = 6000  # long enough for a busy machine


class ZooKeeperBackend:
    """Sessions with a proxy each."""

    def __init__(self, port: int, root: str) -> None:
        self._port = port
        self._root = root
        self._sessions: list[ZooKeeperSession] = []
        self._proxies: list[Proxy] = []

    async def session(
        self,
        listener: Callable[[SessionState], None] | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> ZooKeeperSession:
        proxy = Proxy(self._port)
        await proxy.start()
        self._proxies.append(proxy)
        zookeeper = ZooKeeper(
            f"127.0.0.1:{proxy.port}{self._root}", session_timeout_ms=session_timeout_ms
        )
        session = await zookeeper.connect(listener or ignore)
        self._sessions.append(session)
        return session

    def link(self, session: Session) -> Proxy:
        """Return the proxy of a session."""
        return next(
            proxy
            for one, proxy in zip(self._sessions, self._proxies, strict=True)
            if one is session
        )

    async def cut(self, session: Session) -> None:
        self.link(session).cut()

    async def mend(self, session: Session) -> None:
        self.link(session).mend()

    async def expire(self, session: Session) -> None:
        """Take the session over and close it, then let its owner notice."""
        link = self.link(session)
        link.cut()
        await asyncio.to_thread(_close, self._port, link.identity)
        link.mend()

    async def let_expire(self, session: Session) -> None:
        """Stay disconnected; the timeout passes in real time."""

    async def close(self) -> None:
        await asyncio.gather(*(session.close() for session in self._sessions))
        await asyncio.gather(*(proxy.close() for proxy in self._proxies))


def _close(port: int, identity: tuple[int, bytes]) -> None:
    client: Any = KazooClient(f"127.0.0.1:{port}", client_id=identity)
    client.start()
    assert client.client_id[0] == identity[0]
    client.stop()
    client.close()


def run_zookeeper(port: int, root: str, scenario: Scenario) -> None:
    async def program() -> None:
        backend = ZooKeeperBackend(port, root)
        try:
            await scenario(backend)
        finally:
            await backend.close()

    asyncio.run(program())

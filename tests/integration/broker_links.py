"""Proxies between brokers, and between brokers and ZooKeeper, which delay or stop connections.

Each broker advertises a proxy for its inter-broker listener. The proxy finds out which broker has
opened a connection from the sockets of its process, so that every direction can fail alone. Each
broker also has its own proxies for the ZooKeeper servers.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from integration.process_cluster import HOST, BrokerProcess
from proxy import Trouble, relay


class Ports(NamedTuple):
    """The ports of the proxies, by broker."""

    brokers: Mapping[int, int]
    zookeepers: Mapping[int, Sequence[int]]


class BrokerLinks:
    """The proxies, on an event loop in a thread."""

    def __init__(self, brokers: Mapping[int, BrokerProcess], zookeepers: Sequence[int]) -> None:
        """Proxies for these brokers, and for the ZooKeeper servers on these ports."""
        self._brokers = brokers
        self._zookeepers = zookeepers
        self._trouble = {(a, b): Trouble() for a in brokers for b in brokers}
        self._sessions = {number: Trouble() for number in brokers}
        self._lines: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started: Future[Ports] = Future()
        self._thread = threading.Thread(target=self._run, name="broker links", daemon=True)
        self.ports = Ports({}, {})

    def __enter__(self) -> Self:
        self._thread.start()
        self.ports = self._started.result()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        assert self._stop is not None
        self._call(self._stop.set)
        self._thread.join()

    def freeze(self, links: Iterable[tuple[int, int]]) -> None:
        """Stop the connections that the first broker of each pair opens to the second one."""
        for link in links:
            self._call(self._trouble[link].freeze)

    def cut_from_zookeeper(self, broker: int) -> None:
        """Let no byte pass between a broker and ZooKeeper; no connection is closed."""
        self._call(self._sessions[broker].freeze)

    def reset_zookeeper(self, broker: int) -> None:
        """Reset the connections of a broker to ZooKeeper; it can connect again at once."""
        self._call(self._sessions[broker].reset)

    def sessions(self, broker: int) -> int:
        """Return the number of open connections from a broker to ZooKeeper."""
        return self._sessions[broker].open_lines

    def delay(self, pause_s: float) -> None:
        """Delay each chunk on all connections between brokers."""
        for trouble in self._trouble.values():
            trouble.pause_s = pause_s

    def mend(self) -> None:
        """End all faults; what was held back arrives."""
        self.delay(0)
        for trouble in (*self._trouble.values(), *self._sessions.values()):
            self._call(trouble.thaw)

    def of(self, broker: int) -> list[tuple[int, int]]:
        """Return the links from and to a broker."""
        return [link for link in self._trouble if broker in link]

    def carried(self, link: tuple[int, int]) -> int:
        """Return the number of open connections from a broker to another one."""
        return self._trouble[link].open_lines

    def _call(self, act: Callable[[], object]) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(act)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        servers: list[asyncio.Server] = []

        async def proxy(accepted: Callable[..., None]) -> int:
            server = await asyncio.start_server(accepted, HOST, 0)
            servers.append(server)
            return int(server.sockets[0].getsockname()[1])

        self._started.set_result(
            Ports(
                {
                    number: await proxy(self._to_broker(one))
                    for number, one in self._brokers.items()
                },
                {
                    number: [await proxy(self._to_zookeeper(number, to)) for to in self._zookeepers]
                    for number in self._brokers
                },
            )
        )
        await self._stop.wait()
        for server in servers:
            server.close()
        for line in self._lines:
            line.cancel()
        await asyncio.gather(*self._lines, return_exceptions=True)

    def _to_broker(self, to: BrokerProcess) -> Callable[..., None]:
        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            address: Any = writer.get_extra_info("peername")
            link = self._opener(address[1], to.id), to.id
            self._relay(self._trouble[link], reader, writer, to.internal_port)

        return accepted

    def _to_zookeeper(self, broker: int, port: int) -> Callable[..., None]:
        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._relay(self._sessions[broker], reader, writer, port)

        return accepted

    def _relay(
        self,
        trouble: Trouble,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        port: int,
    ) -> None:
        line = asyncio.create_task(relay(trouble, reader, writer, (HOST, port)))
        self._lines.add(line)
        line.add_done_callback(self._lines.discard)

    def _opener(self, port: int, otherwise: int) -> int:
        """Return the broker that has opened a connection from a local port."""
        inode = _inode_of(port)
        for number, broker in self._brokers.items():
            with suppress(OSError, AssertionError):  # it has ended
                sockets = Path(f"/proc/{broker.pid}/fd")
                for one in sockets.iterdir():
                    with suppress(OSError):
                        if os.readlink(one) == f"socket:[{inode}]":
                            return number
        return otherwise


def _inode_of(port: int) -> str:
    """Return the inode of the socket that is connected from a local port."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if int(words[1].rpartition(":")[2], 16) == port and words[3] == "01":
            return words[9]
    return ""

"""Proxies between brokers, which delay or stop the connections of any two brokers.

Each broker advertises a proxy for its inter-broker listener. The proxy finds out which broker has
opened a connection from the sockets of its process, so that every direction can fail alone.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from integration.process_cluster import HOST, BrokerProcess
from proxy import Trouble, relay


class BrokerLinks:
    """A proxy in front of each broker, on an event loop in a thread."""

    def __init__(self, brokers: Mapping[int, BrokerProcess]) -> None:
        self._brokers = brokers
        self._trouble = {(a, b): Trouble() for a in brokers for b in brokers}
        self._lines: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._started: Future[dict[int, int]] = Future()
        self._thread = threading.Thread(target=self._run, name="broker links", daemon=True)
        self.ports: Mapping[int, int] = {}  # of the proxies, by broker

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

    def delay(self, pause_s: float) -> None:
        """Delay each chunk on all connections."""
        for trouble in self._trouble.values():
            trouble.pause_s = pause_s

    def mend(self) -> None:
        """End all faults; what was held back arrives."""
        self.delay(0)
        for trouble in self._trouble.values():
            self._call(trouble.thaw)

    def of(self, broker: int) -> list[tuple[int, int]]:
        """Return the links from and to a broker."""
        return [link for link in self._trouble if broker in link]

    def carried(self, link: tuple[int, int]) -> int:
        """Return the number of open connections from a broker to another one."""
        return self._trouble[link].open_lines

    def _call(self, act: Callable[[], None]) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(act)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        servers = {
            number: await asyncio.start_server(self._accepting(broker), HOST, 0)
            for number, broker in self._brokers.items()
        }
        self._started.set_result(
            {number: one.sockets[0].getsockname()[1] for number, one in servers.items()}
        )
        await self._stop.wait()
        for server in servers.values():
            server.close()
        for line in self._lines:
            line.cancel()
        await asyncio.gather(*self._lines, return_exceptions=True)

    def _accepting(self, to: BrokerProcess) -> Callable[..., None]:
        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            address: Any = writer.get_extra_info("peername")
            link = self._opener(address[1], to.id), to.id
            address = HOST, to.internal_port
            line = asyncio.create_task(relay(self._trouble[link], reader, writer, address))
            self._lines.add(line)
            line.add_done_callback(self._lines.discard)

        return accepted

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

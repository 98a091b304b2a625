"""The processes of a cluster on this machine: ports, settings and files.

Invariant: the same directory always has the same brokers, on ports that change only if the user
asks for others. A ZooKeeper server keeps its port while nobody else uses it.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from ottla.cli.failures import Failed, Misused
from ottla.coordination.ensemble import HOST, Member, ServerConfig

LAYOUT_FILE: Final = "cluster.json"
LOCK_FILE: Final = "cluster.lock"
BROKERS: Final = 3
PORT: Final = 9092
PORT_MAX: Final = 65_535
METRICS_PORT_AFTER: Final = 100  # as `ottla dev`: 9092 and 9192
REPLICAS_MAX: Final = 3
TICK_MS: Final = 500  # on one machine: sessions can be short
CONNECTION_TIMEOUT_MS: Final = 60_000  # the machine is busy while everything starts

FreePort = Callable[[int], int]
"""Returns the given port if it is free, else another one; 0 has no preference."""


class ServerPorts(NamedTuple):
    """The ports of a ZooKeeper server."""

    client: int
    peer: int
    election: int


@dataclass(frozen=True, slots=True)
class LocalLayout:
    """Brokers 1 to N and their ZooKeeper servers."""

    data: Path
    brokers: tuple[int, ...]  # the ports of brokers 1, 2, …
    zookeepers: tuple[ServerPorts, ...]

    @property
    def connect(self) -> str:
        """The value for zookeeper.connect."""
        return ",".join(f"{HOST}:{one.client}" for one in self.zookeepers)

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap servers for clients."""
        return ",".join(f"{HOST}:{port}" for port in self.brokers)

    def format(self) -> str:
        """Encode as JSON."""
        value = {"version": 1, "brokers": self.brokers, "zookeepers": self.zookeepers}
        return json.dumps(value) + "\n"

    def server(self, number: int) -> ServerConfig:
        """Return the ZooKeeper server with a number, counted from 1."""
        several = len(self.zookeepers) > 1
        return ServerConfig(
            self.data / f"zookeeper-{number}",
            self.zookeepers[number - 1].client,
            tick_ms=TICK_MS,
            id=number,
            ensemble=[Member(HOST, one.peer, one.election) for one in self.zookeepers]
            if several
            else (),
        )

    def settings(self, broker: int) -> Mapping[str, object]:
        """Return the settings of a broker, counted from 1."""
        count, port = len(self.brokers), self.brokers[broker - 1]
        replicas = min(REPLICAS_MAX, count)
        in_sync = 2 if count >= REPLICAS_MAX else 1
        settings: dict[str, object] = {
            "node.id": broker,
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            "log.dirs": str(self.data / f"broker-{broker}"),
            "zookeeper.connect": self.connect,
            "zookeeper.connection.timeout.ms": CONNECTION_TIMEOUT_MS,
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "group.initial.rebalance.delay.ms": 0,
        }
        if port + METRICS_PORT_AFTER <= PORT_MAX:
            settings["ottla.metrics.listener"] = f"{HOST}:{port + METRICS_PORT_AFTER}"
        return settings


def parse_layout(text: str, data: Path) -> LocalLayout:
    """Parse a stored layout. Raises Failed if it is damaged."""
    try:
        value: Any = json.loads(text)
        return LocalLayout(
            data,
            tuple(int(port) for port in value["brokers"]),
            tuple(ServerPorts(*map(int, one)) for one in value["zookeepers"]),
        )
    except (ValueError, LookupError, TypeError) as error:
        raise Failed(f"{data}: the description of the cluster is damaged: {error!r}") from error


def local_cluster_of(directory: Path) -> Path | None:
    """Return the directory of the local cluster to which a directory belongs, if it does."""
    folders = [directory]
    if re.fullmatch(r"(broker|zookeeper)-[0-9]+", directory.name):
        folders.append(directory.parent)
    for one in folders:
        if (one / LAYOUT_FILE).is_file() and (one / LOCK_FILE).is_file():
            return one
    return None


def planned(
    data: Path,
    stored: LocalLayout | None,
    free_port: FreePort,
    *,
    brokers: int | None,
    port: int | None,
    zookeepers: int | None,
) -> LocalLayout:
    """Return the cluster to start; None leaves the stored or the default value."""
    known: Sequence[int] = () if stored is None else stored.brokers
    count = brokers or len(known) or BROKERS
    if count < len(known):
        raise Failed(
            f"{data} has {len(known)} brokers, and replicas on each: use -n {len(known)} or more, "
            "or another --data"
        )
    if stored is not None and zookeepers not in (None, len(stored.zookeepers)):
        raise Failed(
            f"{data} has {len(stored.zookeepers)} ZooKeeper servers: omit --zookeepers, or use "
            "another --data"
        )
    if port == 0:
        ports = tuple(free_port(0) for _ in range(count))
    elif port is None and known:
        ports = (*known, *range(known[-1] + 1, known[-1] + 1 + count - len(known)))
    else:
        first = PORT if port is None else port
        ports = tuple(range(first, first + count))
    if ports[-1] > PORT_MAX:
        raise Misused(f"--port {ports[0]}: there are not {count} ports up to {PORT_MAX}")
    old = stored.zookeepers if stored is not None else ((ServerPorts(0, 0, 0),) * (zookeepers or 1))
    servers = tuple(ServerPorts(*map(free_port, one)) for one in old)
    return LocalLayout(data, ports, servers)

"""Copies the cluster of a single broker from its embedded store into ZooKeeper.

Invariant: the node with the cluster id is created last, so no broker joins a copy that is not
complete. A copy that was interrupted can be repeated. A path of ZooKeeper with other content is
refused, and so is a copy that brokers have used already.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.cluster.znodes import (
    BROKER_IDS,
    CLUSTER_ID,
    CONTROLLER,
    REGISTRATIONS,
    TOPICS,
    UNCLEAN_RESTARTS,
    parse_cluster_id,
    parse_topic,
)
from ottla.controller.lease import batches, operations_bytes
from ottla.coordination.operations import Create, Delete, Operation, SetData
from ottla.coordination.paths import ROOT
from ottla.coordination.session import Session
from ottla.errors import OttlaError

MARK: Final = "/ottla/transfer"  # while a copy is not complete: the cluster id
_OF_ZOOKEEPER: Final = "zookeeper"  # the server's own nodes

# A broker registers in its new store for the first time: broker epochs of the old one are unknown
# there.
_LEFT_BEHIND: Final = (CONTROLLER, UNCLEAN_RESTARTS)
_CHILDREN_LEFT_BEHIND: Final = (f"{BROKER_IDS}/", f"{REGISTRATIONS}/")


class Transfer(NamedTuple):
    """What was copied."""

    cluster_id: str
    replication_factors: Mapping[str, int]
    """By topic; the lowest one of its partitions."""


async def copy_cluster(source: Session, target: Session) -> Transfer:
    """Copy topics, settings and ids; raises OttlaError if the target has something else."""
    nodes = await _persistent_nodes(source)
    if CLUSTER_ID not in nodes:
        raise OttlaError("the store holds no cluster: its broker has never started")
    cluster_id = parse_cluster_id(nodes[CLUSTER_ID])
    factors = {
        path.removeprefix(f"{TOPICS}/"): min(map(len, parse_topic(data, path).partitions))
        for path, data in nodes.items()
        if path.startswith(f"{TOPICS}/") and path.count("/") == 3
    }
    if await _has_copy(target, cluster_id):
        return Transfer(cluster_id, factors)
    identity = nodes.pop(CLUSTER_ID)
    nodes[MARK] = cluster_id.encode()
    # The mark comes first, and parents before their children.
    paths = sorted(nodes, key=lambda path: (not MARK.startswith(path), path))
    found = await target.get_all(paths)
    operations: list[Operation] = [
        Create(path, nodes[path]) if node is None else SetData(path, nodes[path])
        for path, node in zip(paths, found, strict=True)
    ]
    for batch in batches(operations, lambda one: operations_bytes([one])):
        await target.multi(batch)
    await target.multi([Delete(MARK), Create(CLUSTER_ID, identity)])
    return Transfer(cluster_id, factors)


async def _has_copy(target: Session, cluster_id: str) -> bool:
    """Whether the target has a complete copy that no broker has used; raises if it has others."""
    if await target.exists(CLUSTER_ID) is not None:
        other = parse_cluster_id((await target.get(CLUSTER_ID)).data)
        if other != cluster_id:
            raise OttlaError(f"the path in ZooKeeper holds the cluster {other}: use another path")
        if await target.children(REGISTRATIONS):
            raise OttlaError(f"brokers use the cluster {cluster_id} in ZooKeeper already")
        return True
    if await target.exists(MARK) is not None:
        if (await target.get(MARK)).data == cluster_id.encode():
            return False  # an interrupted copy of this cluster
    elif not {*await target.children(ROOT)} - {_OF_ZOOKEEPER}:
        return False
    raise OttlaError("the path in ZooKeeper is not empty: use another path")


async def _persistent_nodes(session: Session) -> dict[str, bytes]:
    """Return the nodes to copy and their data."""
    nodes: dict[str, bytes] = {}
    level = [ROOT]
    while level:
        below = [
            f"{'' if parent == ROOT else parent}/{name}"
            for parent in level
            for name in await session.children(parent)
        ]
        level = [
            path
            for path in below
            if path not in _LEFT_BEHIND and not path.startswith(_CHILDREN_LEFT_BEHIND)
        ]
        for path, node in zip(level, await session.get_all(level), strict=True):
            if node is not None:
                nodes[path] = node.data
    return nodes

"""The health of a cluster: what is under-replicated, offline or unevenly distributed.

Invariant: every number is computed from one description of the topics.
"""

import socket
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from ottla.cli.session import Session
from ottla.client.admin.administration import Administration
from ottla.client.admin.cluster import BrokerDescription, ClusterCalls
from ottla.client.admin.configs import ConfigCalls, ConfigResource
from ottla.client.admin.log_dirs import LogDirCalls, LogDirs
from ottla.client.admin.topic_descriptions import TopicDescription
from ottla.client.admin.topics import TopicCalls
from ottla.client.calls.results import Results
from ottla.errors import ErrorCode, RequestError
from ottla.release import VERSION_CONFIG
from ottla.transport.port_owner import port_owner_pid

RESPONSE_SECONDS: Final = 3.0  # a broker that takes longer is shown as one that does not respond


class HealthAdmin(Administration, ClusterCalls, TopicCalls, LogDirCalls, ConfigCalls):
    """Describes the cluster, its topics, its data directories and its versions."""


@dataclass(frozen=True, slots=True)
class DiskUse:
    """The data directories of a broker; what it does not return is None."""

    used_bytes: int
    free_bytes: int | None
    offline: int


@dataclass(frozen=True, slots=True)
class BrokerHealth:
    """A broker."""

    id: int
    host: str
    port: int
    rack: str | None
    pid: int | None
    leaders: int
    replicas: int
    skew: float | None  # leaders relative to the mean; None without partitions
    disk: DiskUse | None  # None if the broker does not respond, or refuses
    refusal: ErrorCode | None = None  # of a broker that responds
    version: str | None = None  # of Ottla; None if the broker does not return it


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """The cluster."""

    id: str | None
    controller: int | None
    brokers: Sequence[BrokerHealth]
    topics: int
    partitions: int
    under_replicated: Sequence[str]
    offline: Sequence[str]


def partitions_where(topics: Iterable[TopicDescription], *, offline: bool) -> list[str]:
    """Return the partitions without a leader, or those with a replica outside the ISR."""
    return [
        f"{topic.name}-{one.index}"
        for topic in topics
        for one in topic.partitions
        if (one.leader is None if offline else len(one.in_sync) < len(one.replicas))
    ]


def broker_health(
    brokers: Sequence[BrokerDescription],
    topics: Sequence[TopicDescription],
    disks: Mapping[int, DiskUse],
    pids: Mapping[int, int | None],
    refused: Mapping[int, ErrorCode] = MappingProxyType({}),
    versions: Mapping[int, str | None] = MappingProxyType({}),
) -> list[BrokerHealth]:
    """Return what each broker leads and holds."""
    partitions = [one for topic in topics for one in topic.partitions]
    leaders = Counter(one.leader for one in partitions if one.leader is not None)
    replicas = Counter(replica for one in partitions for replica in one.replicas)
    mean = leaders.total() / len(brokers) if brokers else 0
    return [
        BrokerHealth(
            one.id,
            one.host,
            one.port,
            one.rack,
            pids.get(one.id),
            leaders[one.id],
            replicas[one.id],
            round(leaders[one.id] / mean, 2) if mean else None,
            disks.get(one.id),
            refused.get(one.id),
            versions.get(one.id),
        )
        for one in brokers
    ]


def disk_use(directories: LogDirs) -> DiskUse:
    """Sum up the directories of a broker."""
    found = directories.succeeded.values()
    sizes = [size.size_bytes for one in found for size in one.replicas.values()]
    free = [one.usable_bytes for one in found if one.usable_bytes is not None]
    # Directories of one volume have the same free space.
    return DiskUse(sum(sizes), min(free, default=None), len(directories.failed))


def refusals(failed: Mapping[int, RequestError]) -> dict[int, ErrorCode]:
    """Return why brokers that respond do not describe their directories."""
    return {broker: error.code for broker, error in failed.items() if not error.retriable}


async def found_health(session: Session) -> ClusterHealth:
    """Ask a cluster for its health."""
    async with await session.opened(HealthAdmin) as admin:
        return await health_of(admin, with_pids=True)


async def health_of(admin: HealthAdmin, *, with_pids: bool = False) -> ClusterHealth:
    """Ask a cluster for its health; the process ids are those of brokers on this machine."""
    cluster = await admin.describe_cluster()
    names = [*await admin.list_topics(include_internal=True)]
    described = await admin.describe_topics(names)
    told: Results[int, LogDirs] = await admin.describe_log_dirs(
        [one.id for one in cluster.brokers], timeout_s=RESPONSE_SECONDS
    )
    resources = [ConfigResource.broker(one.id) for one in cluster.brokers]
    configs = await admin.describe_configs(
        resources, names=[VERSION_CONFIG], timeout_s=RESPONSE_SECONDS
    )
    versions = {
        int(resource.name): entries[VERSION_CONFIG].value
        for resource, entries in configs.succeeded.items()
        if VERSION_CONFIG in entries
    }
    topics = [*described.succeeded.values()]
    pids = {one.id: _pid(one.host, one.port) for one in cluster.brokers} if with_pids else {}
    disks = {broker: disk_use(one) for broker, one in told.succeeded.items()}
    return ClusterHealth(
        cluster.id,
        cluster.controller,
        broker_health(cluster.brokers, topics, disks, pids, refusals(told.failed), versions),
        len(topics),
        sum(len(topic.partitions) for topic in topics),
        partitions_where(topics, offline=False),
        partitions_where(topics, offline=True),
    )


def _pid(host: str, port: int) -> int | None:
    """Return the process of a broker on this machine."""
    with suppress(OSError):
        for family, kind, _, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with socket.socket(family, kind) as one:
                one.bind(address)  # fails for an address of another machine
                return port_owner_pid(port, str(address[0]))
    return None

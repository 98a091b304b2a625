"""The cluster: brokers, controller and cluster id.

Invariant: brokers are in the order of their ids.
"""

from dataclasses import dataclass
from typing import Final

from ottla.client.admin.calls import Calls
from ottla.client.admin.operations import Operation, operations
from ottla.client.calls.results import check, or_none
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.transport.failures import NotSupported

_FENCED_SINCE: Final = 2


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker and its address."""

    id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False
    """Registered, but not serving."""


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster."""

    id: str | None
    controller: int | None
    """The broker that accepts changes; in a KRaft cluster, any broker."""

    brokers: tuple[BrokerDescription, ...]
    operations: frozenset[Operation] | None = None
    """The operations that the caller may perform; None if not requested."""


class ClusterCalls(Calls):
    """Calls about the cluster."""

    async def describe_cluster(
        self,
        *,
        include_operations: bool = False,
        include_fenced: bool = False,
        timeout_s: float | None = None,
    ) -> ClusterDescription:
        """Describe the cluster; include_fenced adds brokers that are registered but not serving."""
        asking = self._asking
        deadline_s = asking.deadline_s(timeout_s)
        try:
            return await asking.one(
                asking.to_any,
                lambda _: DescribeClusterRequest(
                    include_cluster_authorized_operations=include_operations,
                    include_fenced_brokers=include_fenced,
                ),
                DescribeClusterResponse,
                described,
                asking.left_s(deadline_s),
                since=_FENCED_SINCE if include_fenced else 0,
            )
        except NotSupported:
            if include_fenced:
                raise
        return await asking.one(  # for brokers before 2.8
            asking.to_any,
            lambda _: MetadataRequest(topics=(), include_cluster_authorized_operations=False),
            MetadataResponse,
            told_by_metadata,
            asking.left_s(deadline_s),
        )


def described(answer: DescribeClusterResponse) -> ClusterDescription:
    """Return the cluster from DescribeCluster."""
    check(answer.error_code, "the cluster", answer.error_message)
    brokers = [
        BrokerDescription(one.broker_id, one.host, one.port, one.rack, one.is_fenced)
        for one in answer.brokers
    ]
    return ClusterDescription(
        answer.cluster_id,
        or_none(answer.controller_id),
        tuple(sorted(brokers, key=lambda one: one.id)),
        operations(answer.cluster_authorized_operations),
    )


def told_by_metadata(answer: MetadataResponse) -> ClusterDescription:
    """Return the cluster from Metadata."""
    brokers = [
        BrokerDescription(one.node_id, one.host, one.port, one.rack) for one in answer.brokers
    ]
    return ClusterDescription(
        answer.cluster_id,
        or_none(answer.controller_id),
        tuple(sorted(brokers, key=lambda one: one.id)),
    )

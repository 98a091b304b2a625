"""DescribeCluster: the brokers and the controller."""

from typing import Final

from ottla.broker.handlers.metadata import CLUSTER_OPERATIONS, NOT_ASKED
from ottla.broker.metadata_cache import MetadataCache
from ottla.errors import ErrorCode
from ottla.protocol.conversation import Request, Response
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.transport.connection import Connection

_BROKERS: Final = 1  # the endpoint types
_CONTROLLERS: Final = 2


def handle(request: Request, connection: Connection, *, metadata_cache: MetadataCache) -> Response:
    """Describe the cluster with the addresses of the listener that received the request."""
    message = request.message
    assert isinstance(message, DescribeClusterRequest)
    image, listener = metadata_cache.image, connection.listener
    if message.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            throttle_time_ms=0,
            error_code=int(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE
                if message.endpoint_type == _CONTROLLERS
                else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            ),
            error_message="the request was sent to a broker, not to a controller",
            cluster_id=image.cluster_id,
            brokers=[],
        )
    return DescribeClusterResponse(
        throttle_time_ms=0,
        error_code=0,
        cluster_id=image.cluster_id,
        controller_id=image.controller,
        brokers=[
            DescribeClusterBroker(
                broker_id=broker.id,
                host=broker.addresses[listener].host,
                port=broker.addresses[listener].port,
                rack=broker.rack,
            )
            for broker in image.brokers.values()
            if listener in broker.addresses
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if message.include_cluster_authorized_operations
        else NOT_ASKED,
    )

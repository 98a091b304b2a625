"""DescribeCluster: the brokers, the controller and the cluster id."""

from collections.abc import Sequence

from ottla.protocol.apis import DESCRIBE_CLUSTER
from ottla.protocol.message import Message
from ottla.protocol.schema import (
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    nullable_string,
    string,
)


class DescribeClusterRequest(Message, api=DESCRIBE_CLUSTER):
    include_cluster_authorized_operations: bool = boolean("0+")
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+", default=False)


class DescribeClusterBroker(Struct):
    broker_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = nullable_string("0+", default=None)
    is_fenced: bool = boolean("2+", default=False)


class DescribeClusterResponse(Message, api=DESCRIBE_CLUSTER):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = nullable_string("0+", default=None)
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string("0+")
    controller_id: int = int32("0+", default=-1)
    brokers: Sequence[DescribeClusterBroker] = array(DescribeClusterBroker, "0+")
    cluster_authorized_operations: int = int32("0+", default=-2147483648)

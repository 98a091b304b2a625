"""DescribeCluster: the brokers, with the addresses of the listener that received the request."""

from pathlib import Path

from broker.nodes import broker, run
from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)

NOT_ASKED = -(2**31)


def test_address_rack_and_controller_are_described(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, "broker.rack=cellar") as running:
            client = await running.client()
            found = await client.ask(
                DescribeClusterRequest(include_cluster_authorized_operations=False),
                DescribeClusterResponse,
            )
            (one,) = found.brokers
            assert (one.broker_id, one.port, one.rack) == (1, running.port, "cellar")
            assert (found.error_code, found.controller_id) == (0, 1)
            assert found.cluster_authorized_operations == NOT_ASKED
            asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
            response = await client.ask(asked, DescribeClusterResponse)
            assert response.cluster_authorized_operations > 0
            assert response.cluster_id == found.cluster_id
        async with broker(tmp_path) as running:
            client = await running.client()
            again = await client.ask(
                DescribeClusterRequest(include_cluster_authorized_operations=False),
                DescribeClusterResponse,
            )
            assert again.cluster_id == found.cluster_id

    run(scenario)


def test_other_endpoint_types_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            for kind, code in (
                (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
                (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
            ):
                request = DescribeClusterRequest(
                    include_cluster_authorized_operations=False, endpoint_type=kind
                )
                found = await client.ask(request, DescribeClusterResponse)
                assert (found.error_code, list(found.brokers)) == (code, [])

    run(scenario)

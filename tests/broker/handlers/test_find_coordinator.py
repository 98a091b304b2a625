"""FindCoordinator: who has a group; the first question makes the topic of the offsets."""

from pathlib import Path

from broker.nodes import Client, broker, run
from ottla.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)


async def find(client: Client, kind: int, *keys: str) -> list[tuple[str, int, int]]:
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys))
    answer = await client.ask(request, FindCoordinatorResponse)
    return [(one.key, one.error_code, one.node_id) for one in answer.coordinators]


def test_every_group_has_its_coordinator(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, "offsets.topic.num.partitions=5") as running:
            client = await running.client()
            keys = [f"group-{n}" for n in range(20)] + ["", "ü"]
            assert await find(client, 0, *keys) == [(key, 0, 1) for key in keys]
            made = (tmp_path / "data").glob("__consumer_offsets-*")
            assert len(list(made)) == 5
            old = FindCoordinatorRequest(key="group-1", key_type=0)
            answer = await client.ask(old, FindCoordinatorResponse, 3)
            assert (answer.error_code, answer.node_id, answer.port) == (0, 1, running.port)

    run(scenario)


def test_what_nobody_coordinates_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            no_transactions = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            assert await find(client, 1, "tx") == [("tx", no_transactions, -1)]
            assert await find(client, 2, "share") == [("share", ErrorCode.INVALID_REQUEST, -1)]
            assert not list((tmp_path / "data").glob("__consumer_offsets-*"))

    run(scenario)

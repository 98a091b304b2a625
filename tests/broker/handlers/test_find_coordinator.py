"""FindCoordinator: the first request creates the offsets topic."""

from pathlib import Path
from typing import Any

import pytest

from broker.nodes import Client, broker, run
from broker.test_configs import BROKER_RESOURCE, set_one
from ottla.errors import DiskFull, ErrorCode
from ottla.groups.coordinator import partition_for
from ottla.ids import TopicPartition
from ottla.log.loading import HostedLog
from ottla.log.log_manager import LogManager
from ottla.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)


async def find(client: Client, kind: int, *keys: str) -> list[tuple[str, int, int]]:
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys))
    answer = await client.ask(request, FindCoordinatorResponse)
    return [(one.key, one.error_code, one.node_id) for one in answer.coordinators]


def test_every_group_has_a_coordinator(tmp_path: Path) -> None:
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


def test_unsupported_key_types_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            no_transactions = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            assert await find(client, 1, "tx") == [("tx", no_transactions, -1)]
            assert await find(client, 2, "share") == [("share", ErrorCode.INVALID_REQUEST, -1)]
            assert not list((tmp_path / "data").glob("__consumer_offsets-*"))

    run(scenario)


@pytest.mark.parametrize("led", [True, False])
def test_first_group_needs_a_leader_of_only_its_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, led: bool
) -> None:
    make = LogManager.create

    async def create(logs: LogManager, key: TopicPartition, *args: Any, **kwargs: Any) -> HostedLog:
        if (key.partition == partition_for("g", 5)) is not led:
            raise DiskFull("No space left on device")
        return await make(logs, key, *args, **kwargs)

    monkeypatch.setattr(LogManager, "create", create)

    async def scenario() -> None:
        async with broker(tmp_path, "offsets.topic.num.partitions=5") as running:
            client = await running.client()
            unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert await find(client, 0, "g") == [("g", 0, 1) if led else ("g", unavailable, -1)]
            asked = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
            (response,) = (await client.ask(asked, FindCoordinatorResponse)).coordinators
            assert ("has no leader" in (response.error_message or "")) is not led

    run(scenario)


def test_failed_offsets_topic_creation_is_retriable(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = ("offsets.topic.num.partitions=1", "cordoned.log.dirs=*")
        async with broker(tmp_path, *settings) as running:
            client = await running.client()
            asked = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
            (response,) = (await client.ask(asked, FindCoordinatorResponse)).coordinators
            assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert ErrorCode.COORDINATOR_NOT_AVAILABLE.retriable
            assert response.error_message not in (None, ErrorCode.COORDINATOR_NOT_AVAILABLE.text)
            assert await set_one(client, BROKER_RESOURCE, "1", "cordoned.log.dirs", "") == 0
            assert await find(client, 0, "g") == [("g", 0, 1)]

    run(scenario)

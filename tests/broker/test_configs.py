"""Settings that change while the broker runs."""

from pathlib import Path

import pytest

from broker.nodes import Client, broker, run
from broker.test_node import create
from ottla.broker.configs import Change, Changes, changed
from ottla.errors import ErrorCode, RequestError
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.settings.topic import TOPIC

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4


def test_single_changes_are_made_in_their_order() -> None:
    present = {"retention.ms": "5", "cleanup.policy": "delete"}
    changes: Changes = [
        ("retention.ms", Change.DELETE, None),
        ("cleanup.policy", Change.APPEND, "compact"),
        ("segment.ms", Change.SET, "7"),
    ]
    assert changed(present, changes, TOPIC) == {
        "cleanup.policy": "delete,compact",
        "segment.ms": "7",
    }
    gone: Changes = [("cleanup.policy", Change.SUBTRACT, "delete")]
    assert changed({"cleanup.policy": "delete,compact"}, gone, TOPIC)["cleanup.policy"] == "compact"
    assert present == {"retention.ms": "5", "cleanup.policy": "delete"}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("a", 0, "1"), ("a", 1, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 2, "1")], ErrorCode.INVALID_CONFIG),
    ],
)
def test_what_cannot_be_changed_so_is_refused(changes: Changes, code: ErrorCode) -> None:
    with pytest.raises(RequestError) as refused:
        changed({}, changes, TOPIC)
    assert refused.value.code is code


async def described(client: Client, kind: int, name: str, key: str) -> tuple[str | None, int]:
    """A value and where it comes from."""
    asked = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=[key]
    )
    answer = await client.ask(DescribeConfigsRequest(resources=[asked]), DescribeConfigsResponse)
    (found,) = answer.results[0].configs
    return found.value, found.config_source


async def set_one(client: Client, kind: int, name: str, key: str, value: str) -> int:
    change = AlterableConfig(name=key, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    answer = await client.ask(request, IncrementalAlterConfigsResponse)
    return answer.responses[0].error_code


def test_a_change_counts_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            assert await described(client, TOPIC_RESOURCE, "t", "retention.ms") == ("604800000", 5)
            assert await set_one(client, TOPIC_RESOURCE, "t", "retention.ms", "5000") == 0
            assert await set_one(client, BROKER_RESOURCE, "", "log.cleaner.threads", "2") == 0
            assert await set_one(client, BROKER_RESOURCE, "1", "log.segment.bytes", "2000000") == 0
            wrong = await set_one(client, TOPIC_RESOURCE, "t", "retention.ms", "soon")
            assert wrong == ErrorCode.INVALID_CONFIG
            wrong = await set_one(client, BROKER_RESOURCE, "1", "node.id", "7")
            assert wrong == ErrorCode.INVALID_REQUEST
        async with broker(tmp_path) as running:
            client = await running.client()
            assert await described(client, TOPIC_RESOURCE, "t", "retention.ms") == ("5000", 1)
            assert await described(client, TOPIC_RESOURCE, "t", "segment.bytes") == ("2000000", 2)
            threads = await described(client, BROKER_RESOURCE, "1", "log.cleaner.threads")
            assert threads == ("2", 3)

    run(scenario)


def test_cleaner_threads_are_at_most_doubled_and_at_least_halved(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, "log.cleaner.threads=4") as running:
            client = await running.client()

            async def set_to(count: int) -> int:
                return await set_one(
                    client, BROKER_RESOURCE, "1", "log.cleaner.threads", str(count)
                )

            for refused in (0, 1, 9):
                assert await set_to(refused) == ErrorCode.INVALID_REQUEST
            for taken in (8, 16, 8, 4, 2):
                assert await set_to(taken) == 0
            assert await set_to(5) == ErrorCode.INVALID_REQUEST

    run(scenario)

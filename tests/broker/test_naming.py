"""The setting ottla.topic.name.policy, over the wire."""

from pathlib import Path

import pytest

from broker.nodes import Client, broker, run
from broker.test_configs import BROKER_RESOURCE, set_one
from broker.test_node import create
from ottla.errors import ErrorCode
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ottla.settings.invalid_settings import InvalidSettings

POLICY = "ottla.topic.name.policy"


async def create_error(
    client: Client, name: str, *, validate_only: bool = False
) -> tuple[int, str]:
    topic = CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[topic], validate_only=validate_only)
    (result,) = (await client.ask(request, CreateTopicsResponse)).topics
    return result.error_code, result.error_message or ""


def test_only_names_of_the_template_are_created(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, f"{POLICY}={{env:dev|prod}}.{{name}}") as running:
            client = await running.client()
            for validate_only in (True, False):
                code, message = await create_error(client, "test.a", validate_only=validate_only)
                assert code == ErrorCode.POLICY_VIOLATION
                assert "{env:dev|prod}.{name}" in message
            await create(client, "dev.a")
            # An invalid name has its own error.
            code, _ = await create_error(client, "a b")
            assert code == ErrorCode.INVALID_TOPIC_EXCEPTION

    run(scenario)


def test_policy_applies_to_auto_created_topics(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, f"{POLICY}={{env:dev|prod}}.{{name}}") as running:
            client = await running.client()
            names = ["dev.a", "b"]
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in names],
                allow_auto_topic_creation=True,
            )
            answer = await client.ask(request, MetadataResponse)
            codes = {one.name: one.error_code for one in answer.topics}
            assert codes == {"dev.a": 0, "b": ErrorCode.INVALID_TOPIC_EXCEPTION}
            found = await client.ask(MetadataRequest(topics=None), MetadataResponse)
            assert [one.name for one in found.topics] == ["dev.a"]

    run(scenario)


def test_names_that_are_not_auto_created_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, f"{POLICY}=a.b,a_b") as running:
            client = await running.client()
            await create(client, "a.b")
            names = ["a_b", "c"]
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in names],
                allow_auto_topic_creation=True,
            )
            for _ in range(3):  # a client that asks again does not fill the log
                answer = await client.ask(request, MetadataResponse)
                codes = {one.name: one.error_code for one in answer.topics}
                assert codes == dict.fromkeys(names, ErrorCode.INVALID_TOPIC_EXCEPTION)
        logged = [one.args for one in caplog.records if one.getMessage() == "topic not created"]
        collides, forbidden = (dict(one) for one in logged if isinstance(one, dict))
        assert collides["topic"] == "a_b"
        assert collides["reason"] == "Topic 'a_b' collides with existing topic: a.b"
        assert forbidden["topic"] == "c"
        assert "a.b, a_b" in str(forbidden["reason"])

    run(scenario)


def test_cluster_metadata_is_not_a_topic(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            name = "__cluster_metadata"
            assert (await create_error(client, name))[0] == ErrorCode.INVALID_REQUEST
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True
            )
            (found,) = (await client.ask(request, MetadataResponse)).topics
            assert found.error_code != 0
            assert not found.partitions

    run(scenario)


def test_policy_does_not_apply_to_internal_topics(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, f"{POLICY}={{env}}.{{name}}") as running:
            client = await running.client()
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
            answer = await client.ask(request, FindCoordinatorResponse)
            assert answer.coordinators[0].error_code == 0

    run(scenario)


def test_policy_change_keeps_existing_topics(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "free")
            assert await set_one(client, BROKER_RESOURCE, "", POLICY, "{a}.{b}") == 0
            assert (await create_error(client, "other"))[0] == ErrorCode.POLICY_VIOLATION
            bad = await set_one(client, BROKER_RESOURCE, "", POLICY, "{a.b")
            assert bad == ErrorCode.INVALID_REQUEST
        async with broker(tmp_path) as running:
            client = await running.client()
            assert (await create_error(client, "other"))[0] == ErrorCode.POLICY_VIOLATION
            found = await client.ask(MetadataRequest(topics=None), MetadataResponse)
            assert [one.name for one in found.topics] == ["free"]

    run(scenario)


def test_invalid_template_fails_the_start(tmp_path: Path) -> None:
    async def scenario() -> None:
        with pytest.raises(InvalidSettings, match=r"{part}\.{part:word\|word}"):
            async with broker(tmp_path, f"{POLICY}={{env"):
                pass

    run(scenario)

"""Requests of administrators with very many topics or configs cost little and end in time."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest

from broker.handlers.test_create_partitions import create_partitions
from broker.handlers.test_create_topics import create_topics, partition_counts, topic
from broker.handlers.test_delete_topics import delete
from broker.handlers.test_incremental_alter_configs import SET, resource
from broker.nodes import Client, broker, run
from broker.test_configs import BROKER_RESOURCE, TOPIC_RESOURCE
from broker.test_node import create
from ottla.broker import cooperative, topics
from ottla.broker.configs import TOPIC_CONFIGS_MAX
from ottla.broker.handlers import metadata
from ottla.broker.topics import CHANGED_AT_ONCE, HINTED_TOPICS_MAX, Topics
from ottla.cluster import existing_topics
from ottla.cluster.image import Topic
from ottla.errors import ErrorCode
from ottla.ids import ZERO_UUID, BrokerId
from ottla.protocol.messages.create_topics import CreatableTopicConfig
from ottla.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ottla.settings.config_parser import DYNAMIC_SETTINGS_MAX

LIMIT = "ottla.partitions.max=3"
REFUSED = [f"new{number}" for number in range(2 * CHANGED_AT_ONCE + 1)]


async def made_by_metadata(client: Client, *names: str) -> list[int]:
    """Let a Metadata request create topics; return the error codes."""
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    return [one.error_code for one in (await client.ask(asked, MetadataResponse, 9)).topics]


async def altered(client: Client, kind: int, name: str, count: int) -> tuple[int, str]:
    """Set unknown configs; return the error code and message."""
    changes = [(f"c{number}", int(SET), "1") for number in range(count)]
    asked = IncrementalAlterConfigsRequest(
        resources=[resource(kind, name, *changes)], validate_only=False
    )
    (one,) = (await client.ask(asked, IncrementalAlterConfigsResponse, 1)).responses
    return one.error_code, one.error_message or ""


def test_existing_topics_are_counted_once_for_all_refused_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = 0
    replicas = existing_topics._replicas  # pyright: ignore[reportPrivateUsage]

    def counted(some: Iterable[Topic]) -> Iterable[BrokerId]:
        nonlocal counts
        counts += 1
        return replicas(some)

    async def scenario() -> None:
        nonlocal counts
        async with broker(tmp_path, LIMIT) as running:
            client = await running.client()
            for name in "abc":
                await create(client, name, 1)
            monkeypatch.setattr(existing_topics, "_replicas", counted)
            made = await create_topics(client, *map(topic, REFUSED))
            assert {one.error_code for one in made.values()} == {ErrorCode.POLICY_VIOLATION}
            assert counts == 1
            codes = await made_by_metadata(client, *REFUSED)
            assert set(codes) == {ErrorCode.INVALID_TOPIC_EXCEPTION}
            grown = await create_partitions(client, *((name, 2, None) for name in "abc"))
            assert set(grown.values()) == {ErrorCode.POLICY_VIOLATION}
            assert counts == 1
            await delete(client, ("a", ZERO_UUID))
            made = await create_topics(client, *map(topic, REFUSED))
            assert [one.error_code for one in made.values()].count(0) == 1
            assert len(await partition_counts(client)) == 3

    run(scenario)


def test_topics_are_checked_in_time_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooperative, "TURN_SECONDS", -1.0)
    checked = 0
    planned = Topics._planned  # pyright: ignore[reportPrivateUsage]

    def counted(*args: object) -> object:
        nonlocal checked
        checked += 1
        return planned(*args)  # pyright: ignore[reportArgumentType]

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            monkeypatch.setattr(Topics, "_planned", counted)
            work = asyncio.create_task(create_topics(client, *map(topic, REFUSED)))
            most = before = 0
            while not work.done():
                await asyncio.sleep(0)
                most, before = max(most, checked - before), checked
            assert {one.error_code for one in (await work).values()} == {0}
            assert (most, checked) == (1, len(REFUSED))

    run(scenario)


def test_no_change_begins_after_the_time_limit_of_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "a", 1)
            monkeypatch.setattr(topics, "TIMEOUT_SECONDS_MAX", -1.0)
            monkeypatch.setattr(metadata, "TIMEOUT_SECONDS_MAX", -1.0)
            late = ErrorCode.REQUEST_TIMED_OUT
            made = await create_topics(client, *map(topic, REFUSED))
            assert {one.error_code for one in made.values()} == {late}
            assert "not begun" in (made["new0"].error_message or "")
            assert await create_partitions(client, ("a", 2, None)) == {"a": late}
            assert await delete(client, ("a", ZERO_UUID)) == [late]
            for kind, name in ((TOPIC_RESOURCE, "a"), (BROKER_RESOURCE, "1")):
                assert (await altered(client, kind, name, 1))[0] == late
            codes = await made_by_metadata(client, "b", "c")
            assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
            assert await partition_counts(client) == {"a": 1}

    run(scenario)


def test_far_more_configs_than_exist_are_refused_unread(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "a", 1)
            for kind, name, most, refusal in (
                (TOPIC_RESOURCE, "a", TOPIC_CONFIGS_MAX, ErrorCode.INVALID_CONFIG),
                (BROKER_RESOURCE, "1", DYNAMIC_SETTINGS_MAX, ErrorCode.INVALID_REQUEST),
            ):
                code, text = await altered(client, kind, name, most)
                assert code == refusal
                assert text.startswith("c0: unknown setting\n")
                code, text = await altered(client, kind, name, most + 1)
                assert code == refusal
                assert text == f"{most + 1} configs exceed the maximum of {most}"
            new = topic("b")
            new.configs = [
                CreatableTopicConfig(name="retention.ms", value="1")
                for _ in range(TOPIC_CONFIGS_MAX + 1)
            ]
            made = (await create_topics(client, new))["b"]
            assert made.error_code == ErrorCode.INVALID_CONFIG
            assert made.error_message == "201 configs exceed the maximum of 200"

    run(scenario)


def test_only_the_first_misspelt_topics_get_suggestions(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            wrong = [topic(f"t{number}", retention_mss="1") for number in range(30)]
            made = await create_topics(await running.client(), *wrong)
            hint = "retention.mss: unknown setting, did you mean retention.ms?"
            texts = [one.error_message for one in made.values()]
            assert texts[:HINTED_TOPICS_MAX] == [hint] * HINTED_TOPICS_MAX
            assert set(texts[HINTED_TOPICS_MAX:]) == {"retention.mss: unknown setting"}

    run(scenario)

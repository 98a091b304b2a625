"""CreateTopics: each topic is created as requested, or refused with a reason."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from broker.handlers.test_delete_topics import delete
from broker.nodes import Client, broker, run
from broker.test_node import batch, create, produce
from cases import each_case
from ottla.broker.topics import CHANGED_AT_ONCE
from ottla.cluster.znodes import topic_config_path
from ottla.controller.store import DELETED_AT_ONCE
from ottla.coordination.journal import Journal
from ottla.coordination.tree import Transaction
from ottla.errors import ErrorCode
from ottla.ids import ZERO_UUID
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataResponse
from ottla.settings.topic import TOPIC

VERSIONS = range(2, 8)


def topic(
    name: str,
    partitions: int = -1,
    factor: int = -1,
    *,
    assignment: Mapping[int, list[int]] | None = None,
    **configs: str | None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in (assignment or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


async def create_topics(
    client: Client, *topics: CreatableTopic, validate_only: bool = False, version: int = 7
) -> dict[str, CreatableTopicResult]:
    request = CreateTopicsRequest(topics=topics, validate_only=validate_only)
    answer = await client.ask(request, CreateTopicsResponse, version)
    for one in answer.topics:
        assert bool(one.error_message) == bool(one.error_code)
    assert len({one.name for one in answer.topics}) == len(answer.topics)
    return {one.name: one for one in answer.topics}


async def partition_counts(client: Client) -> dict[str, int]:
    """Return the partition count of every topic."""
    found = await client.ask(MetadataRequest(topics=None), MetadataResponse)
    return {one.name or "": len(one.partitions) for one in found.topics}


def test_created_topic_is_described_in_every_version(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, "num.partitions=3") as running:
            client = await running.client()
            for version in VERSIONS:
                name = f"t{version}"
                asked = topic(name, retention_ms="5000")
                made = (await create_topics(client, asked, version=version))[name]
                assert made.error_code == 0
                if version >= 5:
                    assert (made.num_partitions, made.replication_factor) == (3, 1)
                    configs = {one.name: one for one in made.configs or ()}
                    assert set(configs) == set(TOPIC.settings)
                    own = configs["retention.ms"]
                    assert (own.value, own.config_source) == ("5000", 1)
                    assert (own.read_only, own.is_sensitive) == (False, False)
                    assert configs["segment.ms"].config_source == 5
                if version >= 7:
                    assert made.topic_id == running.parts.metadata_cache.image.topics[name].id
                    assert made.topic_id != ZERO_UUID
                assert await produce(client, name, batch(b"x"), index=2) == (0, 0)

    run(scenario)


def test_manual_assignment_is_used(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            asked = topic("t", assignment={1: [1], 0: [1]})
            made = (await create_topics(client, asked))["t"]
            assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 2, 1)
            assert await partition_counts(client) == {"t": 2}

    run(scenario)


def test_validate_only_creates_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "there")
            for version in VERSIONS:
                result = await create_topics(
                    client, topic("t", 2), topic("there"), validate_only=True, version=version
                )
                codes = {name: one.error_code for name, one in result.items()}
                assert codes == {"t": 0, "there": ErrorCode.TOPIC_ALREADY_EXISTS}
                if version >= 5:
                    assert result["t"].num_partitions == 2
            assert await partition_counts(client) == {"there": 1}

    run(scenario)


@each_case(
    ("asked", "code"),
    [
        (topic("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("the_re"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, assignment={0: [1]}), ErrorCode.INVALID_REQUEST),
        (topic("t", factor=1, assignment={0: [1]}), ErrorCode.INVALID_REQUEST),
        (topic("t", assignment={1: [1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", assignment={0: [7]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (topic("t", no_such="1"), ErrorCode.INVALID_CONFIG),
        (topic("t", retention_ms=None), ErrorCode.INVALID_CONFIG),
    ],
)
def test_refused_topic_does_not_affect_the_others(
    tmp_path: Path, asked: CreatableTopic, code: int
) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "there")
            await create(client, "the.re")
            for version in (2, 7):
                other = f"other{version}"
                result = await create_topics(client, asked, topic(other), version=version)
                codes = {name: one.error_code for name, one in result.items()}
                assert codes == {asked.name: code, other: 0}
            assert result[asked.name].num_partitions == -1
            assert result[asked.name].topic_id == ZERO_UUID
            assert await partition_counts(client) == {
                "there": 1,
                "the.re": 1,
                "other2": 1,
                "other7": 1,
            }

    run(scenario)


def test_null_config_values_are_named(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            result = await create_topics(
                client, topic("t", segment_ms="5", retention_ms=None, flush_ms=None)
            )
            assert "['flush.ms', 'retention.ms']" in (result["t"].error_message or "")

    run(scenario)


def test_duplicate_topic_name_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            for version in (2, 7):
                other = f"other{version}"
                result = await create_topics(
                    client, topic("t"), topic(other), topic("t", 2), version=version
                )
                codes = {name: one.error_code for name, one in result.items()}
                assert codes == {"t": ErrorCode.INVALID_REQUEST, other: 0}
            assert set(await partition_counts(client)) == {"other2", "other7"}

    run(scenario)


def test_duplicate_partition_assignment_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            asked = topic("t", assignment={0: [1]})
            asked.assignments = [*asked.assignments, *asked.assignments]
            result = await create_topics(client, asked)
            assert result["t"].error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT

    run(scenario)


INTERNAL = ("offsets.topic.num.partitions=2", "transaction.state.log.num.partitions=2")


def test_internal_topics_get_their_own_configs(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, *INTERNAL) as running:
            client = await running.client()
            required = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
            for name in ("__consumer_offsets", "__transaction_state"):
                for validate_only in (True, False):
                    made = (
                        await create_topics(
                            client,
                            topic(name, 2, cleanup_policy="delete", segment_bytes="2000000"),
                            validate_only=validate_only,
                        )
                    )[name]
                    assert made.error_code == 0
                    configs = {one.name: one.value for one in made.configs or ()}
                    assert {key: configs[key] for key in required} == required
                kept = running.parts.settings.topic_values(name)
                assert {key: kept[key] for key in required} == required

    run(scenario)


def test_internal_topics_have_the_partitions_of_the_settings(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, *INTERNAL, "num.partitions=5") as running:
            client = await running.client()
            for name in ("__consumer_offsets", "__transaction_state"):
                for count in (1, 3):
                    refused = (await create_topics(client, topic(name, count)))[name]
                    assert refused.error_code == ErrorCode.POLICY_VIOLATION
                    assert "must have 2 partitions" in (refused.error_message or "")
                made = (await create_topics(client, topic(name, -1)))[name]
                assert (made.error_code, made.num_partitions) == (0, 2)

    run(scenario)


def test_internal_topics_reject_harmful_configs(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, *INTERNAL) as running:
            client = await running.client()
            for name in ("__consumer_offsets", "__transaction_state"):
                for asked, setting in (
                    (topic(name, 2, max_message_bytes="100"), "max.message.bytes"),
                    (topic(name, 2, min_insync_replicas="2"), "min.insync.replicas"),
                ):
                    refused = (await create_topics(client, asked))[name]
                    assert refused.error_code == ErrorCode.POLICY_VIOLATION
                    assert setting in (refused.error_message or "")
                allowed = topic(name, 2, max_message_bytes="2000000", min_insync_replicas="1")
                assert (await create_topics(client, allowed))[name].error_code == 0

    run(scenario)


def test_topics_of_a_request_are_stored_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[int] = []
    append = Journal.append

    def counted(journal: Journal, transactions: Sequence[Transaction]) -> None:
        writes.append(len(transactions))
        append(journal, transactions)

    async def scenario() -> None:
        names = [f"t{number}" for number in range(CHANGED_AT_ONCE + 1)]
        async with broker(tmp_path) as running:
            client = await running.client()
            monkeypatch.setattr(Journal, "append", counted)
            made = await create_topics(client, topic("a b"), *map(topic, names))
            assert [one.error_code for one in made.values()] == [
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                *[0] * len(names),
            ]
            assert len(writes) == 4  # twice: the topics, and then their first leaders
            writes.clear()
            gone = await delete(client, *((name, ZERO_UUID) for name in ("x", *names)))
            assert gone == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, *[0] * len(names)]
            # Twice: the records of the deletions, and then up to six nodes per topic in steps.
            steps = [-(-6 * count // DELETED_AT_ONCE) for count in (CHANGED_AT_ONCE, 1)]
            assert len(writes) == 2 + sum(steps) == 6
            assert await partition_counts(client) == {}
        async with broker(tmp_path) as running:
            assert await partition_counts(await running.client()) == {}

    run(scenario)


def test_colliding_topics_of_a_request_are_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            made = await create_topics(await running.client(), topic("a.b"), topic("a_b"))
            assert made["a.b"].error_code == 0
            assert made["a_b"].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    run(scenario)


def test_foreign_node_hinders_only_the_topic_of_its_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            session = running.parts.topics.controller.store._session  # pyright: ignore[reportPrivateUsage]
            await session.create(topic_config_path("b"), b"")
            made = await create_topics(
                await running.client(), *(topic(name, retention_ms="5000") for name in "abc")
            )
            codes = [made[name].error_code for name in "abc"]
            assert codes == [0, ErrorCode.NOT_CONTROLLER, 0]

    run(scenario)

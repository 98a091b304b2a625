"""The configs of internal topics, over the wire: a change must not lose committed offsets."""

from pathlib import Path

from broker.members import find_coordinator
from broker.nodes import Client, broker, run
from broker.test_configs import TOPIC_RESOURCE
from broker.test_node import create
from broker.test_offset_commits import commit, committed
from ottla.broker.configs import Change
from ottla.errors import ErrorCode
from ottla.protocol.messages import alter_configs, incremental_alter_configs

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
Outcome = tuple[int, str]


async def replace(
    client: Client, topic: str, values: dict[str, str], *, validate_only: bool = False
) -> Outcome:
    configs = [alter_configs.AlterableConfig(name=key, value=values[key]) for key in values]
    asked = alter_configs.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configs=configs
    )
    request = alter_configs.AlterConfigsRequest(resources=[asked], validate_only=validate_only)
    (one,) = (await client.ask(request, alter_configs.AlterConfigsResponse)).responses
    return one.error_code, one.error_message or ""


async def change(client: Client, topic: str, *changes: tuple[str, Change, str | None]) -> Outcome:
    configs = [
        incremental_alter_configs.AlterableConfig(name=key, config_operation=how, value=value)
        for key, how, value in changes
    ]
    asked = incremental_alter_configs.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic, configs=configs
    )
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[asked], validate_only=False
    )
    response = incremental_alter_configs.IncrementalAlterConfigsResponse
    (one,) = (await client.ask(request, response)).responses
    return one.error_code, one.error_message or ""


def refusal(topic: str, problem: str) -> Outcome:
    return ErrorCode.POLICY_VIOLATION, f"{topic} is an internal topic: {problem}."


def test_required_configs_of_internal_topics_stay(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, "offsets.topic.num.partitions=1") as running:
            client = await running.client()
            await create(client, "t")
            await create(client, TRANSACTIONS, 50)
            await find_coordinator(client)
            assert await commit(client, 5) == 0
            settings = running.parts.settings
            for topic in (OFFSETS, TRANSACTIONS):
                before = dict(settings.topic_values(topic))
                loss = {"cleanup.policy": "delete", "retention.ms": "1", "segment.ms": "1000"}
                must = "cleanup.policy must be compact, but would be"
                deleted = refusal(topic, f"{must} delete")
                assert await replace(client, topic, loss) == deleted
                assert await replace(client, topic, loss, validate_only=True) == deleted
                sets = [(key, Change.SET, value) for key, value in loss.items()]
                assert await change(client, topic, *sets) == deleted
                policy = "cleanup.policy"
                for how, value, wrong in (
                    (Change.DELETE, None, "unset"),
                    (Change.APPEND, "delete", "compact,delete"),
                ):
                    refused = await change(client, topic, (policy, how, value))
                    assert refused == refusal(topic, f"{must} {wrong}")
                for key, value in (
                    ("compression.type", "zstd"),
                    ("segment.bytes", "2000000"),
                    ("max.message.bytes", "100"),
                    ("min.insync.replicas", "2"),
                ):
                    for code, text in (
                        await replace(client, topic, {key: value}),
                        await change(client, topic, (key, Change.SET, value)),
                    ):
                        assert code == ErrorCode.POLICY_VIOLATION
                        assert f"{key} must be" in text
                        assert text.endswith(f"but would be {value}.")
                assert settings.topic_values(topic) == before
                assert await replace(client, topic, {}) == (0, "")
                assert settings.topic_values(topic) == before
                other = {"min.compaction.lag.ms": "5", "max.message.bytes": "2000000"}
                assert await replace(client, topic, other) == (0, "")
                assert settings.topic_values(topic) == before | other
                same = (policy, Change.SET, " compact")
                assert await change(client, topic, same) == (0, "")
        async with broker(tmp_path, "offsets.topic.segment.bytes=50000000") as running:
            client = await running.client()
            await find_coordinator(client)
            assert await committed(client) == 5
            settings = running.parts.settings
            # The file has a new value: a replacement keeps the old one, and a client may set it.
            assert await replace(client, OFFSETS, {}) == (0, "")
            assert settings.topic_values(OFFSETS)["segment.bytes"] == "104857600"
            resized = ("segment.bytes", Change.SET, "50000000")
            assert await change(client, OFFSETS, resized) == (0, "")

    run(scenario)

"""Settings that change while the broker runs."""

import asyncio
import logging
from pathlib import Path

import pytest

from broker.nodes import Client, broker, run
from broker.test_node import create
from cases import each_case
from ottla.broker.configs import Change, Changes, changed
from ottla.clock import SystemClock
from ottla.controller.lease import elect_controller
from ottla.controller.store import ClusterStore
from ottla.coordination.embedded import EmbeddedStore
from ottla.errors import ErrorCode, OttlaError, RequestError
from ottla.ids import BrokerId
from ottla.log.files import OsDisk
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.settings.topic import TOPIC

TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
SMALLEST_LAG, LAG = "log.cleaner.min.compaction.lag.ms", "min.compaction.lag.ms"


def test_incremental_changes_are_applied_in_order() -> None:
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


@each_case(
    ("changes", "code"),
    [
        ([("a", 0, "1"), ("a", 1, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("retention.ms", 2, "1")], ErrorCode.INVALID_CONFIG),
    ],
)
def test_invalid_incremental_changes_are_refused(changes: Changes, code: ErrorCode) -> None:
    with pytest.raises(RequestError) as refused:
        changed({}, changes, TOPIC)
    assert refused.value.code is code


async def described(client: Client, kind: int, name: str, key: str) -> tuple[str | None, int]:
    """Return the value and the source of a setting."""
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


def test_change_applies_at_once_and_after_a_restart(tmp_path: Path) -> None:
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


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the settings of which the broker has warned since the last call."""
    found = [
        str(record.args["name"])
        for record in caplog.records
        if record.msg == "setting ignored or adjusted" and isinstance(record.args, dict)
    ]
    caplog.clear()
    return found


def test_settings_without_effect_are_accepted_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kerberos, threads = "sasl.kerberos.min.time.before.relogin", "num.io.threads"

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            assert await described(client, BROKER_RESOURCE, "1", kerberos) == ("60000", 5)
            assert await set_one(client, BROKER_RESOURCE, "1", kerberos, "70000") == 0
            assert warned(caplog) == [kerberos]
            assert await described(client, BROKER_RESOURCE, "1", kerberos) == ("70000", 2)
            assert await set_one(client, BROKER_RESOURCE, "", threads, "9") == 0
            assert warned(caplog) == [threads]
            assert await described(client, BROKER_RESOURCE, "1", threads) == ("9", 3)
            assert await set_one(client, BROKER_RESOURCE, "1", "log.retention.ms", "5000") == 0
            assert warned(caplog) == []  # the setting was set before
            for name, key, value in (
                ("", kerberos, "70000"),  # only for a single broker
                ("1", kerberos, "soon"),
                ("1", threads, "0"),
                ("1", "telemetry.max.bytes", "1048576"),  # read-only in Kafka, too
                ("1", "no.such.setting", "1"),
            ):
                code = await set_one(client, BROKER_RESOURCE, name, key, value)
                assert code == ErrorCode.INVALID_REQUEST, (name, key)
            assert warned(caplog) == []
        async with broker(tmp_path) as running:
            assert sorted(warned(caplog)) == [threads, kerberos]
            client = await running.client()
            assert await described(client, BROKER_RESOURCE, "1", kerberos) == ("70000", 2)

    with caplog.at_level(logging.WARNING, "ottla"):
        run(scenario)


def test_names_that_kafka_does_not_know_are_described_as_secrets(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, "confluent.license=hunter2") as running:
            client = await running.client()
            assert await described(client, BROKER_RESOURCE, "1", "confluent.license") == (None, 4)
            name = "confluent.balancer.enable"
            assert await set_one(client, BROKER_RESOURCE, "", name, "true") == 0
            asked = DescribeConfigsResource(
                resource_type=BROKER_RESOURCE, resource_name="1", configuration_keys=[name]
            )
            request = DescribeConfigsRequest(
                resources=[asked], include_synonyms=True, include_documentation=True
            )
            answer = await client.ask(request, DescribeConfigsResponse)
            (found,) = answer.results[0].configs
            assert (found.value, found.config_source, found.config_type) == (None, 3, 0)
            assert found.is_sensitive
            assert found.read_only
            assert found.documentation is None
            assert [(one.name, one.value, one.source) for one in found.synonyms] == [
                (name, None, 3)
            ]

    run(scenario)


def test_number_of_dynamic_settings_is_limited(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            for count, code in ((1000, 0), (1001, ErrorCode.INVALID_REQUEST)):
                configs = [
                    AlterableConfig(name=f"confluent.{number}", config_operation=0, value="1")
                    for number in range(count)
                ]
                resource = AlterConfigsResource(
                    resource_type=BROKER_RESOURCE, resource_name="", configs=configs
                )
                request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
                answer = await client.ask(request, IncrementalAlterConfigsResponse)
                assert answer.responses[0].error_code == code

    run(scenario)


def test_stored_setting_that_is_read_only_now_is_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with broker(tmp_path):
            pass
        store = EmbeddedStore.open(OsDisk(), f"{tmp_path}/coordination", SystemClock())
        lease = await elect_controller(await store.connect(lambda state: None), BrokerId(1), 0)
        assert lease is not None
        stored = {"ottla.partitions.max": "7", "message.max.bytes": "2000000"}
        await ClusterStore(lease).set_broker_config(None, stored)
        await store.close()
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t", 8)

    run(scenario)
    (warning,) = [one for one in caplog.records if "ottla.partitions.max" in str(one.args)]
    assert "set it in the properties file" in str(warning.args)


@pytest.mark.parametrize("setting", ["log.cleaner.threads", "num.io.threads"])
def test_threads_change_by_at_most_a_factor_of_two(tmp_path: Path, setting: str) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, f"{setting}=4") as running:
            client = await running.client()

            async def set_to(count: int) -> int:
                return await set_one(client, BROKER_RESOURCE, "1", setting, str(count))

            for refused in (0, 1, 9):
                assert await set_to(refused) == ErrorCode.INVALID_REQUEST
            for taken in (8, 16, 8, 4, 2):
                assert await set_to(taken) == 0
            assert await set_to(5) == ErrorCode.INVALID_REQUEST

    run(scenario)


def test_conflicting_broker_default_does_not_break_a_topic(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t", max_compaction_lag_ms="3600000")
            assert await set_one(client, BROKER_RESOURCE, "", SMALLEST_LAG, "7200000") == 0
            assert await described(client, TOPIC_RESOURCE, "t", LAG) == ("7200000", 3)
            refused = await set_one(client, TOPIC_RESOURCE, "t", "max.compaction.lag.ms", "1000")
            assert refused == ErrorCode.INVALID_CONFIG
        async with broker(tmp_path) as running:
            client = await running.client()
            assert await described(client, TOPIC_RESOURCE, "t", LAG) == ("7200000", 3)

    run(scenario)


def test_properties_file_conflict_is_reported(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            most = "log.cleaner.max.compaction.lag.ms"
            assert await set_one(client, BROKER_RESOURCE, "", most, "5000") == 0
        with pytest.raises(OttlaError, match=r"conflict with the properties file.*compaction"):
            async with broker(tmp_path, f"{SMALLEST_LAG}=60000"):
                pass
        async with broker(tmp_path):
            pass

    run(scenario)


@pytest.mark.parametrize(
    ("kind", "name", "keys"),
    [
        (TOPIC_RESOURCE, "t", ("retention.ms", "max.message.bytes")),
        (BROKER_RESOURCE, "", ("log.retention.ms", "message.max.bytes")),
    ],
)
def test_concurrent_changes_are_all_applied(
    tmp_path: Path, kind: int, name: str, keys: tuple[str, str]
) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            first, second = await running.client(), await running.client()
            await create(first, "t")
            done = await asyncio.gather(
                set_one(first, kind, name, keys[0], "1111"),
                set_one(second, kind, name, keys[1], "2222"),
            )
            assert done == [0, 0]
            assert (await described(first, kind, name, keys[0]))[0] == "1111"
            assert (await described(first, kind, name, keys[1]))[0] == "2222"

    run(scenario)


def test_secret_is_stored_in_a_private_file(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            assert await set_one(client, BROKER_RESOURCE, "1", "ssl.key.password", "hush") == 0
        holding = [
            one for one in tmp_path.rglob("*") if one.is_file() and b"hush" in one.read_bytes()
        ]
        assert holding
        assert {one.stat().st_mode & 0o777 for one in holding} == {0o600}

    run(scenario)


def test_groups_work_with_the_smallest_segment_size(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, "offsets.topic.segment.bytes=1") as running:
            client = await running.client()
            asked = FindCoordinatorRequest(key="g", key_type=0)
            assert (await client.ask(asked, FindCoordinatorResponse, 2)).error_code == 0
            smallest = ("1048576", 1)
            topic = "__consumer_offsets"
            assert await described(client, TOPIC_RESOURCE, topic, "segment.bytes") == smallest

    run(scenario)

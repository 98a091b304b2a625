"""AlterConfigs: replaces all settings of a resource, or none of them."""

import logging
from pathlib import Path

import pytest

from broker.nodes import Client, broker, run
from broker.test_configs import BROKER_RESOURCE, TOPIC_RESOURCE, described, set_one, warned
from broker.test_node import create
from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResponse,
)

VERSIONS = (0, 1, 2)
DEFAULT_RETENTION = ("604800000", 5)


def resource(kind: int, name: str, *values: tuple[str, str | None]) -> AlterConfigsResource:
    configs = [AlterableConfig(name=key, value=value) for key, value in values]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


async def replace(
    client: Client, *asked: AlterConfigsResource, validate_only: bool = False, version: int = 2
) -> list[tuple[int, str, int]]:
    """Return the type, name and error code of each resource; every error has a message."""
    request = AlterConfigsRequest(resources=asked, validate_only=validate_only)
    answer = await client.ask(request, AlterConfigsResponse, version)
    for one in answer.responses:
        assert bool(one.error_message) == bool(one.error_code)
    return [(one.resource_type, one.resource_name, one.error_code) for one in answer.responses]


async def replace_topic(
    client: Client, *values: tuple[str, str | None], validate_only: bool = False, version: int = 2
) -> int:
    asked = resource(TOPIC_RESOURCE, "t", *values)
    ((_, _, code),) = await replace(client, asked, validate_only=validate_only, version=version)
    return code


def test_omitted_settings_are_unset(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            for version in VERSIONS:
                before = ("retention.ms", "5000")
                assert await replace_topic(client, before, version=version) == 0
                assert await described(client, TOPIC_RESOURCE, "t", "retention.ms") == ("5000", 1)
                assert await replace_topic(client, ("segment.ms", "1000"), version=version) == 0
                assert await described(client, TOPIC_RESOURCE, "t", "segment.ms") == ("1000", 1)
                now = await described(client, TOPIC_RESOURCE, "t", "retention.ms")
                assert now == DEFAULT_RETENTION
            assert await replace_topic(client) == 0
            assert (await described(client, TOPIC_RESOURCE, "t", "segment.ms"))[1] == 5

    run(scenario)


def test_validate_only_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t", retention_ms="7")
            for version in VERSIONS:
                good, bad = ("retention.ms", "5000"), ("retention.ms", "soon")
                for value, code in ((good, 0), (bad, ErrorCode.INVALID_CONFIG)):
                    result = await replace_topic(client, value, validate_only=True, version=version)
                    assert result == code
            own = resource(BROKER_RESOURCE, "1", ("log.cleaner.threads", "2"))
            assert await replace(client, own, validate_only=True) == [(BROKER_RESOURCE, "1", 0)]
            assert await described(client, TOPIC_RESOURCE, "t", "retention.ms") == ("7", 1)
            assert await described(client, BROKER_RESOURCE, "1", "log.cleaner.threads") == ("1", 5)

    run(scenario)


def test_one_bad_value_rejects_all_changes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t", retention_ms="7")
            good = ("segment.ms", "1000")
            for bad, code in (
                (("retention.ms", None), ErrorCode.INVALID_REQUEST),
                (("segment.ms", "2000"), ErrorCode.INVALID_REQUEST),  # twice
                (("retention.ms", "soon"), ErrorCode.INVALID_CONFIG),
                (("no.such", "1"), ErrorCode.INVALID_CONFIG),
            ):
                assert await replace_topic(client, good, bad) == code, bad
            assert await described(client, TOPIC_RESOURCE, "t", "retention.ms") == ("7", 1)
            assert (await described(client, TOPIC_RESOURCE, "t", "segment.ms"))[1] == 5

    run(scenario)


def test_each_resource_has_its_own_result(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            value = ("retention.ms", "5000")
            expected = {
                (TOPIC_RESOURCE, "nowhere"): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                (TOPIC_RESOURCE, ""): ErrorCode.INVALID_REQUEST,
                (TOPIC_RESOURCE, "a/b"): ErrorCode.INVALID_TOPIC_EXCEPTION,
                (BROKER_RESOURCE, "7"): ErrorCode.INVALID_REQUEST,
                (BROKER_RESOURCE, "1"): ErrorCode.INVALID_REQUEST,  # a topic's setting
                (99, "t"): ErrorCode.INVALID_REQUEST,
                (TOPIC_RESOURCE, "t"): ErrorCode.NONE,
            }
            asked = [resource(kind, name, value) for kind, name in expected]
            result = await replace(client, *asked)
            assert result == [(*key, code) for key, code in expected.items()]
            assert await described(client, TOPIC_RESOURCE, "t", "retention.ms") == ("5000", 1)

    run(scenario)


def test_duplicate_resource_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            for name in ("t", "other"):
                await create(client, name)
            asked = [
                resource(TOPIC_RESOURCE, name, ("retention.ms", value))
                for name, value in (("t", "1"), ("other", "2"), ("t", "3"))
            ]
            twice = (TOPIC_RESOURCE, "t", ErrorCode.INVALID_REQUEST)
            assert await replace(client, *asked) == [twice, (TOPIC_RESOURCE, "other", 0), twice]
            now = await described(client, TOPIC_RESOURCE, "t", "retention.ms")
            assert now == DEFAULT_RETENTION
            assert await described(client, TOPIC_RESOURCE, "other", "retention.ms") == ("2", 1)

    run(scenario)


def test_broker_and_cluster_settings_are_separate(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            key = "log.cleaner.threads"
            assert await set_one(client, BROKER_RESOURCE, "1", key, "2") == 0
            everybody = resource(BROKER_RESOURCE, "", (key, "3"))
            assert await replace(client, everybody) == [(BROKER_RESOURCE, "", 0)]
            assert await described(client, BROKER_RESOURCE, "1", key) == ("2", 2)
            own = resource(BROKER_RESOURCE, "1", ("log.retention.ms", "5000"))
            assert await replace(client, own) == [(BROKER_RESOURCE, "1", 0)]
            assert await described(client, BROKER_RESOURCE, "1", key) == ("3", 3)
            stolen = resource(BROKER_RESOURCE, "1", ("ssl.keystore.location", "/etc/passwd"))
            refused = (BROKER_RESOURCE, "1", ErrorCode.INVALID_REQUEST)
            assert await replace(client, stolen) == [refused]

    run(scenario)


def test_settings_without_effect_are_accepted_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kerberos, threads = "sasl.kerberos.min.time.before.relogin", "num.io.threads"

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            for name, key, value, source in (("1", kerberos, "70000", 2), ("", threads, "9", 3)):
                asked = resource(BROKER_RESOURCE, name, (key, value))
                assert await replace(client, asked) == [(BROKER_RESOURCE, name, 0)]
                assert warned(caplog) == [key]
                assert await described(client, BROKER_RESOURCE, "1", key) == (value, source)
            asked = resource(BROKER_RESOURCE, "1", (kerberos, "soon"))
            refused = (BROKER_RESOURCE, "1", ErrorCode.INVALID_REQUEST)
            assert await replace(client, asked) == [refused]
            assert warned(caplog) == []

    with caplog.at_level(logging.WARNING, "ottla"):
        run(scenario)

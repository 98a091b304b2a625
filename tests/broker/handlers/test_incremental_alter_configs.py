"""IncrementalAlterConfigs: changes single settings of a resource, all of them or none."""

from pathlib import Path

import pytest

from broker.nodes import Client, broker, run
from broker.test_configs import BROKER_RESOURCE, TOPIC_RESOURCE, described
from broker.test_node import create
from cases import each_case
from ottla.broker.configs import TOPIC_CONFIGS_MAX, Change
from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_configs import AlterableConfig as OldConfig
from ottla.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
)
from ottla.protocol.messages.alter_configs import AlterConfigsResource as OldResource
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

SET, DELETE, APPEND, SUBTRACT = Change

One = tuple[str, int, str | None]


def resource(kind: int, name: str, *changes: One) -> AlterConfigsResource:
    configs = [
        AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    return AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)


async def change(
    client: Client, *asked: AlterConfigsResource, validate_only: bool = False, version: int = 1
) -> list[tuple[int, str, int]]:
    """Return the type, name and error code of each resource; every error has a message."""
    request = IncrementalAlterConfigsRequest(resources=asked, validate_only=validate_only)
    answer = await client.ask(request, IncrementalAlterConfigsResponse, version)
    for one in answer.responses:
        assert bool(one.error_message) == bool(one.error_code)
    return [(one.resource_type, one.resource_name, one.error_code) for one in answer.responses]


async def alter(client: Client, resource_name: str, name: str, value: str) -> int:
    """Replace all configs of a broker resource with AlterConfigs; return the error code."""
    configs = [OldConfig(name=name, value=value)]
    asked = OldResource(resource_type=BROKER_RESOURCE, resource_name=resource_name, configs=configs)
    request = AlterConfigsRequest(resources=[asked], validate_only=False)
    answer = await client.ask(request, AlterConfigsResponse, 2)
    return answer.responses[0].error_code


async def change_topic(client: Client, *changes: One, version: int = 1) -> int:
    asked = resource(TOPIC_RESOURCE, "t", *changes)
    ((_, _, code),) = await change(client, asked, version=version)
    return code


@pytest.mark.parametrize("version", [0, 1])
def test_set_append_subtract_and_delete(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t", segment_ms="1000")
            key = "cleanup.policy"
            for one, now in (
                ((key, APPEND, "compact"), ("delete,compact", 1)),
                ((key, SUBTRACT, "delete"), ("compact", 1)),
                ((key, SET, "compact,delete"), ("compact,delete", 1)),
                ((key, DELETE, None), ("delete", 5)),
                ((key, DELETE, "ignored"), ("delete", 5)),
            ):
                assert await change_topic(client, one, version=version) == 0
                assert await described(client, TOPIC_RESOURCE, "t", key) == now, one
            # Settings that the request does not name are unchanged.
            assert await described(client, TOPIC_RESOURCE, "t", "segment.ms") == ("1000", 1)
            assert await change_topic(client, version=version) == 0

    run(scenario)


@each_case(
    ("bad", "code"),
    [
        (("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", SET, None), ErrorCode.INVALID_REQUEST),
        (("retention.ms", APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", 9, "1"), ErrorCode.INVALID_REQUEST),
        (("no.such", SET, "1"), ErrorCode.INVALID_CONFIG),
        (("segment.ms", DELETE, None), ErrorCode.INVALID_REQUEST),  # given twice
    ],
)
def test_one_bad_change_rejects_all_changes(tmp_path: Path, bad: One, code: int) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            for version in (0, 1):
                good = ("segment.ms", SET, "1000")
                assert await change_topic(client, good, bad, version=version) == code
            assert (await described(client, TOPIC_RESOURCE, "t", "segment.ms"))[1] == 5

    run(scenario)


def test_config_that_admits_no_client_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            for name in (
                "max.connections",
                "listener.name.plaintext.max.connections",
                "max.connections.per.ip",
                "max.connection.creation.rate",
            ):
                for value, code in (
                    ("0", ErrorCode.INVALID_REQUEST),
                    ("-0", ErrorCode.INVALID_REQUEST),
                    ("10", ErrorCode.NONE),
                ):
                    asked = resource(BROKER_RESOURCE, "", (name, SET, value))
                    assert await change(client, asked) == [(BROKER_RESOURCE, "", code)], name
                    assert await alter(client, "", name, value) == code, name

    run(scenario)


@pytest.mark.parametrize("name", ["", "1"])
def test_override_that_locks_out_an_address_is_refused(tmp_path: Path, name: str) -> None:
    overrides = "max.connections.per.ip.overrides"

    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            for value in ("127.0.0.1:0", "127.0.0.1:00", "10.0.0.1:5 , ::1:0", "::1:0,10.0.0.1:5"):
                for operation in (SET, APPEND):
                    asked = resource(BROKER_RESOURCE, name, (overrides, operation, value))
                    result = await change(client, asked)
                    assert result == [(BROKER_RESOURCE, name, ErrorCode.INVALID_REQUEST)]
                assert await alter(client, name, overrides, value) == ErrorCode.INVALID_REQUEST
            assert (await described(client, BROKER_RESOURCE, "1", overrides))[1] == 5
            await running.client()
            for value in ("10.0.0.1:5, ::1:10", ""):
                asked = resource(BROKER_RESOURCE, name, (overrides, SET, value))
                assert await change(client, asked) == [(BROKER_RESOURCE, name, 0)]

    run(scenario)


def test_validate_only_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            asked = [
                resource(TOPIC_RESOURCE, "t", ("retention.ms", SET, "5000")),
                resource(BROKER_RESOURCE, "1", ("log.cleaner.threads", SET, "2")),
                resource(BROKER_RESOURCE, "", ("log.cleaner.threads", SET, "0")),
            ]
            for version in (0, 1):
                result = await change(client, *asked, validate_only=True, version=version)
                codes = [code for _, _, code in result]
                assert codes == [0, 0, ErrorCode.INVALID_REQUEST]
            assert (await described(client, TOPIC_RESOURCE, "t", "retention.ms"))[1] == 5
            assert await described(client, BROKER_RESOURCE, "1", "log.cleaner.threads") == ("1", 5)

    run(scenario)


def test_each_resource_has_its_own_result(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            expected = {
                (TOPIC_RESOURCE, "nowhere"): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                (TOPIC_RESOURCE, ""): ErrorCode.INVALID_REQUEST,
                (TOPIC_RESOURCE, "a/b"): ErrorCode.INVALID_TOPIC_EXCEPTION,
                (BROKER_RESOURCE, "7"): ErrorCode.INVALID_REQUEST,
                (BROKER_RESOURCE, "1"): ErrorCode.INVALID_REQUEST,  # a topic's setting
                (8, "1"): ErrorCode.INVALID_REQUEST,
                (TOPIC_RESOURCE, "t"): ErrorCode.NONE,
            }
            asked = [resource(kind, name, ("retention.ms", SET, "5000")) for kind, name in expected]
            result = await change(client, *asked)
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
                resource(TOPIC_RESOURCE, name, (key, SET, "2000"))
                for name, key in (("t", "retention.ms"), ("other", "flush.ms"), ("t", "flush.ms"))
            ]
            twice = (TOPIC_RESOURCE, "t", ErrorCode.INVALID_REQUEST)
            assert await change(client, *asked) == [twice, (TOPIC_RESOURCE, "other", 0), twice]
            for key in ("retention.ms", "flush.ms"):
                assert (await described(client, TOPIC_RESOURCE, "t", key))[1] == 5
            assert await described(client, TOPIC_RESOURCE, "other", "flush.ms") == ("2000", 1)

    run(scenario)


def test_list_value_length_is_limited(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            key = "leader.replication.throttled.replicas"

            def replicas(start: int) -> str:
                return ",".join(f"{number}:1" for number in range(start, start + 3000))

            assert await change_topic(client, (key, SET, replicas(0))) == 0
            refused = await change_topic(client, (key, APPEND, replicas(3000)))
            assert refused == ErrorCode.INVALID_CONFIG
            assert (await described(client, TOPIC_RESOURCE, "t", key))[0] == replicas(0)

    run(scenario)


def test_long_error_message_is_truncated(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            long = "x" * 32_000
            assert await change_topic(client, (long, APPEND, "1")) == ErrorCode.INVALID_CONFIG
            twice = await change_topic(client, (long, SET, "1"), (long, SET, "2"))
            assert twice == ErrorCode.INVALID_REQUEST
            many = [(f"{number}{long[:100]}", int(SET), "1") for number in range(TOPIC_CONFIGS_MAX)]
            assert await change_topic(client, *many) == ErrorCode.INVALID_CONFIG
            ((_, _, code),) = await change(client, resource(BROKER_RESOURCE, long))
            assert code == ErrorCode.INVALID_REQUEST

    run(scenario)

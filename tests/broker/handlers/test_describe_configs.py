"""DescribeConfigs: values, their sources and their synonyms."""

from collections.abc import Sequence
from pathlib import Path

from broker.nodes import Client, broker, run
from broker.test_configs import BROKER_RESOURCE, TOPIC_RESOURCE, set_one
from broker.test_node import batch, create, produce
from ottla.cluster.traffic import TRAFFIC_CONFIG, parse_traffic
from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.release import RELEASE, VERSION_CONFIG
from ottla.settings.broker import BROKER
from ottla.settings.topic import TOPIC

OF_TOPIC, OF_BROKER, OF_ALL, OF_FILE, DEFAULT = 1, 2, 3, 4, 5
LONG = 5  # the type number of LONG

Synonyms = list[tuple[str, str | None, int]]


async def describe(
    client: Client,
    kind: int,
    name: str,
    keys: Sequence[str] | None = None,
    *,
    synonyms: bool = False,
    documentation: bool = False,
    version: int = 4,
) -> DescribeConfigsResult:
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(
        resources=[asked], include_synonyms=synonyms, include_documentation=documentation
    )
    (found,) = (await client.ask(request, DescribeConfigsResponse, version)).results
    assert (found.resource_type, found.resource_name) == (kind, name)
    return found


async def setting(
    client: Client, kind: int, name: str, key: str
) -> tuple[DescribeConfigsResourceResult, Synonyms]:
    found = await describe(client, kind, name, [key], synonyms=True)
    (one,) = found.configs
    assert one.name == key
    return one, [(two.name, two.value, two.source) for two in one.synonyms]


def test_all_or_the_named_settings_are_described(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            for version in (1, 4):
                for keys in (None, ()):
                    found = await describe(client, TOPIC_RESOURCE, "t", keys, version=version)
                    assert {one.name for one in found.configs} == set(TOPIC.settings)
                    found = await describe(client, BROKER_RESOURCE, "1", keys, version=version)
                    assert {one.name for one in found.configs} >= set(BROKER.settings)
                named = ["retention.ms", "no.such", "segment.ms"]
                found = await describe(client, TOPIC_RESOURCE, "t", named, version=version)
                assert {one.name for one in found.configs} == {"retention.ms", "segment.ms"}

    run(scenario)


def test_version_is_described_only_by_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            found = await describe(client, BROKER_RESOURCE, "1")
            assert VERSION_CONFIG not in {one.name for one in found.configs}
            one, synonyms = await setting(client, BROKER_RESOURCE, "1", VERSION_CONFIG)
            assert (one.value, one.read_only, one.config_source) == (RELEASE, True, OF_FILE)
            assert synonyms == []
            await create(client, "t")
            found = await describe(client, TOPIC_RESOURCE, "t", [VERSION_CONFIG])
            assert not found.configs

    run(scenario)


def test_traffic_is_described_only_by_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t", 2)
            await produce(client, "t", batch(b"x" * 100_000), index=1)
            found = await describe(client, BROKER_RESOURCE, "1")
            assert TRAFFIC_CONFIG not in {one.name for one in found.configs}
            one, _ = await setting(client, BROKER_RESOURCE, "1", TRAFFIC_CONFIG)
            assert one.value is not None
            rates = parse_traffic(one.value)
            assert [*rates] == [("t", 1)]
            assert rates["t", 1].bytes_in > 0
            assert rates["t", 1].bytes_out == 0
            found = await describe(client, TOPIC_RESOURCE, "t", [TRAFFIC_CONFIG])
            assert not found.configs
            # A value of an older version has at most 32 KB.
            found = await describe(client, BROKER_RESOURCE, "1", [TRAFFIC_CONFIG], version=3)
            assert not found.configs

    run(scenario)


def test_most_specific_source_wins(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, "log.segment.bytes=3000000") as running:
            client = await running.client()
            await create(client, "t")
            at = (client, TOPIC_RESOURCE, "t", "segment.bytes")
            told: Synonyms = [
                ("log.segment.bytes", "3000000", OF_FILE),
                ("log.segment.bytes", "1073741824", DEFAULT),
            ]
            for kind, name, key, value, source in (
                (None, "", "log.segment.bytes", "3000000", OF_FILE),
                (BROKER_RESOURCE, "", "log.segment.bytes", "4000000", OF_ALL),
                (BROKER_RESOURCE, "1", "log.segment.bytes", "5000000", OF_BROKER),
                (TOPIC_RESOURCE, "t", "segment.bytes", "6000000", OF_TOPIC),
            ):
                if kind is not None:
                    assert await set_one(client, kind, name, key, value) == 0
                    told.insert(0, (key, value, source))
                one, synonyms = await setting(*at)
                assert (one.value, one.config_source) == (value, source)
                assert synonyms == told
                assert not one.read_only
                assert not one.is_sensitive

    run(scenario)


def test_synonyms_start_at_the_first_that_is_set(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            one, synonyms = await setting(client, TOPIC_RESOURCE, "t", "retention.ms")
            assert (one.value, one.config_source) == ("604800000", DEFAULT)
            assert synonyms == []
            await set_one(client, BROKER_RESOURCE, "1", "log.retention.ms", "5000")
            one, synonyms = await setting(client, TOPIC_RESOURCE, "t", "retention.ms")
            assert (one.value, one.config_source) == ("5000", OF_BROKER)
            assert synonyms == [
                ("log.retention.ms", "5000", OF_BROKER),
                ("log.retention.hours", "168", DEFAULT),
            ]

    run(scenario)


def test_cluster_default_lists_only_settings_that_are_set(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            assert not (await describe(client, BROKER_RESOURCE, "")).configs
            await set_one(client, BROKER_RESOURCE, "", "log.cleaner.threads", "2")
            await set_one(client, BROKER_RESOURCE, "1", "log.cleaner.threads", "3")
            await set_one(client, BROKER_RESOURCE, "1", "log.retention.ms", "5000")
            found = await describe(client, BROKER_RESOURCE, "", synonyms=True)
            (one,) = found.configs
            assert (one.name, one.value, one.config_source) == ("log.cleaner.threads", "2", OF_ALL)
            assert [(two.value, two.source) for two in one.synonyms] == [("2", OF_ALL)]

    run(scenario)


def test_read_only_and_sensitive_settings_are_marked(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path, "ssl.key.password=hunter2") as running:
            client = await running.client()
            one, _ = await setting(client, BROKER_RESOURCE, "1", "node.id")
            assert (one.value, one.read_only) == ("1", True)
            one, synonyms = await setting(client, BROKER_RESOURCE, "1", "ssl.key.password")
            assert (one.value, one.is_sensitive) == (None, True)
            assert "hunter2" not in str(synonyms)

    run(scenario)


def test_synonyms_and_documentation_are_returned_on_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            key = "log.retention.ms"
            await set_one(client, BROKER_RESOURCE, "1", key, "5000")

            async def one(*, version: int, asked: bool) -> DescribeConfigsResourceResult:
                found = await describe(
                    client,
                    BROKER_RESOURCE,
                    "1",
                    [key],
                    synonyms=asked,
                    documentation=asked and version >= 3,
                    version=version,
                )
                return found.configs[0]

            for version in (1, 2, 3, 4):
                bare, full = (
                    await one(version=version, asked=False),
                    await one(version=version, asked=True),
                )
                assert (bare.value, full.value) == ("5000", "5000")
                assert not bare.synonyms
                told = [two.name for two in full.synonyms]
                assert told == ["log.retention.ms", "log.retention.hours"]
                if version >= 3:
                    assert (bare.config_type, full.config_type) == (LONG, LONG)
                    assert bare.documentation is None
                    assert full.documentation == BROKER.settings["log.retention.ms"].doc

    run(scenario)


def test_errors_are_reported_per_resource(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            expected = {
                (TOPIC_RESOURCE, "nowhere"): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                (TOPIC_RESOURCE, ""): ErrorCode.INVALID_TOPIC_EXCEPTION,
                (TOPIC_RESOURCE, "a/b"): ErrorCode.INVALID_TOPIC_EXCEPTION,
                (BROKER_RESOURCE, "7"): ErrorCode.INVALID_REQUEST,
                (BROKER_RESOURCE, "one"): ErrorCode.INVALID_REQUEST,
                (99, "t"): ErrorCode.INVALID_REQUEST,
                (TOPIC_RESOURCE, "t"): ErrorCode.NONE,
            }
            asked = [
                DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=None
                )
                for kind, name in expected
            ]
            for version in (1, 4):
                request = DescribeConfigsRequest(resources=asked)
                results = (await client.ask(request, DescribeConfigsResponse, version)).results
                told = [(one.resource_type, one.resource_name, one.error_code) for one in results]
                assert told == [(*key, code) for key, code in expected.items()]
                assert [bool(one.configs) for one in results] == [False] * 6 + [True]
                texts = [one.error_message or "" for one in results]
                assert "expected 1 or empty string, but received 7" in texts[3]
                assert texts[-1] == ""

    run(scenario)

"""ApiVersions: the served version ranges, and the client's name and version (KIP-511)."""

from pathlib import Path

from broker.nodes import Client, broker, run
from cases import each_case
from ottla.broker.dispatch import HANDLERS
from ottla.errors import ErrorCode
from ottla.protocol import apis
from ottla.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

VERSIONS = range(5)


async def versions(
    client: Client, version: int, name: str = "ottla-test", number: str = "1.0"
) -> tuple[int, dict[int, tuple[int, int]]]:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=number)
    answer = await client.ask(request, ApiVersionsResponse, version)
    keys = [one.api_key for one in answer.api_keys]
    assert keys == sorted(set(keys))
    result = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    return answer.error_code, result


def test_served_apis_are_listed_in_every_version(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            expected = {
                api.key: (api.advertised.low, min(api.versions.high, api.advertised.high))
                for api in HANDLERS
            }
            for version in VERSIONS:
                assert await versions(client, version) == (0, expected)
            # Produce 0-2 are advertised for old clients although the broker refuses them. Unstable
            # versions are not advertised.
            assert expected[apis.PRODUCE.key] == (0, 13)
            assert expected[apis.INIT_PRODUCER_ID.key] == (0, 5)
            assert apis.END_TXN.key not in expected

    run(scenario)


@each_case(
    ("name", "number"),
    [("", "1"), ("judge", ""), ("-judge", "1"), ("judge-", "1"), ("ju dge", "1"), ("judge", "1_0")],
)
def test_invalid_client_name_is_refused(tmp_path: Path, name: str, number: str) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            for version in VERSIONS:
                code, result = await versions(client, version, name, number)
                # Versions below 3 do not carry the client's name.
                if version < 3:
                    assert (code, bool(result)) == (0, True)
                else:
                    assert (code, result) == (ErrorCode.INVALID_REQUEST, {})

    run(scenario)


@each_case("name", ["j", "Apache.Kafka-4", "a-b.c", "0"])
def test_valid_client_names_are_accepted(tmp_path: Path, name: str) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            code, result = await versions(await running.client(), 3, name, name)
            assert (code, bool(result)) == (0, True)

    run(scenario)

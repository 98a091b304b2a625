"""`kafka-broker-api-versions`: the API versions of each broker and those a Kafka 4.3 client uses.

Invariant: an API that the broker does not serve is printed as UNSUPPORTED, an unknown one with its
number. The usable version is that of Kafka's tool, which knows APIs that Ottla does not implement.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from ottla.cli.cluster.admin import ClusterAdmin
from ottla.cli.kafka.flags import BadFlags, Flag, Given, Usage
from ottla.cli.kafka.tool import opened, run_tool, settings_of
from ottla.client.admin.cluster import BrokerDescription
from ottla.protocol.apis import API_OF_KEY
from ottla.protocol.message import Use
from ottla.protocol.schema import Versions

USAGE = Usage(
    "kafka-broker-api-versions",
    "Show the API versions that each broker supports.",
    [
        Flag("bootstrap-server", "host:port", "Connect to these bootstrap servers. Required."),
        Flag("command-config", "file", "Read client settings from this properties file."),
    ],
)


class Known(NamedTuple):
    """An API that Kafka's tool knows."""

    name: str
    versions: Versions
    is_for_clients: bool = True


OTHERS: Final = {
    38: Known("CreateDelegationToken", Versions(1, 3)),
    39: Known("RenewDelegationToken", Versions(1, 2)),
    40: Known("ExpireDelegationToken", Versions(1, 2)),
    41: Known("DescribeDelegationToken", Versions(1, 3)),
    55: Known("DescribeQuorum", Versions(0, 2)),
    80: Known("AddRaftVoter", Versions(0, 1)),
    81: Known("RemoveRaftVoter", Versions(0, 0)),
    88: Known("StreamsGroupHeartbeat", Versions(0, 0)),
    89: Known("StreamsGroupDescribe", Versions(0, 0)),
}
"""APIs of Kafka 4.3 that Ottla does not implement."""

_ON_EVERY_LISTENER: Final = frozenset({27, *range(83, 88)})
"""APIs between brokers that client listeners serve as well."""


async def act(given: Given) -> int:
    """Print the API versions of all brokers."""
    if given.one("bootstrap-server") is None:
        raise BadFlags('Missing required argument "[bootstrap-server]"')
    async with await opened(ClusterAdmin, settings_of(given)) as admin:
        brokers = (await admin.describe_cluster()).brokers
        told = (await admin.api_versions(one.id for one in brokers)).told
    for one in brokers:
        found = told[one.id]
        if isinstance(found, Exception):
            print(f"{node(one)} -> ERROR: {found}")
        else:
            print(f"{node(one)} -> (\n\t" + ",\n\t".join(lines(found)) + "\n)")
    return 0


def node(broker: BrokerDescription) -> str:
    """Return a broker as Kafka's tools print it."""
    fenced = "true" if broker.is_fenced else "false"
    rack = broker.rack or "null"
    return f"{broker.host}:{broker.port} (id: {broker.id} rack: {rack} isFenced: {fenced})"


def known() -> Mapping[int, Known]:
    """Return all APIs that Kafka's tool knows."""
    ours = {
        key: Known(api.name, api.versions, api.use is not Use.BROKERS or key in _ON_EVERY_LISTENER)
        for key, api in API_OF_KEY.items()
    }
    return {**ours, **OTHERS}


def lines(served: Mapping[int, Versions]) -> Iterator[str]:
    """Return one line per API, sorted by key."""
    apis = known()
    for key in sorted({*served, *(key for key, api in apis.items() if api.is_for_clients)}):
        api, theirs = apis.get(key), served.get(key)
        name = "UNKNOWN" if api is None else api.name
        if theirs is None:
            yield f"{name}({key}): UNSUPPORTED"
            continue
        text = str(theirs.low) if theirs.low == theirs.high else f"{theirs.low} to {theirs.high}"
        yield f"{name}({key}): {text}" + ("" if api is None else _usable(api.versions, theirs))


def _usable(ours: Versions, theirs: Versions) -> str:
    if ours.high < theirs.low:
        return " [unusable: node too new]"
    if theirs.high < ours.low:
        return " [unusable: node too old]"
    return f" [usable: {min(ours.high, theirs.high)}]"


def run() -> None:
    """Run the console script."""
    run_tool(USAGE, act)

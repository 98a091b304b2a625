"""`kafka-cluster`: the cluster id and the endpoints of the brokers.

Invariant: columns are as wide as in Kafka's tool, including trailing spaces.
"""

from collections.abc import Iterator, Sequence

from ottla.cli.cluster.admin import ClusterAdmin
from ottla.cli.kafka.flags import BadFlags, Flag, Given, NotDone, Usage
from ottla.cli.kafka.tool import opened, run_tool, settings_of
from ottla.client.admin.cluster import BrokerDescription
from ottla.transport.failures import NotSupported

COMMANDS = ("cluster-id", "list-endpoints", "unregister")
_FIRST_OF_LIST = 10  # width of RACK in Kafka's tool if no broker has a rack

USAGE = Usage(
    "kafka-cluster",
    "Show the cluster id or list the brokers.",
    [
        Flag("bootstrap-server", "host:port,…", "Connect to these bootstrap servers.", short="b"),
        Flag(
            "bootstrap-controller",
            "host:port",
            "Connect to these controllers.",
            short="C",
            done=False,
        ),
        Flag(
            "command-config", "file", "Read client settings from this properties file.", short="c"
        ),
        Flag("config", "file", "Deprecated name of --command-config."),
        Flag("include-fenced-brokers", help="With list-endpoints: include fenced brokers."),
        Flag(
            "id",
            "broker",
            "With unregister: unregister the broker with this id.",
            short="i",
            done=False,
        ),
    ],
    arguments=(
        ("cluster-id", "Print the cluster id."),
        ("list-endpoints", "List the brokers with their addresses."),
        ("unregister", "Unregister a broker. Not supported yet."),
    ),
    takes_short_names=True,
    has_version=False,
    helps_on_stdout=True,
)


async def act(given: Given) -> int:
    """Run the command."""
    if len(given.rest) != 1 or given.rest[0] not in COMMANDS:
        found = " ".join(given.rest) or "nothing"
        raise BadFlags(f"kafka-cluster: expected one of {', '.join(COMMANDS)}, found {found}")
    command = given.rest[0]
    if command == "unregister":
        raise NotDone("kafka-cluster: unregister is not supported yet")
    if "config" in given:
        if "command-config" in given:
            raise BadFlags("--config and --command-config cannot be specified together.")
        print(
            "Option --config has been deprecated and will be removed in a future version. "
            "Use --command-config instead."
        )
    settings = settings_of(given, "config" if "config" in given else "command-config")
    if given.one("bootstrap-server") is None:
        raise BadFlags("You must specify either --bootstrap-controller or --bootstrap-server.")
    async with await opened(ClusterAdmin, settings) as admin:
        if command == "cluster-id":
            print(id_line((await admin.describe_cluster()).id))
            return 0
        try:
            fenced = "include-fenced-brokers" in given
            brokers = (await admin.describe_cluster(include_fenced=fenced)).brokers
        except NotSupported as error:
            print(error)
            return 0
    for line in endpoint_lines(brokers):
        print(line)
    return 0


def id_line(cluster_id: str | None) -> str:
    """Return the line for a cluster id."""
    if cluster_id is None:
        return "No cluster ID found. The Kafka version is probably too old."
    return f"Cluster ID: {cluster_id}"


def endpoint_lines(brokers: Sequence[BrokerDescription]) -> Iterator[str]:
    """Return the brokers as a table; empty without brokers."""
    if not brokers:
        return
    host_width = max(len(one.host) for one in brokers)
    racks = [len(one.rack) for one in brokers if one.rack is not None]
    widths = (10, host_width, 10, max(racks, default=_FIRST_OF_LIST), 10, 15)
    yield _line(("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE"), widths)
    for one in brokers:
        state = "fenced" if one.is_fenced else "unfenced"
        cells = (str(one.id), one.host, str(one.port), one.rack or "null", state, "broker")
        yield _line(cells, widths)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return " ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))


def run() -> None:
    """Run the console script."""
    run_tool(USAGE, act)

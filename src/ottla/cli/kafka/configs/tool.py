"""`kafka-configs`: configs of topics, brokers and groups, and quotas of clients.

Invariant: all flags are checked before a request is sent.
"""

import sys
from typing import Final

from ottla.cli.kafka.flags import BadFlags, Flag, Given, Usage
from ottla.cli.kafka.tool import run_tool, settings_of
from ottla.cli.kafka.wrong_use import Illegal, WrongUse, forbid
from ottla.errors import OttlaError

USAGE: Final = Usage(
    "kafka-configs",
    "Describe and alter configs of topics, clients, users, brokers, IPs, client metrics and "
    "groups.",
    [
        Flag("bootstrap-server", "host:port,…", "Bootstrap servers."),
        Flag("bootstrap-controller", "host:port,…", "Bootstrap controllers.", done=False),
        Flag("command-config", "file", "Client properties file."),
        Flag("alter", help="Alter configs."),
        Flag("describe", help="Show dynamic configs."),
        Flag("all", help="Show all effective configs."),
        Flag("entity-type", "kind", "topics, clients, users, brokers, …", many=True),
        Flag("entity-name", "name", "Name of the entity.", many=True),
        Flag("entity-default", help="The default entity of clients, users, brokers or ips."),
        Flag("add-config", "a=1,b=[x,y]", "Configs to set."),
        Flag("add-config-file", "file", "Properties file with configs to set."),
        Flag("delete-config", "a,b", "Configs to delete.", many=True),
        Flag("force", help="Accepted for compatibility; there is no prompt."),
        Flag("topic", "name", "A topic."),
        Flag("client", "id", "A client id."),
        Flag("client-defaults", help="The default client id."),
        Flag("user", "name", "A user."),
        Flag("user-defaults", help="The default user."),
        Flag("broker", "id", "A broker."),
        Flag("broker-defaults", help="Cluster-wide defaults of all brokers."),
        Flag("broker-logger", "id", "The loggers of a broker."),
        Flag("ip", "address", "An IP address."),
        Flag("ip-defaults", help="The default IP address."),
        Flag("group", "id", "A group."),
        Flag("client-metrics", "name", "A client metrics subscription."),
    ],
)


async def act(given: Given) -> int:
    """Run the action of the flags."""
    from ottla.cli.kafka.configs.entities import check, entities

    if not given.values and not given.rest:
        raise WrongUse(USAGE.purpose)
    if ("alter" in given) + ("describe" in given) != 1:
        raise WrongUse("Command must include exactly one action: --describe, --alter")
    forbid(given, "describe", ("add-config", "delete-config"))
    found = entities(given)
    check(given, found)
    settings = settings_of(given)

    from ottla.cli.kafka.configs.entities import CLIENTS, IPS, USERS
    from ottla.cli.probe import probe

    if why := await probe(settings):
        raise OttlaError(why)
    is_quota = found.kind in (USERS, CLIENTS, IPS)
    if is_quota:
        from ottla.cli.kafka.configs.quotas import QuotaTool as Tool
    else:
        from ottla.cli.kafka.configs.resources import ResourceTool as Tool
    async with Tool.opened(settings) as tool:
        if "describe" in given:
            await tool.describe(found, everything="all" in given)
            return 0
        from ottla.cli.kafka.configs.values import to_set, to_unset

        await tool.alter(found, to_set(given), to_unset(given))
    name = found.names[0]
    print(
        f"Completed updating config for {found.singular} {name}."
        if name
        else f"Completed updating default config for {found.kind} in the cluster."
    )
    return 0


def told(error: OttlaError) -> None:
    """Print an error like Kafka's tool."""
    if isinstance(error, WrongUse):
        print(f"{error}\n{USAGE.text()}", file=sys.stderr)
    elif isinstance(error, Illegal | BadFlags):
        print(error, file=sys.stderr)
    else:
        from ottla.cli.kafka.words import words

        arguments = " ".join(sys.argv[1:])
        print(f"Error while executing config command with args '{arguments}'", file=sys.stderr)
        print(words(error), file=sys.stderr)


def run() -> None:
    """Run the console script."""
    run_tool(USAGE, act, told)

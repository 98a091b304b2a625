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
    "Describe and alter the configs of topics, clients, users, brokers, IP addresses, client "
    "metrics, groups and broker loggers.",
    [
        Flag("bootstrap-server", "host:port,…", "Connect to these bootstrap servers."),
        Flag("bootstrap-controller", "host:port,…", "Connect to these controllers.", done=False),
        Flag("command-config", "file", "Read client settings from this properties file."),
        Flag("alter", help="Set or delete configs of entities."),
        Flag("describe", help="Show the dynamic configs of entities."),
        Flag("all", help="With --describe: include static and default configs."),
        Flag(
            "entity-type",
            "kind",
            "Select this entity type: topics, clients, users, brokers, ips, client-metrics, groups "
            "or broker-loggers.",
            many=True,
        ),
        Flag("entity-name", "name", "Select the entity with this name.", many=True),
        Flag("entity-default", help="Select the default entity of clients, users, brokers or ips."),
        Flag(
            "add-config",
            "a=1,b=[x,y]",
            "Set these configs; put a value that contains commas in brackets.",
        ),
        Flag("add-config-file", "file", "Set the configs from this properties file."),
        Flag("delete-config", "a,b", "Delete these configs.", many=True),
        Flag("force", help="Accepted for compatibility; the tool never asks for confirmation."),
        Flag("topic", "name", "Select this topic."),
        Flag("client", "id", "Select this client id."),
        Flag("client-defaults", help="Select the default quotas of client ids."),
        Flag("user", "name", "Select this user."),
        Flag("user-defaults", help="Select the default quotas of users."),
        Flag("broker", "id", "Select this broker."),
        Flag("broker-defaults", help="Select the cluster-wide defaults for brokers."),
        Flag("broker-logger", "id", "Select the loggers of this broker."),
        Flag("ip", "address", "Select this IP address."),
        Flag("ip-defaults", help="Select the default quotas of IP addresses."),
        Flag("group", "id", "Select this group."),
        Flag("client-metrics", "name", "Select this client metrics subscription."),
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
        print(USAGE.after(error), file=sys.stderr)
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

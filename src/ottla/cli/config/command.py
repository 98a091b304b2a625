"""`ottla config`: settings of topics, brokers and groups, and the quotas of clients.

What does the work is imported when it is used: other commands start without it.
"""

from typing import Annotated

import typer

from ottla.cli.answer import Answer
from ottla.cli.completion import group_names, topic_names
from ottla.cli.session import Misused, Session, asks

app = typer.Typer(help="Settings and quotas.", no_args_is_help=True)

_WHOSE = "Whose settings"

TopicOption = Annotated[
    str | None,
    typer.Option(
        "--topic", "-t", help="A topic's.", rich_help_panel=_WHOSE, autocompletion=topic_names
    ),
]
BrokerOption = Annotated[
    int | None,
    typer.Option("--broker", min=0, metavar="ID", help="A broker's.", rich_help_panel=_WHOSE),
]
BrokerDefaultsOption = Annotated[
    bool,
    typer.Option("--broker-defaults", help="What all brokers share.", rich_help_panel=_WHOSE),
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group", "-g", help="A group's.", rich_help_panel=_WHOSE, autocompletion=group_names
    ),
]
UserOption = Annotated[
    str | None, typer.Option("--user", help="The quotas of a user.", rich_help_panel=_WHOSE)
]
UserDefaultsOption = Annotated[
    bool,
    typer.Option("--user-defaults", help="Of users without their own.", rich_help_panel=_WHOSE),
]
ClientIdOption = Annotated[
    str | None,
    typer.Option(
        "--client-id", help="The quotas of a client id; goes with a user's.", rich_help_panel=_WHOSE
    ),
]
ClientIdDefaultsOption = Annotated[
    bool,
    typer.Option(
        "--client-id-defaults", help="Of client ids without their own.", rich_help_panel=_WHOSE
    ),
]
IpOption = Annotated[
    str | None, typer.Option("--ip", help="The quotas of an address.", rich_help_panel=_WHOSE)
]
IpDefaultsOption = Annotated[
    bool,
    typer.Option("--ip-defaults", help="Of addresses without their own.", rich_help_panel=_WHOSE),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Only ask the cluster whether it could be done.")
]


@app.callback()
def config() -> None:
    """Describe and change settings and quotas while the cluster runs."""


@app.command("describe")
@asks
async def describe(
    session: Session,
    *,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME…]", help="Settings; without any those that somebody gave."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Also those that are as they were made.")
    ] = False,
    quotas: Annotated[
        bool, typer.Option("--quotas", help="The quotas of everybody.", rich_help_panel=_WHOSE)
    ] = False,
    topic: TopicOption = None,
    broker: BrokerOption = None,
    broker_defaults: BrokerDefaultsOption = False,
    group: GroupOption = None,
    user: UserOption = None,
    user_defaults: UserDefaultsOption = False,
    client_id: ClientIdOption = None,
    client_id_defaults: ClientIdDefaultsOption = False,
    ip: IpOption = None,
    ip_defaults: IpDefaultsOption = False,
) -> Answer:
    """Show settings with where each is from: the topic, the broker, all brokers, its file."""
    from ottla.cli.config.admin import ConfigAdmin
    from ottla.cli.config.changes import described, quotas_answer
    from ottla.cli.config.target import Said

    said = Said(
        topic, broker, broker_defaults, group, user, user_defaults, client_id, client_id_defaults,
        ip, ip_defaults,
    )  # fmt: skip
    if quotas and said != Said():
        raise Misused("--quotas shows those of everybody, and goes with nobody's")
    target = None if quotas else said.target()
    async with await session.opened(ConfigAdmin) as admin:
        if target is None:
            return quotas_answer(await admin.describe_quotas())
        return await described(admin, target, names or (), everything=everything)


@app.command("set")
@asks
async def set_(
    session: Session,
    *,
    settings_given: Annotated[
        list[str],
        typer.Argument(metavar="NAME=VALUE…", help="Settings, or quotas.", show_default=False),
    ],
    topic: TopicOption = None,
    broker: BrokerOption = None,
    broker_defaults: BrokerDefaultsOption = False,
    group: GroupOption = None,
    user: UserOption = None,
    user_defaults: UserDefaultsOption = False,
    client_id: ClientIdOption = None,
    client_id_defaults: ClientIdDefaultsOption = False,
    ip: IpOption = None,
    ip_defaults: IpDefaultsOption = False,
    dry_run: DryRunOption = False,
) -> Answer:
    """Set settings or quotas; those that are not named stay."""
    from ottla.cli.config.admin import ConfigAdmin
    from ottla.cli.config.changes import changed
    from ottla.cli.config.target import Said, quotas_of
    from ottla.cli.target import parsed
    from ottla.client.admin.quotas import QuotaEntity

    target = Said(
        topic, broker, broker_defaults, group, user, user_defaults, client_id, client_id_defaults,
        ip, ip_defaults,
    ).target()  # fmt: skip
    values = parsed(settings_given)
    quotas = quotas_of(values) if isinstance(target, QuotaEntity) else {}
    async with await session.opened(ConfigAdmin) as admin:
        return await changed(admin, target, values, quotas, dry_run=dry_run)


@app.command("unset")
@asks
async def unset(
    session: Session,
    *,
    names: Annotated[
        list[str], typer.Argument(metavar="NAME…", help="Settings, or quotas.", show_default=False)
    ],
    topic: TopicOption = None,
    broker: BrokerOption = None,
    broker_defaults: BrokerDefaultsOption = False,
    group: GroupOption = None,
    user: UserOption = None,
    user_defaults: UserDefaultsOption = False,
    client_id: ClientIdOption = None,
    client_id_defaults: ClientIdDefaultsOption = False,
    ip: IpOption = None,
    ip_defaults: IpDefaultsOption = False,
    dry_run: DryRunOption = False,
) -> Answer:
    """Take settings or quotas away, so that what is behind them counts again."""
    from ottla.cli.config.admin import ConfigAdmin
    from ottla.cli.config.changes import changed
    from ottla.cli.config.target import Said

    target = Said(
        topic, broker, broker_defaults, group, user, user_defaults, client_id, client_id_defaults,
        ip, ip_defaults,
    ).target()  # fmt: skip
    none: dict[str, None] = dict.fromkeys(names)
    async with await session.opened(ConfigAdmin) as admin:
        return await changed(admin, target, none, none, dry_run=dry_run)

"""`ottla config`: settings of topics, brokers and groups, and quotas.

Modules are imported on use, so that other commands start fast.
"""

import functools
import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli.completion import group_names, topic_names
from ottla.cli.declaration import asks, option, with_parameters
from ottla.cli.failures import Misused
from ottla.cli.result import Result
from ottla.cli.session import Session

if TYPE_CHECKING:
    from ottla.cli.config.target import Said

app = typer.Typer(help="Show and change settings and quotas.", no_args_is_help=True)

_WHOSE = "Resource"
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Validate the changes without applying them.")
]


def _of(name: str, *flags: str, kind: type = str, **facts: Any) -> inspect.Parameter:
    """Declare an option that names the resource: a field of `Said`."""
    default = False if kind is bool else None
    found = typer.Option(*flags, rich_help_panel=_WHOSE, **facts)
    return option(name, Annotated[kind if kind is bool else kind | None, found], default)


def _options(verb: str) -> Sequence[inspect.Parameter]:
    """Declare the options that name the resource; `verb` starts their help texts."""

    def named(name: str, *flags: str, metavar: str, what: str, **facts: Any) -> inspect.Parameter:
        return _of(name, *flags, metavar=metavar, help=f"{verb} {what}.", **facts)

    def default(name: str, flag: str, what: str) -> inspect.Parameter:
        return _of(name, flag, kind=bool, help=f"{verb} {what}.")

    return (
        named(
            "topic",
            "--topic",
            "-t",
            metavar="TOPIC",
            what="settings of this topic",
            autocompletion=topic_names,
        ),
        named(
            "broker",
            "--broker",
            metavar="ID",
            what="settings of this broker",
            kind=int,
            min=0,
        ),
        default("broker_defaults", "--broker-defaults", "cluster-wide defaults for brokers"),
        named(
            "group",
            "--group",
            "-g",
            metavar="GROUP",
            what="settings of this group",
            autocompletion=group_names,
        ),
        named("user", "--user", metavar="USER", what="quotas of this user"),
        default("user_defaults", "--user-defaults", "default quotas of users"),
        named(
            "client_id",
            "--client-id",
            metavar="ID",
            what="quotas of this client id; add --user or --user-defaults to "
            f"{verb.lower()} the quotas of the pair of user and client id",
        ),
        default("client_id_defaults", "--client-id-defaults", "default quotas of client ids"),
        named("ip", "--ip", metavar="ADDRESS", what="quotas of this IP address"),
        default("ip_defaults", "--ip-defaults", "default quotas of IP addresses"),
    )


def _whose(
    verb: str,
) -> Callable[[Callable[..., Coroutine[Any, Any, Result]]], Callable[..., Any]]:
    """Add the options that name the resource to a command, which gets them as one value."""
    options = _options(verb)

    def declared(act: Callable[..., Coroutine[Any, Any, Result]]) -> Callable[..., Any]:
        session, _, *own = inspect.signature(act).parameters.values()

        @functools.wraps(act)
        async def command(session: Session, **given: Any) -> Result:
            from ottla.cli.config.target import Said

            said = Said(**{one.name: given.pop(one.name) for one in options})
            return await act(session, said, **given)

        return with_parameters(command, [session, *own, *options])

    return declared


@app.callback()
def config() -> None:
    """Describe and change settings and quotas of a running cluster."""


@app.command("describe")
@asks
@_whose("Show")
async def describe(
    session: Session,
    said: "Said",
    *,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME…]",
            help=(
                "Show only these settings. Default: all settings that are set for the topic, group "
                "or broker. For a broker, these include the settings in its properties file and "
                "the cluster-wide defaults."
            ),
        ),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            "-a",
            help="Also show settings that are not set for the topic, group or broker, with the "
            "values that apply.",
        ),
    ] = False,
    quotas: Annotated[
        bool,
        typer.Option(
            "--quotas",
            help="Show the quotas of all users, client ids and IP addresses.",
            rich_help_panel=_WHOSE,
        ),
    ] = False,
) -> Result:
    """Show settings with their source: topic, broker, cluster-wide default or properties file."""
    from ottla.cli.config.admin import ConfigAdmin
    from ottla.cli.config.changes import described, quotas_answer
    from ottla.cli.config.target import Said

    if quotas and said != Said():
        raise Misused("--quotas shows all quotas and cannot be combined with a resource")
    target = None if quotas else said.target()
    async with await session.opened(ConfigAdmin) as admin:
        if target is None:
            return quotas_answer(await admin.describe_quotas())
        return await described(admin, target, names or (), everything=everything)


@app.command("set")
@asks
@_whose("Change")
async def set_(
    session: Session,
    said: "Said",
    *,
    settings_given: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=VALUE…", help="Settings or quotas to set.", show_default=False
        ),
    ],
    dry_run: DryRunOption = False,
) -> Result:
    """Set settings or quotas and leave all others unchanged."""
    from ottla.cli.config.admin import ConfigAdmin
    from ottla.cli.config.changes import changed
    from ottla.cli.config.target import quotas_of
    from ottla.cli.target import parsed
    from ottla.client.admin.quotas import QuotaEntity

    target = said.target()
    values = parsed(settings_given)
    quotas = quotas_of(values) if isinstance(target, QuotaEntity) else {}
    async with await session.opened(ConfigAdmin) as admin:
        return await changed(admin, target, values, quotas, dry_run=dry_run)


@app.command("unset")
@asks
@_whose("Remove")
async def unset(
    session: Session,
    said: "Said",
    *,
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME…", help="Settings or quotas to remove.", show_default=False),
    ],
    dry_run: DryRunOption = False,
) -> Result:
    """Remove settings or quotas, so that their defaults apply again."""
    from ottla.cli.config.admin import ConfigAdmin
    from ottla.cli.config.changes import changed

    target = said.target()
    none: dict[str, None] = dict.fromkeys(names)
    async with await session.opened(ConfigAdmin) as admin:
        return await changed(admin, target, none, none, dry_run=dry_run)

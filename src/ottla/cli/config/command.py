"""`ottla config`: settings of topics, brokers and groups, and quotas.

Modules are imported on use, so that other commands start fast.
"""

import functools
import inspect
from collections.abc import Callable, Coroutine
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
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Validate only; change nothing.")]


def _of(name: str, *flags: str, kind: type = str, **facts: Any) -> inspect.Parameter:
    """Declare an option that names the resource: a field of `Said`."""
    default = False if kind is bool else None
    found = typer.Option(*flags, rich_help_panel=_WHOSE, **facts)
    return option(name, Annotated[kind if kind is bool else kind | None, found], default)


_OPTIONS = (
    _of("topic", "--topic", "-t", help="A topic's.", autocompletion=topic_names),
    _of("broker", "--broker", kind=int, min=0, metavar="ID", help="A broker's."),
    _of(
        "broker_defaults",
        "--broker-defaults",
        kind=bool,
        help="Cluster-wide defaults of all brokers.",
    ),
    _of("group", "--group", "-g", help="A group's.", autocompletion=group_names),
    _of("user", "--user", help="Quotas of a user."),
    _of("user_defaults", "--user-defaults", kind=bool, help="Default quotas of users."),
    _of("client_id", "--client-id", help="Quotas of a client id; can be combined with a user."),
    _of(
        "client_id_defaults",
        "--client-id-defaults",
        kind=bool,
        help="Default quotas of client ids.",
    ),
    _of("ip", "--ip", help="Quotas of an IP address."),
    _of("ip_defaults", "--ip-defaults", kind=bool, help="Default quotas of IP addresses."),
)


def _whose(act: Callable[..., Coroutine[Any, Any, Result]]) -> Callable[..., Any]:
    """Add the options that name the resource to a command, which gets them as one value."""
    session, _, *own = inspect.signature(act).parameters.values()

    @functools.wraps(act)
    async def command(session: Session, **given: Any) -> Result:
        from ottla.cli.config.target import Said

        said = Said(**{one.name: given.pop(one.name) for one in _OPTIONS})
        return await act(session, said, **given)

    return with_parameters(command, [session, *own, *_OPTIONS])


@app.callback()
def config() -> None:
    """Describe and change settings and quotas of a running cluster."""


@app.command("describe")
@asks
@_whose
async def describe(
    session: Session,
    said: "Said",
    *,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME…]", help="Names of settings; default: all that are set."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Include settings with their default value.")
    ] = False,
    quotas: Annotated[
        bool, typer.Option("--quotas", help="Show all quotas.", rich_help_panel=_WHOSE)
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
@_whose
async def set_(
    session: Session,
    said: "Said",
    *,
    settings_given: Annotated[
        list[str],
        typer.Argument(metavar="NAME=VALUE…", help="Settings or quotas.", show_default=False),
    ],
    dry_run: DryRunOption = False,
) -> Result:
    """Set settings or quotas; others stay."""
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
@_whose
async def unset(
    session: Session,
    said: "Said",
    *,
    names: Annotated[
        list[str], typer.Argument(metavar="NAME…", help="Settings or quotas.", show_default=False)
    ],
    dry_run: DryRunOption = False,
) -> Result:
    """Remove settings or quotas, so that the next level of defaults applies again."""
    from ottla.cli.config.admin import ConfigAdmin
    from ottla.cli.config.changes import changed

    target = said.target()
    none: dict[str, None] = dict.fromkeys(names)
    async with await session.opened(ConfigAdmin) as admin:
        return await changed(admin, target, none, none, dry_run=dry_run)

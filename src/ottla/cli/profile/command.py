"""`ottla profile`: manages named connection settings.

Modules are imported on use, so that other commands start fast.
"""

import os
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli import profiles
from ottla.cli.completion import profile_names
from ottla.cli.declaration import OutputOption, YesOption, answers
from ottla.cli.failures import BadProfile, Misused
from ottla.cli.output import Output
from ottla.cli.profiles import Profiles
from ottla.cli.result import Result, Table, complain, facts
from ottla.cli.session import Session, conducted
from ottla.cli.target import BOOTSTRAP, Target, parsed

app = typer.Typer(help="Manage named connection settings.", no_args_is_help=True)

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="Name of the profile.",
        show_default=False,
        autocompletion=profile_names,
    ),
]


@app.callback()
def profile() -> None:
    """Manage named connection settings, for `--profile` and OTTLA_PROFILE."""


@app.command("list")
@answers
def list_() -> Result:
    """List the profiles and mark the current one."""
    known = _known()
    counting = _counting(known)
    rows = [
        (name, settings.get(BOOTSTRAP), name == counting)
        for name, settings in sorted(known.settings.items())
    ]
    keys = ("name", "bootstrap_servers", "used")
    return Result(
        {"profiles": [dict(zip(keys, one, strict=True)) for one in rows]},
        [Table(("PROFILE", "SERVERS", "USED"), rows)]
        if rows
        else ["No profiles. Create one with `ottla profile set NAME bootstrap.servers=HOST:PORT`"],
    )


@app.command("show")
@answers
def show(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Name of the profile; default: the current profile.",
            show_default=False,
            autocompletion=profile_names,
        ),
    ] = None,
) -> Result:
    """Show the settings of a profile, with passwords hidden."""
    from ottla.cli.client_settings import masked

    known = _known()
    counting = _counting(known)
    if (chosen := name or counting) is None:
        raise BadProfile("no current profile: select one with `ottla profile use NAME`")
    settings = masked(known.of(chosen))
    lines = [f"{key} = {value}" for key, value in sorted(settings.items())]
    used = chosen == counting
    return Result(
        {"name": chosen, "used": used, "settings": settings},
        [*facts({"profile": chosen, "used": used}), *(_shown(line) for line in lines)],
    )


@app.command("set")
@answers
def set_(
    name: NameArgument,
    settings: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY=VALUE…",
            help="Client settings to set; KEY= removes a setting.",
            show_default=False,
        ),
    ],
) -> Result:
    """Create a profile, or change some of its settings."""
    from ottla.cli.client_settings import check, masked

    if not name.strip():
        raise Misused("the profile name must not be empty")
    for text in (name, *settings):
        _check_encoding(text)
    changes = parsed(settings)
    warnings = check(changes)
    known = profiles.changed(_place(), lambda known: known.with_settings(name, changes))
    for one in warnings:
        complain(f"warning: {one}")
    return Result(
        {"name": name, "settings": masked(known.of(name)), "warnings": warnings},
        [f"Profile {_shown(name)} was saved to {_shown(str(_place()))}."],
    )


@app.command("use")
@answers
def use(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Name of the profile; required unless you pass --none.",
            show_default=False,
            autocompletion=profile_names,
        ),
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Use no profile by default.")] = False,
) -> Result:
    """Select the profile that commands use by default."""
    if (name is None) is not none:
        raise Misused("name a profile or use --none, one of the two")
    profiles.changed(_place(), lambda known: known.using(name))
    lines = ["No profile is current." if name is None else f"Profile {_shown(name)} is current."]
    if (told := os.environ.get(profiles.PROFILE_VARIABLE)) and told != name:
        complain(f"warning: {profiles.PROFILE_VARIABLE}={told} overrides it")
    return Result({"used": name}, lines)


@app.command("delete")
def delete(name: NameArgument, yes: YesOption = False, output: OutputOption = Output.TABLE) -> None:
    """Delete a profile and its passwords."""

    def act() -> Result:
        _known().of(name)
        Session(Target({}), output).confirm(f"Delete profile {_shown(name)}?", yes=yes)
        profiles.changed(_place(), lambda known: known.without(name))
        return Result({"deleted": name}, [f"Profile {_shown(name)} was deleted."])

    raise typer.Exit(conducted(act, output))


def _check_encoding(text: str) -> None:
    """Refuse arguments that are not UTF-8: the file could not be read again."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Misused("profile names and settings must be valid UTF-8") from None


def _place() -> Path:
    return profiles.config_path(os.environ)


def _known() -> Profiles:
    return profiles.read(_place())


def _counting(known: Profiles) -> str | None:
    """Return the default profile."""
    return os.environ.get(profiles.PROFILE_VARIABLE) or known.used


def _shown(text: str) -> str:
    from ottla.cli.escapes import escaped

    return escaped(text)

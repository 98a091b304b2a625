"""Declares commands: a function with its own options plus the common ones."""

import functools
import inspect
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, Final, TypeVar

import typer

from ottla.cli.completion import profile_names
from ottla.cli.event_loop import run_asking
from ottla.cli.failures import Failed, failure_of, warn
from ottla.cli.output import Output
from ottla.cli.result import Failure, Result
from ottla.cli.session import Session, carried_out, conducted
from ottla.cli.target import target_of
from ottla.errors import RequestError

C = TypeVar("C", bound=Callable[..., object])

_COMMON = "Connection and output"

OutputOption = Annotated[
    Output,
    typer.Option("-o", "--output", help="Print the result in this format.", show_default=True),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def asks(act: Callable[..., Coroutine[Any, Any, Result | None]]) -> Callable[..., None]:
    """Make a command of a function that talks to a cluster, with the connection options."""
    return _asking(act, is_fast=False)


def streams(act: Callable[..., Coroutine[Any, Any, Result | None]]) -> Callable[..., None]:
    """Like `asks`, for a function that moves many records: on uvloop, printing warnings."""
    return _asking(act, is_fast=True)


def _asking(
    act: Callable[..., Coroutine[Any, Any, Result | None]], *, is_fast: bool
) -> Callable[..., None]:
    own = [*inspect.signature(act, eval_str=True).parameters.values()][1:]

    @functools.wraps(act)
    def command(**given: Any) -> None:
        bootstrap_server: str | None = given.pop("bootstrap_server")
        profile: str | None = given.pop("profile")
        settings: list[str] | None = given.pop("settings")
        output: Output = given.pop("output")

        async def asked() -> Result | None:
            target = target_of(
                os.environ,
                bootstrap_server=bootstrap_server,
                profile=profile,
                settings=settings or (),
            )

            async def suggested(failures: Sequence[Failure]) -> Sequence[Failure]:
                from ottla.cli.suggestions import names_given, with_suggestions

                return await with_suggestions(failures, names_given(own, given), target)

            try:
                result = await act(Session(target, output), **given)
            except (Failed, RequestError) as error:
                before = failure_of(error)
                (after,) = await suggested([before])
                if after == before:
                    raise
                raise Failed(after.message, after.code) from error
            if result is None or not result.failures:
                return result
            return result._replace(failures=await suggested(result.failures))

        report = warn if is_fast else None
        raise typer.Exit(
            carried_out(lambda: run_asking(asked, is_fast=is_fast, report=report), output)
        )

    return with_parameters(command, [*own, *_OPTIONS])


def answers(act: Callable[..., Result]) -> Callable[..., None]:
    """Make a command of a function that needs no cluster, with `-o`."""
    own = [*inspect.signature(act, eval_str=True).parameters.values()]

    @functools.wraps(act)
    def command(**given: Any) -> None:
        output: Output = given.pop("output")

        raise typer.Exit(conducted(lambda: act(**given), output))

    return with_parameters(command, [*own, _OPTIONS[-1]])


def with_parameters(command: C, parameters: Sequence[inspect.Parameter]) -> C:
    """Set the parameters that Typer sees."""
    vars(command).pop("__wrapped__", None)  # otherwise Typer would see its parameters
    vars(command)["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def option(name: str, annotation: Any, default: object) -> inspect.Parameter:
    """Declare an option that several commands have."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )


_OPTIONS: Final = (
    option(
        "bootstrap_server",
        Annotated[
            str | None,
            typer.Option(
                "--bootstrap-server", "-b", metavar="HOST:PORT,…",
                help="Connect to these bootstrap servers.", rich_help_panel=_COMMON,
            ),
        ],
        None,
    ),
    option(
        "profile",
        Annotated[
            str | None,
            typer.Option(
                "--profile", metavar="NAME", help="Use this profile (see `ottla profile`).",
                rich_help_panel=_COMMON, autocompletion=profile_names,
            ),
        ],
        None,
    ),
    option(
        "settings",
        Annotated[
            list[str] | None,
            typer.Option(
                "-X", metavar="KEY=VALUE", help="Set a client setting; repeat for several.",
                rich_help_panel=_COMMON,
            ),
        ],
        None,
    ),
    option(
        "output",
        Annotated[
            Output,
            typer.Option(
                "-o", "--output", help="Print the result in this format.", show_default=True,
                rich_help_panel=_COMMON,
            ),
        ],
        Output.TABLE,
    ),
)  # fmt: skip

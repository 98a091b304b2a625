"""A command that asks a cluster: with whom it speaks, and what becomes of its outcome.

Invariant: a command ends with 0 when all was done, 1 when something was not, 2 for a wrong use and
130 when it was interrupted; why is one line on stderr, or one object on stdout.
"""

import functools
import inspect
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from ottla.cli.answer import Answer, Failure, show, show_failure
from ottla.cli.completion import profile_names
from ottla.cli.early_interrupt import begin
from ottla.cli.event_loop import run_asking
from ottla.cli.output import Output
from ottla.cli.profile.file import BadProfile
from ottla.cli.question import agreed
from ottla.cli.target import BadSetting, Target, target_of
from ottla.errors import OttlaError, RequestError
from ottla.settings.problems import InvalidSettings

if TYPE_CHECKING:
    from ottla.client.admin.administration import Administration

A = TypeVar("A", bound="Administration")
C = TypeVar("C", bound=Callable[..., object])

FAILED, WRONG_USE, INTERRUPTED = 1, 2, 130
REACH_S: Final = 5.0
_COMMON = "Whom to ask, and how to answer"

OutputOption = Annotated[
    Output, typer.Option("-o", "--output", help="How to print the answer.", show_default=True)
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]


class Failed(OttlaError):
    """A command cannot do what it was asked for; the text says why."""

    def __init__(self, message: str, code: str = "FAILED") -> None:
        super().__init__(message)
        self.code = code


class Misused(Failed):
    """What was said on the command line does not fit together."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "USAGE")


@dataclass(frozen=True, slots=True)
class Session:
    """What a command knows besides its own arguments."""

    target: Target
    output: Output

    async def opened(self, kind: type[A]) -> A:
        """An administrator with the calls that a command needs, when a broker can be reached."""
        admin = kind(self.target.settings_of("admin"))
        await self.reach()
        return admin

    async def reach(self) -> None:
        """Fail at once where nobody listens, and not after the client's patience."""
        from ottla.cli.reach import reach

        if why := await reach(self.target.servers, REACH_S):
            raise Failed(why, "NETWORK_EXCEPTION")

    def confirm(self, question: str, *, yes: bool) -> None:
        """Go on if that is what is wanted."""
        if yes:
            return
        if not sys.stdin.isatty() or self.output is not Output.TABLE:
            raise Misused(f"{question} Nobody can be asked here: say --yes")
        # While an event loop runs, it has Ctrl-C to itself, and a question would not hear of it.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            is_wanted = agreed(question)
        except KeyboardInterrupt:
            raise typer.Abort from None
        finally:
            signal.signal(signal.SIGINT, before)
        if not is_wanted:
            raise Failed("nothing was done")


def asks(act: Callable[..., Coroutine[Any, Any, Answer | None]]) -> Callable[..., None]:
    """Make a command of a function that asks a cluster: with the options that all of them have."""
    return _asking(act, is_fast=False)


def streams(act: Callable[..., Coroutine[Any, Any, Answer | None]]) -> Callable[..., None]:
    """As `asks`, of a function that moves many records: on the faster event loop."""
    return _asking(act, is_fast=True)


def _asking(
    act: Callable[..., Coroutine[Any, Any, Answer | None]], *, is_fast: bool
) -> Callable[..., None]:
    own = [*inspect.signature(act, eval_str=True).parameters.values()][1:]

    @functools.wraps(act)
    def command(**given: Any) -> None:
        bootstrap_server: str | None = given.pop("bootstrap_server")
        profile: str | None = given.pop("profile")
        settings: list[str] | None = given.pop("settings")
        output: Output = given.pop("output")

        async def asked() -> Answer | None:
            target = target_of(
                os.environ,
                bootstrap_server=bootstrap_server,
                profile=profile,
                settings=settings or (),
            )
            return await act(Session(target, output), **given)

        raise typer.Exit(conducted(lambda: run_asking(asked, is_fast=is_fast), output))

    return with_parameters(command, [*own, *_OPTIONS])


def answers(act: Callable[..., Answer]) -> Callable[..., None]:
    """Make a command of a function that asks nobody: with `-o`."""
    own = [*inspect.signature(act, eval_str=True).parameters.values()]

    @functools.wraps(act)
    def command(**given: Any) -> None:
        output: Output = given.pop("output")

        raise typer.Exit(conducted(lambda: act(**given), output))

    return with_parameters(command, [*own, _OPTIONS[-1]])


def with_parameters(command: C, parameters: Sequence[inspect.Parameter]) -> C:
    """Let a function have the parameters that Typer is to see."""
    vars(command).pop("__wrapped__", None)  # whose parameters would be seen
    vars(command)["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def conducted(act: Callable[[], Answer | None], output: Output) -> int:
    """Do it and print its outcome; the exit code."""
    try:
        begin()
        answer = act()
    except KeyboardInterrupt:
        show_failure(Failure("interrupted", "INTERRUPTED"), output)
        return INTERRUPTED
    except InvalidSettings as error:
        show_failure(Failure("; ".join(map(str, error.problems)), "USAGE"), output)
        return WRONG_USE
    except (Misused, BadSetting, BadProfile) as error:
        show_failure(Failure(str(error), "USAGE"), output)
        return WRONG_USE
    except OttlaError as error:
        show_failure(failure_of(error), output)
        return FAILED
    return 0 if answer is None else show(answer, output)


def failure_of(error: OttlaError, about: str | None = None) -> Failure:
    """What a client's error says."""
    if isinstance(error, RequestError):
        return Failure(error.message or error.code.text, error.code.name, about)
    code = error.code if isinstance(error, Failed) else "FAILED"
    return Failure(str(error), code, about)


def option(name: str, annotation: Any, default: object) -> inspect.Parameter:
    """An option that several commands have, as Typer is to see it."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default
    )


_OPTIONS: Final = (
    option(
        "bootstrap_server",
        Annotated[
            str | None,
            typer.Option(
                "--bootstrap-server", "-b", metavar="HOST:PORT,…", help="Brokers to ask first.",
                rich_help_panel=_COMMON,
            ),
        ],
        None,
    ),
    option(
        "profile",
        Annotated[
            str | None,
            typer.Option(
                "--profile", help="A profile of `ottla profile`.", rich_help_panel=_COMMON,
                autocompletion=profile_names,
            ),
        ],
        None,
    ),
    option(
        "settings",
        Annotated[
            list[str] | None,
            typer.Option(
                "-X", metavar="KEY=VALUE", help="A setting of the client.",
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
                "-o", "--output", help="How to print the answer.", show_default=True,
                rich_help_panel=_COMMON,
            ),
        ],
        Output.TABLE,
    ),
)  # fmt: skip

"""A command that talks to a cluster: its target and its result.

Invariant: exit code 0 is complete success, 1 a failure, 2 wrong usage, 130 an interrupt; the reason
is one line on stderr or one object on stdout. Commands are declared for Typer elsewhere: one with
plain arguments works without it.
"""

import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.cli.failures import FAILED, Failed, Misused, Stopped, own_mistake, tell
from ottla.cli.output import Output
from ottla.cli.result import Failure, Result, show, show_failure
from ottla.cli.startup_sigint import INTERRUPTED, begin
from ottla.cli.target import Target
from ottla.errors import OttlaError
from ottla.settings.invalid_settings import InvalidSettings

if TYPE_CHECKING:
    from ottla.client.admin.administration import Administration

A = TypeVar("A", bound="Administration")


class Session(NamedTuple):
    """The target, output format and other common options of a command."""

    target: Target
    output: Output

    async def opened(self, kind: type[A]) -> A:
        """Return an admin client with the calls that a command needs, if a broker responds."""
        admin = kind(self.target.settings_of("admin"))
        await self.probe()
        return admin

    async def probe(self) -> None:
        """Fail at once if nothing listens, instead of after the client's timeout."""
        from ottla.cli.probe import probe

        if why := await probe(self.target.settings):
            raise Failed(why, "NETWORK_EXCEPTION")

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask for confirmation."""
        if yes:
            return
        if not sys.stdin.isatty() or self.output is not Output.TABLE:
            raise Misused(f"{question} Cannot ask without a terminal: use --yes")
        import typer

        from ottla.cli.prompt import confirmed

        # A running event loop owns Ctrl-C, so a prompt would not get it.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            is_wanted = confirmed(question)
        except KeyboardInterrupt:
            raise typer.Abort from None
        finally:
            signal.signal(signal.SIGINT, before)
        if not is_wanted:
            raise Failed("nothing was changed")


def conducted(act: Callable[[], Result | None], output: Output) -> int:
    """Run a function without a cluster and print its result; returns the exit code."""

    def begun() -> Result | None:
        begin()
        return act()

    return carried_out(begun, output)


def carried_out(act: Callable[[], Result | None], output: Output) -> int:
    """Run a function with Ctrl-C handling and print its result; returns the exit code."""
    try:
        answer = act()
    except KeyboardInterrupt:
        show_failure(Failure("interrupted", "INTERRUPTED"), _heard(output))
        return INTERRUPTED
    except Stopped as error:
        from ottla.cli.stop_request import end_by

        tell(error, _heard(output))
        return end_by(error.number)
    except (OttlaError, InvalidSettings) as error:
        return tell(error, output)
    except Exception as error:  # the outermost handler of a command
        show_failure(Failure(own_mistake(error), "INTERNAL"), output)
        return FAILED
    return 0 if answer is None else show(answer, output)


def _heard(output: Output) -> Output:
    """Return the format of a last message: an object could block on a reader that does not read."""
    from ottla.cli.output_errors import is_heard

    return output if is_heard() else Output.TABLE

"""A command that asks a cluster: with whom it speaks, and what becomes of its outcome.

Invariant: a command ends with 0 when all was done, 1 when something was not, 2 for a wrong use and
130 when it was interrupted; why is one line on stderr, or one object on stdout. How a command is
declared for Typer is elsewhere: one whose arguments are plain does without.
"""

import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.cli.early_interrupt import INTERRUPTED, begin
from ottla.cli.failures import FAILED, Failed, Misused, Stopped, own_mistake, tell
from ottla.cli.output import Output
from ottla.cli.result import Failure, Result, show, show_failure
from ottla.cli.target import Target
from ottla.errors import OttlaError
from ottla.settings.invalid_settings import InvalidSettings

if TYPE_CHECKING:
    from ottla.client.admin.administration import Administration

A = TypeVar("A", bound="Administration")


class Session(NamedTuple):
    """What a command knows besides its own arguments."""

    target: Target
    output: Output

    async def opened(self, kind: type[A]) -> A:
        """An administrator with the calls that a command needs, when a broker can be reached."""
        admin = kind(self.target.settings_of("admin"))
        await self.probe()
        return admin

    async def probe(self) -> None:
        """Fail at once where nobody listens, and not after the client's patience."""
        from ottla.cli.probe import probe

        if why := await probe(self.target.settings):
            raise Failed(why, "NETWORK_EXCEPTION")

    def confirm(self, question: str, *, yes: bool) -> None:
        """Go on if that is what is wanted."""
        if yes:
            return
        if not sys.stdin.isatty() or self.output is not Output.TABLE:
            raise Misused(f"{question} Cannot ask without a terminal: use --yes")
        import typer

        from ottla.cli.prompt import confirmed

        # While an event loop runs, it has Ctrl-C to itself, and a question would not hear of it.
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
    """Do what asks nobody and print its outcome; the exit code."""

    def begun() -> Result | None:
        begin()
        return act()

    return carried_out(begun, output)


def carried_out(act: Callable[[], Result | None], output: Output) -> int:
    """Do it, which begins with hearing of Ctrl-C, and print its outcome; the exit code."""
    try:
        answer = act()
    except KeyboardInterrupt:
        from ottla.cli.output_errors import is_heard

        # With a reader that does not read the object would wait for it.
        show_failure(Failure("interrupted", "INTERRUPTED"), output if is_heard() else Output.TABLE)
        return INTERRUPTED
    except Stopped as error:
        from ottla.cli.stop_request import end_by

        tell(error, output)
        return end_by(error.number)
    except (OttlaError, InvalidSettings) as error:
        return tell(error, output)
    except Exception as error:  # the edge of a command
        show_failure(Failure(own_mistake(error), "INTERNAL"), output)
        return FAILED
    return 0 if answer is None else show(answer, output)

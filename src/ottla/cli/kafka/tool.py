"""How one of Kafka's tools is run: its arguments read, its cluster asked, its exit code given.

Invariant: 0 when it did what it was asked for, 1 when it did not, was used wrongly or was asked for
help (Kafka's tools do not tell these apart), 2 for a flag that is not done here yet, 130 when it
was interrupted, and what the reader of its output did is heeded as it is by `ottla`.
"""

import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ottla import __version__
from ottla.cli.escapes import escaped
from ottla.cli.event_loop import run_asking
from ottla.cli.failures import own_mistake
from ottla.cli.kafka.flags import AskedForHelp, AskedForVersion, BadFlags, Given, NotDone, Usage
from ottla.cli.output_errors import heeded, is_heard
from ottla.cli.target import BOOTSTRAP, DEFAULTS
from ottla.errors import OttlaError
from ottla.settings.invalid_settings import InvalidSettings

if TYPE_CHECKING:
    from ottla.client.admin.administration import Administration

A = TypeVar("A", bound="Administration")

FAILED, NOT_DONE, INTERRUPTED = 1, 2, 130


def run_tool(
    usage: Usage,
    act: Callable[[Given], Coroutine[Any, Any, int]],
    tell: Callable[[OttlaError], None] | None = None,
    *,
    is_fast: bool = False,
) -> None:
    """Run a tool on the arguments of this process, and end the process.

    `tell` says what is wrong where Kafka's tool does not say it on stderr, with the usage after
    flags that are wrong. `is_fast` is for a tool that moves many records: on the faster event loop.
    """
    with heeded(usage.tool):
        sys.exit(conducted(usage, act, sys.argv[1:], tell, is_fast=is_fast))


def understood(
    usage: Usage, arguments: list[str], tell: Callable[[OttlaError], None] | None = None
) -> Given | int:
    """What arguments say, or the exit code when there is nothing to do but to explain."""
    try:
        return usage.read(arguments)
    except AskedForHelp as asked:
        print(usage.text(), file=sys.stdout if usage.helps_on_stdout else sys.stderr)
        return asked.code
    except AskedForVersion:
        print(f"{__version__} (Ottla)")
        return 0
    except BadFlags as error:
        if tell is None:
            _tell(usage, error)
        else:
            tell(error)
        return FAILED
    except NotDone as error:
        print(error, file=sys.stderr)
        return NOT_DONE


def conducted(
    usage: Usage,
    act: Callable[[Given], Coroutine[Any, Any, int]],
    arguments: list[str],
    tell: Callable[[OttlaError], None] | None = None,
    *,
    is_fast: bool = False,
) -> int:
    """Run a tool; the exit code."""
    tell = tell or (lambda error: _tell(usage, error))
    given = understood(usage, arguments, tell)
    if isinstance(given, int):
        return given
    try:
        return run_asking(lambda: act(given), is_fast=is_fast)
    except KeyboardInterrupt:
        is_heard()
        return INTERRUPTED
    except NotDone as error:
        print(error, file=sys.stderr)
        return NOT_DONE
    except OttlaError as error:  # flags that do not fit together, too
        tell(error)
    except InvalidSettings as error:
        tell(OttlaError(str(error)))
    except Exception as error:  # the edge of a tool
        tell(OttlaError(own_mistake(error)))
    return FAILED


def _tell(usage: Usage, error: OttlaError) -> None:
    """Say what is wrong on stderr."""
    text = f"{error}\n{usage.text()}" if isinstance(error, BadFlags) else str(error)
    print(text, file=sys.stderr)


async def opened(kind: type[A], settings: Mapping[str, str]) -> A:
    """An administrator with the calls that a tool needs, when a broker can be reached."""
    from ottla.cli.probe import probe

    if why := await probe(settings):
        raise OttlaError(why)
    return kind(settings)


def settings_of(given: Given, file_flag: str = "command-config") -> dict[str, str]:
    """The client's settings: those of the file that was named, and where the cluster is."""
    from ottla.cli.kafka.client_flags import file_properties, known

    found = {**DEFAULTS, **file_properties(given.one(file_flag))}
    if (servers := given.one("bootstrap-server")) is not None:
        found[BOOTSTRAP] = servers
    return known("admin", found)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines; on a terminal, control characters in names are escaped."""
    safe = escaped if sys.stdout.isatty() else str
    sys.stdout.writelines(f"{safe(line)}\n" for line in lines)


def print_error(message: str) -> None:
    """Print an error on stdout, as Kafka's tool does."""
    print_lines(("", f"Error: {message}"))

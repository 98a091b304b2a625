"""Runs one of Kafka's tools: arguments, action, exit code.

Invariant: the exit code is 0 after success and 2 for a flag that is not supported yet. It is 130
after Ctrl-C and 1 otherwise, also after wrong flags and, in most tools, --help. Output that cannot
be written is handled as in `ottla`.
"""

import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ottla import __version__
from ottla.cli.escapes import escaped, printable
from ottla.cli.event_loop import run_asking
from ottla.cli.failures import own_mistake, with_command
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
    """Run a tool with the arguments of this process and exit.

    `tell` prints an error; by default on stderr, followed by the usage if the flags are wrong.
    `is_fast` selects the faster event loop, for a tool that transfers many records.
    """
    with heeded(usage.tool):
        sys.exit(conducted(usage, act, sys.argv[1:], tell, is_fast=is_fast))


def understood(
    usage: Usage, arguments: list[str], tell: Callable[[OttlaError], None] | None = None
) -> Given | int:
    """Parse arguments; returns the exit code if they are wrong or ask for help or the version."""
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
    """Run a tool; returns the exit code."""
    tell = tell or (lambda error: _tell(usage, error))
    given = understood(usage, arguments, tell)
    if isinstance(given, int):
        return given
    try:
        report = _warn if is_fast else None
        return run_asking(lambda: act(given), is_fast=is_fast, report=report)
    except KeyboardInterrupt:
        is_heard()
        return INTERRUPTED
    except NotDone as error:
        print(error, file=sys.stderr)
        return NOT_DONE
    except OttlaError as error:  # includes flags that do not fit together
        tell(error)
    except InvalidSettings as error:
        tell(OttlaError(str(error)))
    except Exception as error:  # the outer edge of a tool
        tell(OttlaError(own_mistake(error)))
    return FAILED


def _tell(usage: Usage, error: OttlaError) -> None:
    """Print an error on stderr."""
    text = usage.after(error) if isinstance(error, BadFlags) else str(error)
    print(text, file=sys.stderr)


def _warn(warning: str) -> None:
    """Print a warning of the client on stderr, where Kafka's tools have their log."""
    print(f"WARN {printable(with_command(warning))}", file=sys.stderr, flush=True)


async def opened(kind: type[A], settings: Mapping[str, str]) -> A:
    """Return an admin client of this class; raises OttlaError if no broker can be reached."""
    from ottla.cli.probe import probe

    if why := await probe(settings):
        raise OttlaError(why)
    return kind(settings)


def settings_of(given: Given, file_flag: str = "command-config") -> dict[str, str]:
    """Return the client settings: those of the properties file and --bootstrap-server."""
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

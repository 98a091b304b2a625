"""`ottla version` and `ottla --version`: the versions, and whether the extension is compiled.

With plain arguments it runs before the command line is imported, which takes longer than the
command.
"""

from typing import Final

from ottla import __version__
from ottla.cli.installation import found
from ottla.cli.output import Output
from ottla.cli.output_errors import heeded
from ottla.cli.result import Result, facts, show

PLAIN: Final[dict[tuple[str, ...], Output]] = {
    ("version",): Output.TABLE,
    ("version", "-o", "table"): Output.TABLE,
    ("version", "-o", "json"): Output.JSON,
    ("version", "-o", "yaml"): Output.YAML,
}
"""The plain arguments."""


FLAG: Final = "--version"


def print_release() -> None:
    """Print the version of Ottla as one line."""
    print(f"ottla {__version__}")


def answer() -> Result:
    """Show the versions of Ottla and Python, and whether Ottla uses its compiled extension."""
    value = found()
    return Result(
        value, facts({name.replace("kernel", "extension"): one for name, one in value.items()})
    )


def answered(arguments: list[str]) -> bool:
    """Answer if the arguments are plain."""
    if arguments == [FLAG]:
        with heeded("ottla"):
            print_release()
        return True
    output = PLAIN.get(tuple(arguments))
    if output is None:
        return False
    with heeded("ottla"):
        show(answer(), output)
    return True

"""`ottla version`: the versions, and whether Ottla uses its compiled extension.

With plain arguments it runs before the command line is imported, which takes longer than the
command.
"""

from typing import Final

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


def answer() -> Result:
    """Show the versions of Ottla and Python, and whether Ottla uses its compiled extension."""
    value = found()
    return Result(
        value, facts({name.replace("kernel", "extension"): one for name, one in value.items()})
    )


def answered(arguments: list[str]) -> bool:
    """Answer if the arguments are plain."""
    output = PLAIN.get(tuple(arguments))
    if output is None:
        return False
    with heeded("ottla"):
        show(answer(), output)
    return True

"""`ottla version`: what runs here, and whether its kernel is compiled."""

import platform
from importlib import metadata

from ottla.cli.output import Output, OutputOption, show_facts
from ottla.records import kernel


def show(output: OutputOption = Output.TABLE) -> None:
    """Show the versions of Ottla and Python, and which kernel runs."""
    show_facts(
        {
            "ottla": metadata.version("ottla"),
            "python": platform.python_version(),
            "kernel": "compiled" if kernel.COMPILED else "python",
            "kernel_file": kernel.__file__ or "unknown",
        },
        output,
    )

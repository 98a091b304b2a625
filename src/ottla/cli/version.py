"""`ottla version`: what runs here, and whether its kernel is compiled.

What it shows is imported when it is asked for: other commands start without it.
"""

from ottla import __version__
from ottla.cli.output import Output, OutputOption, show_facts


def show(output: OutputOption = Output.TABLE) -> None:
    """Show the versions of Ottla and Python, and which kernel runs."""
    import platform

    from ottla.records import kernel

    show_facts(
        {
            "ottla": __version__,
            "python": platform.python_version(),
            "kernel": "compiled" if kernel.COMPILED else "python",
            "kernel_file": kernel.__file__ or "unknown",
        },
        output,
    )

"""A question to somebody at a terminal.

Invariant: Ctrl-C is heard whenever it comes. Python looks for signals before it waits for a line
and when one ends the waiting; one that comes in between would be heard with the next line only. So
it waits for a line or for a signal, whichever is first, and reads a line that is there already.
"""

import os
import select
import signal
import sys

import typer


def confirmed(question: str) -> bool:
    """Whether the answer is yes; nothing at all is no, and the end of the input ends it all."""
    while True:
        typer.echo(f"{question} [y/N]: ", err=True, nl=False)
        _wait_for_a_line()
        line = sys.stdin.readline()
        if not line:
            raise typer.Abort
        match line.strip().lower():
            case "y" | "yes":
                return True
            case "n" | "no" | "":
                return False
            case _:
                typer.echo("Enter y or n.", err=True)


def _wait_for_a_line() -> None:
    """Return when a line can be read, or when a signal came that Python handles."""
    if sys.platform == "win32":  # one cannot wait for keys there
        return
    heard, told = os.pipe()
    os.set_blocking(told, False)
    before = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    try:
        # One that came in another thread just before is not looked for until a call like this.
        signal.pthread_sigmask(signal.SIG_BLOCK, ())
        select.select([sys.stdin, heard], [], [])
    finally:
        signal.set_wakeup_fd(before)
        os.close(heard)
        os.close(told)

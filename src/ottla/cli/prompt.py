"""Asks for confirmation on a terminal.

Invariant: Ctrl-C always works. Python checks for signals before it waits for a line and when one
interrupts the wait; one in between would be noticed with the next line. So this waits for a line or
a signal, whichever is first.
"""

import os
import select
import signal
import sys

import typer


def confirmed(question: str) -> bool:
    """Whether the answer is yes; an empty answer is no, and the end of input aborts."""
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
    """Return when a line can be read, or when a signal arrived."""
    if sys.platform == "win32":  # waiting for keys is not supported there
        return
    heard, told = os.pipe()
    os.set_blocking(told, False)
    before = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    try:
        # A signal in another thread just before is only noticed in a call like this.
        signal.pthread_sigmask(signal.SIG_BLOCK, ())
        select.select([sys.stdin, heard], [], [])
    finally:
        signal.set_wakeup_fd(before)
        os.close(heard)
        os.close(told)

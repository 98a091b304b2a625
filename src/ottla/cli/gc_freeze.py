"""Relaxes the garbage collector while a command starts.

Imported modules stay to the end, so scanning them is a waste, during the import and later; so do
the logs that a broker opens at its start. A running command has Python's normal collector.
"""

import gc

TYPE_CHECKING = False  # typing is imported on use, because this module comes first
if TYPE_CHECKING:
    from typing import Final

HELD: "Final" = 100_000
"""Allocations that trigger a collection meanwhile; a short command has fewer."""

_usual = gc.get_threshold()


def hold() -> None:
    """Relax the collector at the start of a command."""
    gc.set_threshold(HELD, *_usual[1:])


def release() -> None:
    """Freeze what is imported and restore the collector."""
    if gc.get_threshold() != _usual:
        gc.freeze()
        gc.set_threshold(*_usual)

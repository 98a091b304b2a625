"""Python's cyclic collector while a command starts.

Invariant: what is imported stays to the end, so nobody looks for garbage in it: not while it is
imported, nor later. A command that goes on has the collector that Python gives it.
"""

import gc

TYPE_CHECKING = False  # typing is imported where it is needed: this comes before all
if TYPE_CHECKING:
    from typing import Final

HELD: "Final" = 100_000
"""So many new objects make one search meanwhile. A command that answers at once has fewer."""

_usual = gc.get_threshold()


def hold() -> None:
    """A command starts: let the collector rest."""
    gc.set_threshold(HELD, *_usual[1:])


def release() -> None:
    """What a command needs is imported: put it aside, and let the collector work as usual."""
    if gc.get_threshold() != _usual:
        gc.freeze()
        gc.set_threshold(*_usual)

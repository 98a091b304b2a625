"""Which Ottla this is.

Invariant: it is what is installed, too; to look it up there takes longer than to start a listener.
"""

TYPE_CHECKING = False  # typing is imported where it is needed: a command's first step is not
if TYPE_CHECKING:
    from typing import Final

RELEASE: "Final" = "0.1.0.dev0"

"""Which Ottla this is.

Invariant: it is what is installed, too; to look it up there takes longer than to start a listener.
"""

from typing import Final

RELEASE: Final = "0.1.0.dev0"

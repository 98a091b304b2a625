"""The version of Ottla.

Invariant: equal to the version of the installed package; reading that takes longer than starting a
listener.
"""

TYPE_CHECKING = False  # importing typing would slow down the start of a command
if TYPE_CHECKING:
    from typing import Final

RELEASE: "Final" = "0.1.0.dev0"

VERSION_CONFIG: "Final" = "ottla.version"
"""The config in which a broker returns its version."""

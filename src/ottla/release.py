"""The version of Ottla, and how to install its extras.

Invariant: the version is that of the installed package; reading that takes longer than starting a
listener.
"""

TYPE_CHECKING = False  # importing typing would slow down the start of a command
if TYPE_CHECKING:
    from typing import Final

RELEASE: "Final" = "0.1.0.dev0"

VERSION_CONFIG: "Final" = "ottla.version"
"""The config in which a broker returns its version."""

JAVA_MIN: "Final" = 17
"""The version that Spark 4 and ZooKeeper need."""

INSTALL_JAVA: "Final" = (
    f"install Java {JAVA_MIN} or newer (Debian: openjdk-17-jre-headless; macOS: brew install "
    "openjdk), or set JAVA_HOME"
)


def how_to_install(extra: str) -> str:
    """Return the remedy of an error about a missing package; Ottla is not on PyPI yet."""
    return f'install Ottla with the extra {extra} (in a clone: pip install ".[{extra}]")'

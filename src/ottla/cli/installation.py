"""What is installed here: the versions, and which kernel runs.

Invariant: nothing is imported to find out, so that the answer comes at once.
"""

import os
import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder

import ottla


def found() -> dict[str, str]:
    """What there is."""
    loaded = sys.modules.get("ottla.records.kernel")
    spec = loaded.__spec__ if loaded is not None else _there()
    compiled = spec is not None and isinstance(spec.loader, ExtensionFileLoader)
    return {
        "ottla": ottla.__version__,
        "python": sys.version.split()[0],
        "kernel": "compiled" if compiled else "python",
        "kernel_file": (spec and spec.origin) or "unknown",
    }


def _there() -> ModuleSpec | None:
    """The kernel that would be imported."""
    return PathFinder.find_spec(
        "kernel", [os.path.join(os.path.dirname(ottla.__file__), "records")]
    )

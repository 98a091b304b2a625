"""The installed versions and kernel.

Nothing is imported to find out, so that the command is fast.
"""

import os
import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder

import ottla


def found() -> dict[str, str]:
    """Return the versions."""
    loaded = sys.modules.get("ottla.records._kernel.parser")
    spec = loaded.__spec__ if loaded is not None else _there()
    compiled = spec is not None and isinstance(spec.loader, ExtensionFileLoader)
    return {
        "ottla": ottla.__version__,
        "python": sys.version.split()[0],
        "kernel": "compiled" if compiled else "python",
        "kernel_file": (spec and spec.origin) or "unknown",
    }


def _there() -> ModuleSpec | None:
    """Return the spec of the kernel's parser; all modules of the kernel are compiled or none is."""
    folder = os.path.join(os.path.dirname(ottla.__file__), "records", "_kernel")
    return PathFinder.find_spec("parser", [folder])

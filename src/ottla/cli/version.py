"""`ottla version`: what runs here, and whether its kernel is compiled.

Invariant: nothing is imported to find out, so that the answer comes at once.
"""

import platform
import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from pathlib import Path

import ottla
from ottla.cli.answer import Answer, facts
from ottla.cli.session import answers


def found() -> dict[str, str]:
    """What there is."""
    loaded = sys.modules.get("ottla.records.kernel")
    spec = loaded.__spec__ if loaded is not None else _there()
    compiled = spec is not None and isinstance(spec.loader, ExtensionFileLoader)
    return {
        "ottla": ottla.__version__,
        "python": platform.python_version(),
        "kernel": "compiled" if compiled else "python",
        "kernel_file": (spec and spec.origin) or "unknown",
    }


def _there() -> ModuleSpec | None:
    """The kernel that would be imported."""
    return PathFinder.find_spec("kernel", [str(Path(ottla.__file__).parent / "records")])


@answers
def show() -> Answer:
    """Show the versions of Ottla and Python, and which kernel runs."""
    value = found()
    return Answer(value, facts(value))

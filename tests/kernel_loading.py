"""Imports the kernel of the records as plain Python, or compiled, whichever is installed."""

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import spec_from_loader
from pathlib import Path
from typing import Any

KERNEL = "ottla.records._kernel"
SOURCE = Path(__file__).parents[1] / "src"
FOLDER = SOURCE / "ottla/records/_kernel"
FAST_PATH = "ottla.broker.produce_fast_path"  # compiled with the kernel, and uses its C functions


class SourceFinder:
    """Finds the modules of the kernel as .py files, also where compiled ones are installed."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        if not name.startswith(f"{KERNEL}.") and name != FAST_PATH:
            return None
        source = SOURCE / f"{name.replace('.', '/')}.py"
        return spec_from_loader(name, SourceFileLoader(name, str(source)))


class CompiledFinder:
    """Finds the modules of the kernel as an installation does: compiled ones first."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        return PathFinder.find_spec(name, path) if name.startswith(f"{KERNEL}.") else None


def is_compiled() -> bool:
    """Return whether the source folder has a compiled kernel."""
    return any(path.name.endswith(tuple(EXTENSION_SUFFIXES)) for path in FOLDER.iterdir())


def load_kernel(finder: type[SourceFinder | CompiledFinder]) -> Any:
    """Import another copy of the kernel; the copy that the tests use stays as it is."""
    parent = importlib.import_module("ottla.records")
    used = {name: module for name, module in sys.modules.items() if _is_kernel(name)}
    for name in used:
        del sys.modules[name]
    sys.meta_path.insert(0, finder)
    try:
        return importlib.import_module(KERNEL)
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if _is_kernel(name)]:
            del sys.modules[name]
        sys.modules.update(used)
        parent._kernel = used[KERNEL]  # type: ignore[attr-defined]


def _is_kernel(name: str) -> bool:
    return name == KERNEL or name.startswith(f"{KERNEL}.")

"""Chooses the kernel under test, before anything of Ottla is imported.

OTTLA_TEST_KERNEL=python loads the kernel's source even where the compiled one is installed, so
that one machine tests both. Unset, the tests take what the installation has.
"""

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

from hypothesis import settings

KERNEL = "ottla.records.kernel"


class _SourceKernel:
    """A finder that answers for the kernel alone, with its .py file."""

    @staticmethod
    def find_spec(
        name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != KERNEL:
            return None
        source = Path(__file__).parents[1] / "src/ottla/records/kernel.py"
        loader = importlib.machinery.SourceFileLoader(KERNEL, str(source))
        return importlib.util.spec_from_loader(KERNEL, loader)


if os.environ.get("OTTLA_TEST_KERNEL") == "python":
    assert KERNEL not in sys.modules
    sys.meta_path.insert(0, _SourceKernel())

# In CI the same examples are drawn every time, so that a run tells about the change it judges;
# everywhere else they are new ones, and `make soak` draws ten times as many.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

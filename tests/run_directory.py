"""A directory that all processes of one run of the tests share, and that is deleted at its end."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

_VARIABLE: Final = "OTTLA_TEST_DIRECTORY"


def create() -> None:
    """Create it, unless this process was started by one that has done so."""
    if _VARIABLE not in os.environ:
        os.environ[_VARIABLE] = tempfile.mkdtemp(prefix="ottla-tests-")
        atexit.register(shutil.rmtree, os.environ[_VARIABLE], ignore_errors=True)


def run_directory() -> Path:
    """Return the directory."""
    return Path(os.environ[_VARIABLE])

"""Which source files the executors of a cluster get for the Python steps of a pipeline."""

import subprocess
import sys
from pathlib import Path

import pytest

from ottla.pipeline.step_modules import modules_of, source_files, write_archive
from pipeline.spec.declarations import SENSORS, loaded

UNITS = """\
from . import deep


def celsius(kelvin):
    import lazy

    return lazy.ZERO
"""
FILES = {
    "steps.py": "import os, pandas, ottla\nfrom helpers.units import celsius\n",
    "helpers/__init__.py": "",
    "helpers/units.py": UNITS,
    "helpers/deep/__init__.py": "import lazy\n",
    "helpers/.hidden/copy.py": "",
    "helpers/data.csv": "1",
    "lazy.py": "ZERO = -273\n",
    "unused.py": "",
    "broken/__init__.py": "import (",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_steps_bring_all_modules_that_they_import(folder: Path) -> None:
    files = source_files(["steps", "broken.part", "missing"], [str(folder), *sys.path])
    assert sorted(files) == [
        "broken/__init__.py",
        "helpers/__init__.py",
        "helpers/deep/__init__.py",
        "helpers/units.py",
        "lazy.py",
        "steps.py",
    ]


def test_executors_import_steps_from_the_archive(folder: Path, tmp_path: Path) -> None:
    archive = tmp_path / "steps.zip"
    write_archive(source_files(["helpers.units"], [str(folder)]), archive)
    program = f"import sys; sys.path.insert(0, {str(archive)!r}); from helpers.units import celsius"
    command = [sys.executable, "-c", f"{program}; print(celsius(0))"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout == "-273\n"


def test_installed_packages_are_not_sent() -> None:
    assert source_files(["pyarrow", "json", "ottla", "pyspark_ottla"]) == {}


def test_steps_and_sinks_name_modules() -> None:
    text = SENSORS.replace("sinks:", 'sinks:\n  - {from: readings, python: "stores.db:write"}', 1)
    assert modules_of(loaded(text).pipeline) == ["sensors.steps", "stores.db"]

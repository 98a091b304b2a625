"""Finds the modules of Python steps, so that they can be sent to the executors of a cluster.

Spark pickles a function of a module by its name, so the executors must be able to import the
module. The runner sends the modules of the steps, and every module that these import, in a zip
archive.

Invariant: the archive has only source files (`.py`) that are not installed: neither modules of the
standard library nor of `site-packages`, which may be compiled, and which the executors need anyway.
"""

import ast
import sys
import sysconfig
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

from ottla.pipeline.spec.model import Pipeline

ENDING: Final = ".py"
_OWN: Final = frozenset({"ottla", "pyspark_ottla"})
"""Compiled packages: the executors need an installed Ottla."""


def modules_of(pipeline: Pipeline) -> list[str]:
    """Return the modules of the Python steps and sinks."""
    functions = [one.python for one in (*pipeline.steps.values(), *pipeline.sinks)]
    return [*dict.fromkeys(one.partition(":")[0] for one in functions if one is not None)]


def source_files(modules: Iterable[str], path: Sequence[str] = sys.path) -> dict[str, Path]:
    """Return the source files that modules need, by their names in an archive.

    A package is complete. What it imports is found by its `import` statements, also those inside
    functions.
    """
    installed = _installed_directories()
    waiting = [one.partition(".")[0] for one in modules]
    seen: set[str] = set()
    files: dict[str, Path] = {}
    while waiting:
        name = waiting.pop()
        if name in seen or name in _OWN or name in sys.stdlib_module_names:
            continue
        seen.add(name)
        found = {
            entry: file
            for entry, file in _files_of(name, path)
            if not any(file.is_relative_to(one) for one in installed)
        }
        files |= found
        for file in found.values():
            waiting += _imported(file)
    return files


def write_archive(files: Mapping[str, Path], archive: Path) -> None:
    """Write source files to a zip archive, from which Python imports them."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as written:
        for name, file in sorted(files.items()):
            written.write(file, name)


def _files_of(name: str, path: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yield the source files of a module or package, without importing it."""
    spec = PathFinder.find_spec(name, path)
    if spec is None:
        return
    if spec.submodule_search_locations is None:
        if spec.origin is not None and spec.origin.endswith(ENDING):
            yield f"{name}{ENDING}", Path(spec.origin).resolve()
        return
    for location in spec.submodule_search_locations:
        folder = Path(location)
        for file in folder.rglob(f"*{ENDING}"):
            relative = file.relative_to(folder)
            if not any(part.startswith(".") for part in relative.parts):
                yield f"{name}/{relative.as_posix()}", file.resolve()


def _imported(file: Path) -> Iterator[str]:
    """Yield the first part of the name of each module that a file imports."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return  # its import fails, which is reported with the step
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name.partition(".")[0] for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            yield node.module.partition(".")[0]


def _installed_directories() -> list[Path]:
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    return [Path(sysconfig.get_path(one)).resolve() for one in kinds]

"""Builds the compiled kernel where that is possible, and installs without it where it is not.

A missing compiler, missing headers or a missing Cython never fails an install: the source of the
kernel is plain Python and is always installed. The modules of the kernel call each other's C
functions, so either all of them are compiled or none is.
"""

import os
from pathlib import Path
from typing import cast

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCE = Path("src")
KERNEL = SOURCE / "ottla/records/_kernel"
NOT_COMPILED = {"__init__", "constants", "cython_stub", "integers"}
FAST_PATH = SOURCE / "ottla/broker/produce_fast_path.py"  # uses C functions of the kernel


def extensions() -> list[Extension]:
    """Return the modules of the kernel as optional extensions; none if Cython is not installed."""
    try:
        from Cython.Build import cythonize  # pyright: ignore[reportUnknownVariableType]
    except ImportError:
        return []
    modules = [
        Extension(
            ".".join(source.relative_to(SOURCE).with_suffix("").parts),
            [str(source)],
            extra_compile_args=["-O3", "-g0"],
        )
        for source in (*sorted(KERNEL.glob("*.py")), FAST_PATH)
        if source.stem not in NOT_COMPILED
    ]
    translated = cast(
        "list[Extension]",
        cythonize(modules, build_dir="build/cython", language_level=3),
    )
    for extension in translated:
        extension.optional = True  # cythonize does not copy it
    return translated


class BuildAllOrNone(build_ext):
    """Compiles on all cores; removes the compiled modules if one of them could not be compiled."""

    def finalize_options(self) -> None:
        """Compile as many modules at once as there are cores."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def build_extensions(self) -> None:
        """Build all extensions."""
        super().build_extensions()
        built = [Path(self.get_ext_fullpath(extension.name)) for extension in self.extensions]
        if not all(path.exists() for path in built):
            for path in built:
                path.unlink(missing_ok=True)


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildAllOrNone})

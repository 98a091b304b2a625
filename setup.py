"""Builds the compiled kernel where that is possible, and installs without it where it is not.

Invariant: a missing compiler, missing headers or a missing Cython never fails an install. The
kernel's source is plain Python and is always installed; the extension only shadows it.
"""

from typing import cast

from setuptools import Extension, setup


def extensions() -> list[Extension]:
    """The kernel as an optional extension; empty when there is no Cython to translate it."""
    try:
        from Cython.Build import cythonize  # pyright: ignore[reportUnknownVariableType]
    except ImportError:
        return []
    kernel = Extension(
        "ottla.records.kernel",
        ["src/ottla/records/kernel.py"],
        extra_compile_args=["-O3"],
    )
    translated = cast(
        "list[Extension]",
        cythonize([kernel], build_dir="build/cython", language_level=3),
    )
    for extension in translated:
        extension.optional = True  # said afterwards: cythonize forgets it
    return translated


setup(ext_modules=extensions())

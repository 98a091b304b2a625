"""Builds the compiled kernel where that is possible, and installs without it where it is not.

Invariant: a missing compiler, missing headers or a missing Cython never fails an install. The
kernel's source is plain Python and is always installed; the extension only shadows it.
"""

from setuptools import Extension, setup


def extensions() -> list[Extension]:
    """The kernel as an optional extension; empty when there is no Cython to translate it."""
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    kernel = Extension(
        "ottla.records.kernel",
        ["src/ottla/records/kernel.py"],
        extra_compile_args=["-O3"],
        optional=True,
    )
    return cythonize([kernel], build_dir="build/cython", language_level=3)


setup(ext_modules=extensions())

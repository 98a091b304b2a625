"""Stands in for Cython where the kernel runs uncompiled on a machine without it.

Invariant: every name does nothing, so that the kernel's source means the same with it as with
Cython's own `cython` module. Types appear in annotations only, which are never evaluated.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")

compiled: Final = False


def _unchanged(subject: T) -> T:
    return subject


cclass = _unchanged
cfunc = _unchanged
final = _unchanged
inline = _unchanged
no_gc = _unchanged


def freelist(_: int) -> Callable[[T], T]:
    """How many freed objects of a class C code keeps for reuse: no matter to Python."""
    return _unchanged


def exceptval(*_: Any, check: bool = True) -> Callable[[T], T]:
    """How a C function reports an exception: no matter to Python."""
    return _unchanged

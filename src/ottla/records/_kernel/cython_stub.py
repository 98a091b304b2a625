"""Replaces the `cython` module where the kernel runs as plain Python and Cython is not installed.

Every name does nothing, as Cython's own module does when the code is not compiled. Types occur only
in annotations, which are never evaluated.
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
    """Set how many freed objects of a class the compiled code keeps for reuse."""
    return _unchanged


def exceptval(*_: Any, check: bool = True) -> Callable[[T], T]:
    """Set how a C function reports an exception."""
    return _unchanged

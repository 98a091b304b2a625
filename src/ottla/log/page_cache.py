"""Asks the system which bytes of a file are in the page cache (`cachestat`, Linux 6.5)."""

import ctypes
import mmap
import sys
from collections.abc import Callable
from typing import Final

_CACHESTAT: Final = 451  # the number of the system call, which Python and the C library do not name


class _Range(ctypes.Structure):
    _fields_ = (("position", ctypes.c_uint64), ("size", ctypes.c_uint64))


class _Found(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


def _asking() -> Callable[[int, int, int], bool]:
    """Return a function that asks; its memory is used again, so it is for the event loop only."""
    if sys.platform != "linux":
        return lambda descriptor, position, size: False
    # PyDLL keeps the interpreter lock: the call takes less than a microsecond.
    call = ctypes.PyDLL(None).syscall
    call.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint)
    call.restype = ctypes.c_long
    wanted, found = _Range(), _Found()
    wanted_at, found_at = ctypes.addressof(wanted), ctypes.addressof(found)
    page = mmap.PAGESIZE

    def ask(descriptor: int, position: int, size: int) -> bool:
        wanted.position, wanted.size = position, size
        if call(_CACHESTAT, descriptor, wanted_at, found_at, 0):
            return False  # an older kernel, or a file system without a page cache
        return found.cached == (position + size - 1) // page - position // page + 1

    return ask


is_cached: Final = _asking()
"""(descriptor, position, size) -> whether all pages of the range are in the page cache.

False if the system cannot tell. Pages that are being read count as cached.
"""

"""Facts about this machine.

Invariant: nothing is left behind: a port that was tried is free again, and the file that shows
whether a folder can be written has no name.
"""

import os
import platform
import socket
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import ottla
from ottla.cli.doctor.facts import (
    ClockFacts,
    DiskFacts,
    JavaFacts,
    KernelFacts,
    LimitFacts,
    PortFacts,
    PythonFacts,
)
from ottla.cli.installation import found
from ottla.clock import Clock

_UNSYNCHRONIZED: Final = 5  # TIME_ERROR of timex.h
_TIMEX_BYTES: Final = 512  # more than the structure has anywhere


def python() -> PythonFacts:
    """The interpreter that runs this."""
    version = sys.version_info
    return PythonFacts(
        (version.major, version.minor, version.micro),
        platform.python_implementation(),
        asserts=not sys.flags.optimize,
    )


def kernel() -> KernelFacts:
    """The kernel that would be imported."""
    there = found()
    return KernelFacts(there["kernel"] == "compiled", there["kernel_file"])


def java(environment: Mapping[str, str]) -> JavaFacts:
    """The Java that Spark would start."""
    from ottla.pipeline.java import NoJava, check_java

    try:
        return JavaFacts(check_java(environment))
    except NoJava as why:
        return JavaFacts(None, str(why))


def port(number: int, use: str, *, is_ours: bool) -> PortFacts:
    """Who has a port of this machine."""
    from ottla.transport.port_owner import port_owner

    if is_free(number):
        return PortFacts(number, use, is_free=True)
    return PortFacts(number, use, is_free=False, occupant=port_owner(number), is_ours=is_ours)


def is_free(number: int) -> bool:
    """Whether a broker could listen there."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the broker does
        try:
            tried.bind(("127.0.0.1", number))
            tried.listen(1)
        except OSError:
            return False
    return True


def disk(folder: Path) -> DiskFacts:
    """The place of the data."""
    why_not: str | None = None
    try:
        folder = folder.absolute()
    except FileNotFoundError:
        why_not = "the current directory was deleted"
    nearest = next(one for one in (folder, *folder.parents) if _is_seen(one))
    try:
        folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass  # it would be made
    except OSError as error:
        why_not = why_not or error.strerror
    try:
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        why_not = why_not or error.strerror or str(error)
    room = os.statvfs(nearest)
    return DiskFacts(
        str(folder),
        str(nearest),
        free_bytes=room.f_bavail * room.f_frsize,
        total_bytes=room.f_blocks * room.f_frsize,
        why_not_writable=why_not,
    )


def _is_seen(path: Path) -> bool:
    """Whether there is something, as far as this user may look."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def limits() -> LimitFacts:
    """How many files a process may open."""
    import resource

    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return LimitFacts(_limit(now), _limit(most))


def _limit(number: int) -> int | None:
    import resource

    return None if number == resource.RLIM_INFINITY else number


def clock(time: Clock) -> ClockFacts:
    """What time it is, and whether somebody sees to it."""
    installed_s = Path(ottla.__file__).stat().st_mtime
    return ClockFacts(time.now_ms(), int(installed_s * 1000), is_synchronized())


def is_synchronized() -> bool | None:
    """What the kernel of the system knows; None where it does not tell."""
    import ctypes

    with suppress(OSError, AttributeError):  # only Linux has it
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
        if state >= 0:
            return state != _UNSYNCHRONIZED
    return None

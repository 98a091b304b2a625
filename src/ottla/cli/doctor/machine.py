"""Facts about this machine.

Invariant: nothing is left behind: a tested port is free again, and the file that tests a directory
has no name.
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
    BrokerIdentity,
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
_TIMEX_BYTES: Final = 512  # larger than the structure on any platform


def python() -> PythonFacts:
    """The running interpreter."""
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


def port(number: int, identity: BrokerIdentity | None) -> PortFacts:
    """Return who uses a port; `identity` is the broker that responds there, if one does."""
    from ottla.transport.port_owner import port_owner

    if is_free(number):
        return PortFacts(number, is_free=True)
    return PortFacts(number, is_free=False, occupant=port_owner(number), identity=identity)


def is_free(number: int) -> bool:
    """Whether a broker could listen on the port."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the broker does
        try:
            tried.bind(("127.0.0.1", number))
            tried.listen(1)
        except OSError:
            return False
    return True


def disk(folder: Path) -> DiskFacts:
    """The data directory."""
    why_not: str | None = None
    try:
        folder = folder.absolute()
    except FileNotFoundError:
        why_not = "the current directory was deleted"
    nearest = next(one for one in (folder, *folder.parents) if _is_seen(one))
    try:
        folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass  # it would be created
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
    """Whether the path exists, as far as this user may see."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def limits() -> LimitFacts:
    """The limits of open files."""
    import resource

    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    return LimitFacts(_limit(now), _limit(most))


def _limit(number: int) -> int | None:
    import resource

    return None if number == resource.RLIM_INFINITY else number


def clock(time: Clock) -> ClockFacts:
    """The time and whether it is synchronized."""
    installed_s = Path(ottla.__file__).stat().st_mtime
    return ClockFacts(time.now_ms(), int(installed_s * 1000), is_synchronized())


def is_synchronized() -> bool | None:
    """Return what the kernel reports; None if unknown."""
    import ctypes

    with suppress(OSError, AttributeError):  # Linux only
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
        if state >= 0:
            return state != _UNSYNCHRONIZED
    return None

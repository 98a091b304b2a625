"""Finds the process that listens on a port, for error messages and `ottla cluster status`.

The result may be None: processes of other users are not visible, and /proc exists only on Linux.
"""

import os
from contextlib import suppress
from typing import Final

_LISTENING: Final = "0A"


def port_owner(port: int) -> str | None:
    """Return the process that listens on a port, as "name (pid 123)"."""
    pid = port_owner_pid(port)
    return None if pid is None else f"{_name(str(pid))} (pid {pid})"


def port_owner_pid(port: int) -> int | None:
    """Return the id of the process that listens on a port."""
    sockets = {inode for table in ("tcp", "tcp6") for inode in _inodes(table, port)}
    if not sockets:
        return None
    with suppress(OSError):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if _holds(pid, sockets):
                return int(pid)
    return None


def _inodes(table: str, port: int) -> list[str]:
    """Return the inodes of the sockets that listen on a port."""
    found: list[str] = []
    with suppress(OSError), open(f"/proc/net/{table}") as lines:
        for line in list(lines)[1:]:
            words = line.split()
            if words[3] == _LISTENING and int(words[1].rpartition(":")[2], 16) == port:
                found.append(words[9])
    return found


def _holds(pid: str, sockets: set[str]) -> bool:
    links = {f"socket:[{inode}]" for inode in sockets}
    with suppress(OSError):
        for descriptor in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                if os.readlink(f"/proc/{pid}/fd/{descriptor}") in links:
                    return True
    return False


def _name(pid: str) -> str:
    with suppress(OSError), open(f"/proc/{pid}/comm") as file:
        return file.read().strip()
    return "a process"

"""Finds the process that listens on a port, for error messages and `ottla cluster status`.

The result may be None: processes of other users are not visible, and /proc exists only on Linux.
"""

import os
import sys
from collections.abc import Collection
from contextlib import suppress
from typing import Final

_LISTENING: Final = "0A"


def port_owner(port: int) -> str | None:
    """Return the process that listens on a port, as "name (pid 123)"."""
    pid = port_owner_pid(port)
    return None if pid is None else f"{_name(str(pid))} (pid {pid})"


def port_owner_pid(port: int, address: str | None = None) -> int | None:
    """Return the id of the process that listens on a port, at this address or at all addresses."""
    forms = None if address is None else _forms(address)
    sockets = {inode for table in ("tcp", "tcp6") for inode in _inodes(table, port, forms)}
    if not sockets:
        return None
    with suppress(OSError):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            if _holds(pid, sockets):
                return int(pid)
    return None


def _forms(address: str) -> set[str]:
    """Return how the tables show an address, and all addresses."""
    # On use, because an import takes time at every start.
    from ipaddress import IPv4Address, IPv6Address, ip_address

    found = ip_address(address)
    six = IPv6Address(b"\0" * 10 + b"\xff" * 2 + found.packed) if found.version == 4 else found
    every = (IPv4Address(0), IPv6Address(0))
    return {_form(one.packed) for one in (found, six, *every)}


def _form(packed: bytes) -> str:
    words = (packed[start : start + 4] for start in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)


def _inodes(table: str, port: int, forms: Collection[str] | None) -> list[str]:
    """Return the inodes of the sockets that listen on a port, at some addresses or at any."""
    found: list[str] = []
    with suppress(OSError), open(f"/proc/net/{table}") as lines:
        for line in list(lines)[1:]:
            words = line.split()
            at, _, number = words[1].rpartition(":")
            if words[3] == _LISTENING and int(number, 16) == port and at in (forms or (at,)):
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

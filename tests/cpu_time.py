"""The processor time of this process and of every process that it started.

A test starts brokers, commands and Java, so its own process says little about what it costs. The
operating system counts an ended child for its parent; running ones are read from /proc. A child
whose parent has ended before it is not found, and neither is its time.
"""

import os
import time
from pathlib import Path
from typing import Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PROCESSES: Final = Path("/proc")

_AFTER_NAME: Final = ") "
_PARENT, _FIRST, _LAST = 1, 11, 14  # user, system, and both of ended children


def tree_seconds() -> float:
    """User and system time of this process and its descendants, since their starts."""
    spent = os.times()
    own = spent.user + spent.system + spent.children_user + spent.children_system
    return own + _running_children()


def _running_children() -> float:
    """The time of the descendants that run; 0 where the system has no /proc."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for name in os.listdir(_PROCESSES) if _PROCESSES.exists() else ():
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().decode(errors="replace").rpartition(_AFTER_NAME)[2].split()
        except OSError:  # it has ended
            continue
        pid = int(name)
        ticks[pid] = sum(map(int, fields[_FIRST : _LAST + 1]))
        children.setdefault(int(fields[_PARENT]), []).append(pid)
    found, waiting = 0, children.get(os.getpid(), [])
    while waiting:
        pid = waiting.pop()
        found += ticks[pid]
        waiting += children.get(pid, [])
    return found / _TICKS_PER_S


class CpuMeter:
    """Processor time since the last reading.

    Looking at every process takes longer than most tests. After a short test only this process is
    read, and the time of its children is counted with the next long test.
    """

    LONG_S: Final = 0.1

    def __init__(self) -> None:
        self._own = time.process_time()
        self._others = tree_seconds() - self._own
        self._read_at = time.monotonic()

    def read(self) -> float:
        """The processor time since the last call, or since the start of the meter."""
        now = time.monotonic()
        own = time.process_time()
        spent = own - self._own
        self._own = own
        if now - self._read_at >= self.LONG_S:
            others = tree_seconds() - own
            # It is less if a process has ended whose parent did not wait for it.
            spent += max(others - self._others, 0.0)
            self._others = others
        self._read_at = now
        return spent

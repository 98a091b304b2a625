"""Commands that get signals while they work."""

import array
import fcntl
import os
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from cli.records.harness import PATIENCE_S
from judges.ottla_broker import OttlaBroker

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def unignored() -> Generator[None]:
    """Handle the signals here, so that commands do not inherit an ignored one (`nohup`)."""
    ignored = [one for one in SIGNALS if signal.getsignal(one) is signal.SIG_IGN]
    for one in ignored:
        signal.signal(one, lambda number, frame: None)  # a handler is not inherited
    try:
        yield
    finally:
        for one in ignored:
            signal.signal(one, signal.SIG_IGN)


@contextmanager
def silent(broker: OttlaBroker) -> Generator[None]:
    """Stop a broker from responding during the block."""
    os.kill(broker.process_id, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(broker.process_id, signal.SIGCONT)


def unread(pipe: int) -> int:
    """Return the number of unread bytes in a pipe."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return count[0]


def hears_sigterm(process: "subprocess.Popen[bytes]") -> bool:
    """Whether a process handles SIGTERM, as it does until the first signal."""
    text = Path(f"/proc/{process.pid}/status").read_text()
    caught = [line.split()[1] for line in text.splitlines() if line.startswith("SigCgt")]
    return bool(caught) and bool(int(caught[0], 16) >> (signal.SIGTERM - 1) & 1)


def wait_until(process: "subprocess.Popen[bytes]", is_so: Callable[[], bool]) -> None:
    """Wait for a condition of a running process."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline_s
        time.sleep(0.01)

"""A process that has imported the commands and forks one for each request.

`cli.forked` starts one per process of the test run and sends it requests over a socket. A forked
command is a process of its own, with its own arguments, environment, folder, standard streams and
exit code; only the imports of Ottla are done already.
"""

import atexit
import gc
import io
import json
import os
import pkgutil
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import distribution
from types import FrameType
from typing import Any

REQUEST_BYTES_MAX = 1 << 20
PRELOADED = ("ottla.cli", "ottla.client", "ottla.broker")
SCRIPTS: dict[str, Callable[[], object]] = {}  # the functions of the console scripts
SOAK = float(os.environ.get("OTTLA_FUZZ_SCALE", "1")) > 1


def preload() -> None:
    for name in PRELOADED:
        package = import_module(name)
        for found in pkgutil.walk_packages(package.__path__, f"{name}."):
            import_module(found.name)
    for script in distribution("ottla").entry_points.select(group="console_scripts"):
        SCRIPTS[script.name] = script.load()
    gc.collect()
    gc.freeze()


def next_command(control: socket.socket) -> Callable[[], object]:
    """Serve requests; returns only in the process of a command, with what it has to run."""
    wake, woken = socket.socketpair()
    for end in (wake, woken):
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, ignore)
    replies: dict[int, int] = {}  # pid of a command, and where to write its exit status
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(woken, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if woken in ready:
                woken.recv(4096)
                reap(replies)
            if control not in ready:
                continue
            raw, descriptors, _, _ = socket.recv_fds(control, REQUEST_BYTES_MAX, 4)
            if not raw:
                os._exit(0)
            *streams, reply = descriptors
            if pid := os.fork():
                replies[pid] = reply
                os.write(reply, f"{pid}\n".encode())
                for descriptor in streams:
                    os.close(descriptor)
                continue
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for end in (wake, woken, control):
                end.close()
            for descriptor in (reply, *replies.values()):
                os.close(descriptor)
            return become(json.loads(raw), streams)


def ignore(number: int, frame: FrameType | None) -> None:
    """Do nothing: the signal writes a byte to the wake-up socket, which is enough."""


def reap(replies: dict[int, int]) -> None:
    while replies:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        reply = replies.pop(pid)
        os.write(reply, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os.close(reply)


def become(request: Any, streams: list[int]) -> Callable[[], object]:
    """Turn this process into the requested command; returns its entry point."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    if request["folder"]:
        os.chdir(request["folder"])
    sys.argv = [request["script"], *request["arguments"]]
    sys.stdin = sys.__stdin__ = stream(0, "r", sys.stdin)
    sys.stdout = sys.__stdout__ = stream(1, "w", sys.stdout)
    sys.stderr = sys.__stderr__ = stream(2, "w", sys.stderr, line_buffering=True)
    return SCRIPTS[os.path.basename(request["script"])]


def stream(number: int, mode: str, like: Any, *, line_buffering: bool = False) -> Any:
    """Open a standard stream as Python does at its start."""
    raw: Any = open(number, f"{mode}b", closefd=False)  # noqa: SIM115 - open to the end
    return io.TextIOWrapper(
        raw, like.encoding, like.errors, line_buffering=line_buffering or raw.isatty()
    )


def leave(code: object) -> None:
    """Exit as Python does, but without the deallocation of every module.

    That would copy the memory that is shared with the server, which takes longer than most
    commands. New interpreters still do it, and so does every command in a soak. Returns if the
    exit is not an ordinary one: Python then reports what is wrong.
    """
    if SOAK or threading.active_count() > 1 or not isinstance(code, int | None):
        return
    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    gc.collect()  # reports tasks that were not awaited
    try:
        for output in (sys.stdout, sys.stderr):
            output.flush()
    except (AttributeError, OSError, ValueError):  # closed, or nobody reads
        return
    os._exit((code or 0) & 0xFF)


if __name__ == "__main__":
    inherited = socket.socket(fileno=int(sys.argv[1]))
    preload()
    command = next_command(inherited)
    try:
        sys.exit(command())  # pyright: ignore[reportArgumentType] - as a script does
    except SystemExit as ended:
        leave(ended.code)
        raise

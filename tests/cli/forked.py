"""Runs a console script as a process, without the time of its imports.

The process is forked from one that has imported the commands (`cli.fork_server`), which takes a few
hundredths of a second instead of some tenths. Tests of start-up, signals and unusual streams start
a new interpreter; `test_every_command` does so with each command.
"""

import atexit
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Thread
from typing import IO

SCRIPTS = Path(sys.executable).parent
SERVER = Path(__file__).with_name("fork_server.py")


class _Server:
    """The process that forks, and the socket to it."""

    def __init__(self) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self.control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            self.process = subprocess.Popen(
                [sys.executable, str(SERVER), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={
                    **_interpreter_environment(os.environ),
                    "PATH": os.environ.get("PATH", ""),
                    "OTTLA_FUZZ_SCALE": os.environ.get("OTTLA_FUZZ_SCALE", "1"),
                },
            )
        atexit.register(self.close)

    def close(self) -> None:
        self.control.close()  # the server ends when its socket is closed
        self.process.wait()


@cache
def _server() -> _Server:
    return _Server()


def run_script(
    script: str,
    arguments: Sequence[str],
    *,
    env: Mapping[str, str],
    stdin: bytes,
    timeout_s: float,
    folder: Path | None = None,
    fresh: bool = False,
) -> subprocess.CompletedProcess[bytes]:
    """Run a script to its end, with pipes for stdin, stdout and stderr.

    `fresh` starts a new interpreter, as a shell does. Settings of the interpreter do so as well.
    """
    command = [str(SCRIPTS / script), *arguments]
    if fresh or _interpreter_environment(env) != _interpreter_environment(os.environ):
        return subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            check=False,
            timeout=timeout_s,
            env=env,
            cwd=folder,
        )
    with forked(command, env=env, folder=folder) as process:
        return process.completed(stdin, timeout_s)


@dataclass(frozen=True)
class ForkedScript:
    """A running script, with pipes for stdin, stdout and stderr."""

    command: Sequence[str]
    pid: int
    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]
    status: IO[str]
    """Has a line with the exit code after the end."""

    def completed(self, stdin: bytes, timeout_s: float) -> subprocess.CompletedProcess[bytes]:
        """Write this to stdin, close it, and wait for the end; kill the script if it takes long."""
        read: dict[str, bytes] = {}
        code: list[int] = []
        helpers = [
            Thread(target=_feed, args=(self.stdin, stdin), daemon=True),
            Thread(target=lambda: read.update(out=self.stdout.read()), daemon=True),
            Thread(target=lambda: read.update(err=self.stderr.read()), daemon=True),
            Thread(target=lambda: code.append(int(self.status.readline())), daemon=True),
        ]
        for helper in helpers:
            helper.start()
        for helper in helpers[1:]:
            helper.join(timeout_s)
            if helper.is_alive():
                os.kill(self.pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(self.command, timeout_s)
        helpers[0].join()
        return subprocess.CompletedProcess(self.command, code[0], read["out"], read["err"])


@contextmanager
def forked(
    command: Sequence[str], *, env: Mapping[str, str], folder: Path | None = None
) -> Generator[ForkedScript]:
    """Start a script, given by its path and arguments; the block must wait for its end."""
    to_it, from_it, errors, status = os.pipe(), os.pipe(), os.pipe(), os.pipe()
    _send(command, env, folder, [to_it[0], from_it[1], errors[1], status[1]])
    for descriptor in (to_it[0], from_it[1], errors[1], status[1]):
        os.close(descriptor)
    with (
        open(to_it[1], "wb", buffering=0) as pipe,
        open(from_it[0], "rb") as out,
        open(errors[0], "rb") as err,
        open(status[0], encoding="ascii") as ended,
    ):
        yield ForkedScript(command, int(ended.readline()), pipe, out, err, ended)


class ForkedProcess:
    """A script that runs in the background, with the methods of `subprocess.Popen`."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        stdin: int,
        stdout: int,
        stderr: int,
        folder: Path | None = None,
    ) -> None:
        """Start it with these descriptors, which the caller closes."""
        self.args = command
        self.returncode: int | None = None
        self._status, theirs = os.pipe()
        self._unread = b""
        try:
            _send(command, env, folder, [stdin, stdout, stderr, theirs])
        finally:
            os.close(theirs)
        pid = self._number(None)
        assert pid is not None
        self.pid = pid

    def _number(self, timeout_s: float | None) -> int | None:
        """Return what the server reports next; None if it does not in time."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        ready = select.poll()
        ready.register(self._status, select.POLLIN)
        while b"\n" not in self._unread:
            left_s = None if deadline_s is None else max(deadline_s - time.monotonic(), 0)
            if not ready.poll(None if left_s is None else left_s * 1000):
                return None
            read = os.read(self._status, 64)
            assert read, "the server has ended"
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        return int(line)

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code when it has ended."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _ended(self, timeout_s: float | None) -> int | None:
        if self.returncode is None:
            self.returncode = self._number(timeout_s)
            if self.returncode is not None:
                os.close(self._status)
        return self.returncode

    def send_signal(self, sig: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, sig)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


def forked_broker(command: Sequence[str], log: Path, env: Mapping[str, str]) -> ForkedProcess:
    """Start a broker that writes its output to a file: `judges.ottla_broker.new_process`."""
    env = {**env, **_interpreter_environment(os.environ)}
    with log.open("ab") as output, open(os.devnull, "rb") as nothing:
        return ForkedProcess(
            command,
            env=env,
            stdin=nothing.fileno(),
            stdout=output.fileno(),
            stderr=output.fileno(),
        )


def _send(
    command: Sequence[str], env: Mapping[str, str], folder: Path | None, descriptors: list[int]
) -> None:
    """Request a process with these three streams, and a pipe for its id and its exit code."""
    assert _interpreter_environment(env) == _interpreter_environment(os.environ)
    request = {
        "script": command[0],
        "arguments": command[1:],
        "env": dict(env),
        "folder": str(folder) if folder else "",
    }
    socket.send_fds(_server().control, [json.dumps(request).encode()], descriptors)


def as_text(done: subprocess.CompletedProcess[bytes]) -> subprocess.CompletedProcess[str]:
    """Return the result with its output as text with Unix line ends."""
    out, err = (io.TextIOWrapper(io.BytesIO(raw)).read() for raw in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


def _feed(pipe: IO[bytes], stdin: bytes) -> None:
    with suppress(BrokenPipeError), pipe:
        rest = memoryview(stdin)
        while rest:
            rest = rest[pipe.write(rest) :]


def _interpreter_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that Python and libraries read only at their start."""
    return {
        name: value
        for name, value in env.items()
        if name.startswith(("PYTHON", "LC_"))
        or name in ("LANG", "LANGUAGE", "FORCE_COLOR", "PY_COLORS", "TERMINAL_WIDTH", "UVLOOP")
        or name in ("GITHUB_ACTIONS", "CI")
    }

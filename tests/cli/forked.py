"""Runs a console script as a process, without the time of its imports.

The process is forked from one that has imported the commands (`cli.fork_server`), which takes a few
hundredths of a second instead of some tenths. Tests of start-up, signals and unusual streams start
a new interpreter; `test_every_command` does so with each command.
"""

import atexit
import io
import json
import os
import signal
import socket
import subprocess
import sys
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
    assert _interpreter_environment(env) == _interpreter_environment(os.environ)
    request = {
        "script": command[0],
        "arguments": command[1:],
        "env": dict(env),
        "folder": str(folder) if folder else "",
    }
    to_it, from_it, errors, status = os.pipe(), os.pipe(), os.pipe(), os.pipe()
    socket.send_fds(
        _server().control,
        [json.dumps(request).encode()],
        [to_it[0], from_it[1], errors[1], status[1]],
    )
    for descriptor in (to_it[0], from_it[1], errors[1], status[1]):
        os.close(descriptor)
    with (
        open(to_it[1], "wb", buffering=0) as pipe,
        open(from_it[0], "rb") as out,
        open(errors[0], "rb") as err,
        open(status[0], encoding="ascii") as ended,
    ):
        yield ForkedScript(command, int(ended.readline()), pipe, out, err, ended)


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

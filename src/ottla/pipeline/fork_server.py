"""A process from which Spark's Python processes are forked, with their imports done before.

On the driver, Spark starts a Python process for each streaming query and for each kind of call to a
data source. Each imports PySpark, pyarrow and Ottla, by default from a zip archive without compiled
modules: about a second of processor time. A fork takes milliseconds.

    with ForkServer() as server:
        ...  # Spark runs `server.executable` as its Python

Spark runs `fork_launcher.py`, which passes its arguments to the server. The server ends when the
process that created it has ended.

Invariant: the server has one thread, or it ends: a process with threads cannot be forked. Without
a server, Spark's processes start as usual.
"""

import gc
import importlib
import marshal
import os
import runpy
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from ottla.pipeline.fork_launcher import ACCEPTED, EXIT_CODE_BYTES, LENGTH_BYTES

if TYPE_CHECKING:
    from pyspark import SparkContext

PRELOADED: Final = (
    "pyarrow.compute",
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "ottla.client.sync.producer",
    "ottla.pipeline.filters",
    "ottla.pipeline.offset_lookup",
    "ottla.pipeline.range_reader",
    "ottla.pipeline.sink",
    "ottla.pipeline.source",
)
"""What the processes of Spark import for a data source, and its tasks."""

_SETTINGS: Final = {
    # NumPy and pyarrow start threads at their import otherwise. A task of Spark has one core.
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "YES",  # as Spark sets it
}

REQUEST_S: Final = 10.0
"""A launcher sends its request at once."""

END_S: Final = 5.0
STREAMS: Final = 3


class ForkServer:
    """A server, from the creation to `close()` or to the end of this process."""

    def __init__(self) -> None:
        self._directory = tempfile.mkdtemp(prefix="ottla-python-")
        path = f"{self._directory}/server"
        launcher = Path(__file__).with_name("fork_launcher.py")
        command = shlex.join([sys.executable, "-IS", str(launcher), path])
        self.executable: Final = f"{self._directory}/python"
        """The program that Spark runs as its Python."""
        script = Path(self.executable)
        script.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        script.chmod(0o700)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)  # here, so that launchers can connect before the imports are done
            listener.listen(socket.SOMAXCONN)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ottla.pipeline.fork_server", str(listener.fileno())],
                stdin=subprocess.PIPE,
                pass_fds=(listener.fileno(),),
                # A hash seed is fixed when Python starts; Spark's processes must have the same.
                env={"PYTHONHASHSEED": "0", **os.environ, **_SETTINGS},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process that forks."""
        return self._process.pid

    def close(self) -> None:
        """End the server; processes that it has forked continue."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)


_server: ForkServer | None = None


def forked_python(context: "SparkContext") -> str | None:
    """Return the program to run as Python for a local Spark; None if it has to be Python itself.

    All sessions of a process share a server, which starts with the first call.
    """
    import pyspark

    master = context.master or ""
    is_local = master.startswith("local") and not master.startswith("local-cluster")
    if not is_local or context.version != pyspark.__version__:
        return None
    return shared_server_executable(context.pythonExec)


def shared_server_executable(python: str) -> str | None:
    """Return the program of the shared server; None if another Python than this one is wanted."""
    global _server  # noqa: PLW0603 - one per process
    if _server is not None and python == _server.executable:
        return python
    if not hasattr(os, "pidfd_open") or not _is_this_python(python):
        return None
    if _server is None:
        import atexit

        _server = ForkServer()
        atexit.register(_server.close)
    return _server.executable


def _is_this_python(python: str) -> bool:
    found = shutil.which(python)
    if found is None:
        return False
    # The programs of an environment are links to those of another, so compare directories as well.
    directories = {Path(one).parent.resolve() for one in (found, sys.executable)}
    return len(directories) == 1 and os.path.samefile(found, sys.executable)


# The server.


@dataclass(frozen=True, slots=True)
class _Request:
    """What a launcher wants to become."""

    directory: str
    arguments: list[str]
    environment: dict[str, str]
    files: list[int]
    """The standard streams."""


@dataclass(frozen=True, slots=True)
class _Forked:
    """A process that was forked, and the launcher that waits for it."""

    pid: int
    pid_file: int
    launcher: socket.socket


def main(listener: socket.socket) -> None:
    """Import what the processes need, and fork one for each request until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in all processes of Spark
    for name in PRELOADED:
        importlib.import_module(name)
    if len(os.listdir("/proc/self/task")) > 1:
        sys.exit("fork server ended: an imported module has started a thread")
    own = {os.getcwd(), *map(os.path.abspath, _python_path())}
    installed = [one for one in sys.path if one not in own]
    gc.collect()
    gc.freeze()
    request = _Server(listener).serve()
    if request is not None:
        _become(request, installed)


class _Server:
    """Forks processes, and waits for them and for their launchers."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()

    def serve(self) -> _Request | None:
        """Return a request in each forked process, and None in the server when it ends."""
        selector = self._selector
        selector.register(0, selectors.EVENT_READ)
        selector.register(self._listener, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd == 0:
                    return None
                if key.fileobj is self._listener:
                    request = self._accept()
                    if request is not None:
                        return request
                elif selector.get_map().get(key.fd) is not key:
                    continue  # it was closed in this round
                elif key.fileobj is key.data.launcher:
                    self._launcher_ended(key.data)
                else:
                    self._process_ended(key.data)

    def _accept(self) -> _Request | None:
        """Fork for a request; return it in the new process."""
        launcher, _ = self._listener.accept()
        try:
            request = _received(launcher)
        except OSError:  # the launcher has ended
            launcher.close()
            return None
        try:
            pid = os.fork()
        except OSError:  # no memory: the launcher tries to become Python
            launcher.close()
            _close(request.files)
            return None
        if pid == 0:
            launcher.close()
            self._close_all()
            return request
        _close(request.files)
        forked = _Forked(pid, os.pidfd_open(pid), launcher)
        with suppress(OSError):
            launcher.sendall(ACCEPTED)
        self._selector.register(launcher, selectors.EVENT_READ, forked)
        self._selector.register(forked.pid_file, selectors.EVENT_READ, forked)
        return None

    def _close_all(self) -> None:
        for key in [*self._selector.get_map().values()]:
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
            elif key.fd:
                os.close(key.fd)
        self._selector.close()

    def _launcher_ended(self, forked: _Forked) -> None:
        with suppress(ProcessLookupError):
            os.kill(forked.pid, signal.SIGTERM)
        self._selector.unregister(forked.launcher)
        forked.launcher.close()

    def _process_ended(self, forked: _Forked) -> None:
        self._selector.unregister(forked.pid_file)
        os.close(forked.pid_file)
        _, status = os.waitpid(forked.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if forked.launcher.fileno() < 0:
            return  # it has ended
        self._selector.unregister(forked.launcher)
        with suppress(OSError):
            reported = code if code >= 0 else 128 - code  # as a shell reports a signal
            forked.launcher.sendall(reported.to_bytes(EXIT_CODE_BYTES, "big"))
        forked.launcher.close()


def _received(launcher: socket.socket) -> _Request:
    launcher.settimeout(REQUEST_S)
    head, files, _, _ = socket.recv_fds(launcher, LENGTH_BYTES, STREAMS)
    size = int.from_bytes(head, "big")
    with launcher.makefile("rb") as stream:
        content = stream.read(size)
    if len(files) < STREAMS or not size or len(content) < size:
        _close(files)
        raise ConnectionError("the launcher has ended")
    directory, arguments, environment = marshal.loads(content)
    return _Request(directory, arguments, environment, files)


def _close(files: list[int]) -> None:
    for file in files:
        os.close(file)


def _become(request: _Request, installed: list[str]) -> None:
    """Run a module as `python -m` does, in the place of the launcher."""
    for number, file in enumerate(request.files):
        os.dup2(file, number)
    _close(request.files)
    os.chdir(request.directory)
    os.environ.clear()
    os.environ.update(request.environment)
    given = [one for one in _python_path() if not _is_archive_of_spark(one)]
    sys.path[:] = [request.directory, *given, *installed]
    sys.argv[:] = request.arguments
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the module is imported already
        runpy.run_module(request.arguments[0], run_name="__main__", alter_sys=True)


def _python_path() -> list[str]:
    return [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]


def _is_archive_of_spark(path: str) -> bool:
    """Return whether a path is a zip archive of PySpark or py4j, which are imported already."""
    name = os.path.basename(path)
    return name == "pyspark.zip" or (name.startswith("py4j-") and name.endswith(".zip"))


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))

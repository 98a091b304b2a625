"""Starts Spark on this machine in a thread, so that a program can do other work meanwhile.

    with LocalSpark("example", Path("spark.log")) as spark:
        ...  # other work
        rows = spark.session().range(3).count()

A start takes about half of the processor time that `SparkSession.builder` needs: Java compiles
less, Spark's Python processes are forked after their imports (`fork_server.py`) or import compiled
modules (`spark_home.py`), and Java uses an archive of Spark's classes (`class_archive.py`) if an
earlier program has saved one.

Invariant: settings are never on a command line, where every user of the machine sees them, except
for the options of Java. The output of Spark goes to the log file until Java has ended. Java ends
with the `with` block, even if it is still starting. Signal handlers do not change, because Spark
sets its own only in the main thread.
"""

import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from ottla.errors import OttlaError
from ottla.pipeline.class_archive import ClassArchive, Recording
from ottla.pipeline.fork_server import forked_python, shared_server_executable
from ottla.pipeline.java import found_java
from ottla.pipeline.spark_home import fast_spark_home

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

LOOPBACK: Final = "127.0.0.1"
SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_MASTER: Final = re.compile(r"spark://(\[[^\]]+\]|[^:,]+)(?::\d+)?(?:,|$)")
_ANY_PORT: Final = 7077
"""A UDP socket sends nothing when it connects, so that the port does not matter."""

JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Without the second compiler and parallel collection a start takes half of the time."""

POLL_S: Final = 0.1
END_S: Final = 30.0
"""Java is killed if it takes longer to end."""

SAVE_S: Final = 180.0
"""The same, if it writes an archive of classes first. That takes about 10 s of processor time."""

COPY_S: Final = 5.0
"""After the end of Java, its last output is copied for at most so long."""

LINE_BYTES_MAX: Final = 1024 * 1024
"""A longer line of output is hidden in parts."""

_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_SPACE, _BACKSLASH, _DELETE = map(ord, " \\\x7f")

KILL_S: Final = 10.0
"""The thread that starts Spark has so long to fail after Java was killed."""


class SparkFailed(OttlaError):
    """Spark did not start; the text has the reason, or names the log file."""


class LocalSpark:
    """A Spark that starts with the `with` block; `session()` waits for it.

    `settings` are Spark's. `directory` keeps what later starts use; see `class_archive.py`. With
    `records_classes` false, this start uses an archive but never saves one. `hide` removes secrets
    from a line of the log.
    """

    def __init__(
        self,
        name: str,
        log: Path,
        *,
        master: str = "local[*]",
        settings: Mapping[str, str] | None = None,
        directory: Path | None = None,
        records_classes: bool = True,
        hide: Callable[[str], str] | None = None,
    ) -> None:
        self._log = log
        self._master = master
        # spark-submit has started Java, and knows on which address other machines reach it.
        self._is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
        defaults = {} if self._is_submitted else {**SETTINGS, **driver_address(master)}
        self._settings = {**defaults, **(settings or {}), "spark.app.name": name}
        self._directory = directory
        self._records_classes = records_classes
        self._hide = hide
        self._recording: Recording | None = None
        self._saves_classes = False
        self._gateway: Any = None
        self._context: SparkContext | None = None
        self._reason = ""
        self._stopping = False
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spark", daemon=True)
        self._resources = ExitStack()

    def __enter__(self) -> "LocalSpark":
        with ExitStack() as resources:
            self._prepare(resources)
            resources.enter_context(redirect_output(self._log, self._hide))
            # In this thread: two threads must not import a package with circular imports at once.
            import pyspark  # noqa: F401  # pyright: ignore[reportUnusedImport]

            self._thread.start()
            self._resources = resources.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *more: object) -> None:
        self._stopping = True
        with self._resources:
            if kind is KeyboardInterrupt:
                self._end_at_once()
                return
            try:
                while self._thread.is_alive():  # its start fails without Java
                    self._interrupt_java()
                    self._thread.join(POLL_S)
                if self._context is not None:
                    _stop(self._context)
            except KeyboardInterrupt:
                self._end_at_once()
                raise
            self._end_java()

    def wait(self, seconds: float) -> bool:
        """Wait for at most so long; return whether Spark has started, or has failed to start."""
        return self._started.wait(seconds)

    def session(self) -> "SparkSession":
        """Wait until Spark has started, and return a session; raise SparkFailed if it failed.

        Call it in the thread that uses the session, because each thread has its own active one.
        """
        self._started.wait()
        if self._context is None:
            raise SparkFailed(f"Spark did not start: {self._reason} See {self._log}.")
        from pyspark.sql import SparkSession

        builder: Any = SparkSession.builder
        return builder.getOrCreate()

    def save_classes(self) -> bool:
        """Let Java save the loaded classes when it ends, and return whether it will.

        It will not if there is an archive already, also if another process has saved it meanwhile.
        Call it after the session has done typical work.
        """
        self._saves_classes = self._recording is not None and not self._recording.is_saved
        return self._saves_classes

    def _prepare(self, resources: ExitStack) -> None:
        """Set the environment and the settings with which Spark starts fast."""
        chosen = self._settings.get("spark.pyspark.python", sys.executable)
        os.environ.setdefault("PYSPARK_PYTHON", chosen)
        if self._is_submitted:
            return
        options = [JAVA_OPTIONS, self._settings.get("spark.driver.extraJavaOptions", "")]
        if is_on_this_machine(self._master):
            shared_server_executable(os.environ["PYSPARK_PYTHON"])  # imports while Java starts
        # Standalone executors use the Spark home of their worker.
        if is_on_this_machine(self._master) or self._master.startswith("spark://"):
            archive = ClassArchive(found_java(), self._directory)
            with suppress(OSError):  # a directory that cannot be written: Spark starts without it
                home = str(fast_spark_home(archive.spark_home))
                if os.environ.setdefault("SPARK_HOME", home) == home:
                    options.append(self._archive_options(archive, resources))
        local = tempfile.TemporaryDirectory(prefix="spark-", ignore_cleanup_errors=True)
        self._settings.setdefault("spark.local.dir", resources.enter_context(local))
        self._settings["spark.master"] = self._master
        self._settings["spark.driver.extraJavaOptions"] = " ".join(filter(None, options))

    def _archive_options(self, archive: ClassArchive, resources: ExitStack) -> str:
        if archive.exists:
            return archive.java_options
        if not self._records_classes:
            return ""
        self._recording = resources.enter_context(archive.recording())
        return self._recording.java_options

    def _run(self) -> None:
        try:
            self._context = self._start()
        except Exception as error:  # the edge of this thread: session() raises it
            self._reason = error_summary(error)
        finally:
            self._started.set()

    def _start(self) -> "SparkContext | None":
        import pyspark.java_gateway
        from pyspark import SparkConf, SparkContext

        conf = SparkConf().setAll([*self._settings.items()])
        if self._stopping:
            return None
        java: Any = pyspark.java_gateway
        with submit_arguments(self._settings):
            self._gateway = java.launch_gateway()
        if self._stopping:
            return None
        context = SparkContext(conf=conf, gateway=self._gateway)
        context.pythonExec = forked_python(context) or context.pythonExec
        return context

    def _interrupt_java(self) -> None:
        """Let Java end, without an archive of classes unless it was asked for."""
        process = self._process()
        if process is None:
            return
        if self._recording is not None and not self._saves_classes:
            process.kill()
        elif process.stdin is not None:
            process.stdin.close()  # Java ends when its input does

    def _end_java(self) -> None:
        process = self._process()
        if process is None:
            return
        self._interrupt_java()
        try:
            process.wait(SAVE_S if self._saves_classes else END_S)
        except subprocess.TimeoutExpired:
            self._kill_java()
        except KeyboardInterrupt:
            self._kill_java()
            if not self._saves_classes:
                raise
        if self._recording is not None and process.returncode == 0:
            self._recording.save()

    def _end_at_once(self) -> None:
        """Kill Java and wait for the thread, whose errors belong in the log file too."""
        self._kill_java()
        until_s = time.monotonic() + KILL_S
        while self._thread.is_alive() and time.monotonic() < until_s:
            self._thread.join(POLL_S)
            self._kill_java()  # the thread may have started it only now

    def _kill_java(self) -> None:
        process = self._process()
        if process is not None:
            process.kill()
            process.wait()

    def _process(self) -> "subprocess.Popen[bytes] | None":
        return None if self._gateway is None else self._gateway.proc


def is_on_this_machine(master: str) -> bool:
    """Whether a master runs the tasks on this machine."""
    return master.startswith("local")


def driver_address(
    master: str,
    environment: Mapping[str, str] = os.environ,
    local_address: Callable[[str], str | None] | None = None,
) -> dict[str, str]:
    """Return the settings with the address on which executors reach this process.

    It is loopback if the master is on this machine, otherwise the address from which the master is
    reached. Without a route Spark chooses, as it does with SPARK_LOCAL_IP.
    """
    address: str | None = LOOPBACK
    if not is_on_this_machine(master):
        if environment.get("SPARK_LOCAL_IP"):
            return {}
        found = _MASTER.match(master)
        address = found and (local_address or _local_address)(found[1].strip("[]"))
    if address is None:
        return {}
    shown = f"[{address}]" if ":" in address else address
    return {"spark.driver.bindAddress": shown, "spark.driver.host": shown}


def _local_address(host: str) -> str | None:
    """Return the address of this machine from which a host is reached."""
    with suppress(OSError):
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, _ANY_PORT, type=socket.SOCK_DGRAM
        ):
            with suppress(OSError), socket.socket(family, kind, protocol) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
    return None


def _stop(context: "SparkContext") -> None:
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):  # Java may have ended before
        context.stop()


def error_summary(error: Exception) -> str:
    """The first line of an error of Spark, with that of its cause in Java."""
    from py4j.protocol import Py4JError

    text = ""
    with suppress(Py4JError, OSError):  # the text is in Java, which may have ended
        text = str(error).strip()
    summary, _, cause = text.partition("\n:")
    return f"{summary}{cause.partition(chr(10))[0]}".partition("\n")[0] or type(error).__name__


@contextmanager
def submit_arguments(settings: Mapping[str, str]) -> Generator[None]:
    """Let PySpark start Java with settings, which only this user can read.

    PySpark itself passes them as arguments of the process.
    """
    before = os.environ.get(_ARGUMENTS)
    with tempfile.TemporaryDirectory(prefix="spark-settings-") as directory:
        file = Path(directory) / "spark.conf"
        file.write_text("".join(f"{name}={_escaped(one)}\n" for name, one in settings.items()))
        options = ["--properties-file", str(file), "--load-spark-defaults"]
        os.environ[_ARGUMENTS] = f"{shlex.join(options)} {before or 'pyspark-shell'}"
        try:
            yield
        finally:
            if before is None:
                del os.environ[_ARGUMENTS]
            else:
                os.environ[_ARGUMENTS] = before


def _escaped(value: str) -> str:
    """Return a value as a properties file of Java has it."""
    units = value.encode("utf-16-be", "surrogatepass")
    numbers = (int.from_bytes(units[at : at + 2]) for at in range(0, len(units), 2))
    return "".join(
        chr(one) if _SPACE < one < _DELETE and one != _BACKSLASH else f"\\u{one:04x}"
        for one in numbers
    )


@contextmanager
def redirect_output(log: Path, hide: Callable[[str], str] | None = None) -> Generator[None]:
    """Append the output of this process, and of those that it starts meanwhile, to a file.

    `hide` removes secrets from each line.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    saved = [os.dup(1), os.dup(2)]
    with ExitStack() as resources:
        file = resources.enter_context(log.open("ab"))
        target = file.fileno()
        thread: threading.Thread | None = None
        if hide is not None:
            read, target = os.pipe()
            lines = resources.enter_context(os.fdopen(read, "rb"))
            thread = threading.Thread(
                target=_copy, args=(lines, file, hide), name="spark log", daemon=True
            )
            thread.start()
        for number in (1, 2):
            os.dup2(target, number)
        if thread is not None:
            os.close(target)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, before in enumerate(saved, start=1):
                os.dup2(before, number)
                os.close(before)
            if thread is not None:
                thread.join(COPY_S)
                if thread.is_alive():  # a process that Spark has started still has the pipe
                    resources.pop_all()


def _copy(lines: BinaryIO, file: BinaryIO, hide: Callable[[str], str]) -> None:
    """Copy lines to a log until all processes have closed their output."""
    while line := lines.readline(LINE_BYTES_MAX):
        text = hide(line.decode(errors="surrogateescape"))
        file.write(text.encode(errors="surrogateescape"))
        file.flush()

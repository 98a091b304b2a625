"""Spark on this machine, which starts in a thread while everything else is imported and started.

Invariant: what Spark says is in a file, until its Java has ended: the driver's side of it complains
on stderr when the other side is gone first. Java ends with the `with`, however far it has come. The
handlers of signals stay as they are: Spark sets its own in the main thread alone.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.pipeline.spark_home import fast_spark_home
from sensors.failure import Failed

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Up in half the time, on machines with few cores; what is compiled here is little."""

STEP_S: Final = 0.1
END_S: Final = 30.0
"""So long Java may take to end, before it is ended."""


class SparkFailed(Failed):
    """There is no Spark; the text says why, or where it may be said."""


class LocalSpark:
    """Begins to start with the `with`; `session()` is it."""

    def __init__(
        self, master: str, log: Path, home: Path, more_options: str = "", end_s: float = END_S
    ) -> None:
        self._master = master
        self._log = log
        self._home = home
        self._settings = {
            **SETTINGS,
            "spark.master": master,
            "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} {more_options}".strip(),
        }
        self._end_s = end_s
        self._gateway: Any = None
        self._context: SparkContext | None = None
        self._reason = ""
        self._unwanted = False
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spark", daemon=True)
        self._ending = ExitStack()

    def __enter__(self) -> "LocalSpark":
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if self._master.startswith("local"):
            os.environ.setdefault("SPARK_HOME", str(fast_spark_home(self._home)))
        self._ending.enter_context(redirected(self._log))
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *more: object) -> None:
        self._unwanted = True
        with self._ending:
            if kind is KeyboardInterrupt:  # at once
                self._kill()
                return
            try:
                while self._thread.is_alive():  # it is not up yet, and need not be
                    self._close()
                    self._thread.join(STEP_S)
                if self._context is not None:
                    _stop(self._context)
                self._end_java()
            except KeyboardInterrupt:  # it took too long for somebody
                self._kill()
                raise

    def wait(self, seconds: float) -> bool:
        """Whether it has started, or failed to, after so long at most."""
        return self._begun.wait(seconds)

    def session(self) -> "SparkSession":
        """Spark, once it has started; SparkFailed when it could not.

        It is made in the thread that is going to use it: Spark has an active one for each.
        """
        self._begun.wait()
        if self._context is None:
            raise SparkFailed(f"Spark does not start: {self._reason} {self._log} may say why.")
        from sensors import session

        return session.session(**self._settings)

    def _run(self) -> None:
        try:
            self._context = self._started()
        except Exception as error:  # the edge of this thread: session() tells it
            self._reason = first_line(error)
        finally:
            self._begun.set()

    def _started(self) -> "SparkContext | None":
        import pyspark.java_gateway
        from pyspark import SparkConf, SparkContext

        from sensors import session

        settings = {**session.SETTINGS, **self._settings}
        conf = SparkConf().setAppName(session.NAME).setAll([*settings.items()])
        if self._unwanted:
            return None
        java: Any = pyspark.java_gateway
        self._gateway = java.launch_gateway(conf)
        if self._unwanted:
            return None
        return SparkContext(conf=conf, gateway=self._gateway)

    def _close(self) -> None:
        """Let Java end: it does when nobody can write to it any more."""
        process = self._process()
        if process is not None and process.stdin is not None:
            process.stdin.close()

    def _end_java(self) -> None:
        process = self._process()
        if process is None:
            return
        self._close()
        try:
            process.wait(self._end_s)
        except subprocess.TimeoutExpired:
            self._kill()

    def _kill(self) -> None:
        process = self._process()
        if process is not None:
            process.kill()
            process.wait()

    def _process(self) -> "subprocess.Popen[bytes] | None":
        return None if self._gateway is None else self._gateway.proc


def _stop(context: "SparkContext") -> None:
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):  # Java may have ended before
        context.stop()


def first_line(error: Exception) -> str:
    """What an error of Spark says first; Java is asked for it, and may have ended."""
    from py4j.protocol import Py4JError

    text = ""
    with suppress(Py4JError, OSError):
        text = str(error).strip()
    said, _, rest = text.partition("\n:")
    return f"{said}{rest.partition(chr(10))[0]}".partition("\n")[0] or type(error).__name__


@contextmanager
def redirected(log: Path) -> Generator[None]:
    """Let this process and those that it starts meanwhile write to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    with log.open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, before in enumerate(kept, start=1):
            os.dup2(before, number)
            os.close(before)

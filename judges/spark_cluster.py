"""A Spark cluster on this machine: a master and workers, from the jars in the PySpark package.

Invariant: inside the `with` the master knows every worker. At its end all processes have ended,
also those that the workers started for jobs. The cluster listens only on loopback, on free ports,
and writes only to its folder. A failure shows the end of each log.

    with SparkCluster(folder, workers=2) as cluster:
        ran = cluster.submit(script, "its", "arguments")
        assert len(ran.workers("a job")) == 2

A script names its jobs with `spark.sparkContext.setJobDescription`; the jobs of a stream have the
name of the query.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from judges.java import NoJudge

TIMEOUT_S: Final = 900.0  # for a start and for a script, on a busy machine

T = TypeVar("T")

_HOST = "127.0.0.1"
SMALL_JVM: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Options for a Java that starts fast and takes little memory."""

_POLL_S = 0.05
_LOG_CHARACTERS_SHOWN = 4000


class SparkFailed(Exception):
    """The cluster did not start, or a script failed on it; the text has the end of each log."""


class ScriptRun:
    """A script that has run: the events that Spark logged of its jobs."""

    def __init__(self, events: Path) -> None:
        self._events = events

    def workers(self, job: str | None = None) -> set[str]:
        """The addresses of the workers on which tasks of a job (or of any job) succeeded."""
        stages: set[int] = set()
        workers: dict[str, str] = {}
        found: set[str] = set()
        for event in self._read():
            match event["Event"]:
                case "SparkListenerExecutorAdded":
                    # The address of an executor's log is that of its worker.
                    shown = event["Executor Info"]["Log Urls"]["stdout"]
                    workers[event["Executor ID"]] = str(shown).split("/logPage")[0]
                case "SparkListenerJobStart" if job in (None, _name(event["Properties"])):
                    stages.update(event["Stage IDs"])
                case "SparkListenerTaskEnd" if event["Stage ID"] in stages:
                    if event["Task End Reason"]["Reason"] == "Success":
                        found.add(workers[event["Task Info"]["Executor ID"]])
                case _:
                    pass
        return found

    def _read(self) -> Iterator[Any]:  # Any: JSON
        (path,) = self._events.iterdir()
        with path.open() as lines:
            yield from map(json.loads, lines)


def _name(properties: Mapping[str, str]) -> str:
    # Spark appends the number of the micro-batch, and more, to the name of a stream.
    return re.split(r"<br/>|\n", properties.get("spark.job.description", ""))[0]


def submit_arguments(settings: Mapping[str, object]) -> str:
    """Return PYSPARK_SUBMIT_ARGS, with which PySpark starts Java with settings."""
    words = (word for name, one in settings.items() for word in ("--conf", f"{name}={one}"))
    return shlex.join([*words, "pyspark-shell"])


class SparkCluster:
    """Starts at its `with`; each worker has one core, and memory for one executor.

    `home` is SPARK_HOME, that of the PySpark package by default. All Java processes get
    `java_options`. `python_path` is the PYTHONPATH of the executors, by default that of this
    process.
    """

    def __init__(
        self,
        folder: Path,
        *,
        workers: int = 2,
        executor_mb: int = 512,
        home: Path | None = None,
        java_options: str = SMALL_JVM,
        python_path: str | None = None,
    ) -> None:
        found = find_spec("pyspark")
        if found is None or found.origin is None or shutil.which("java") is None:
            raise NoJudge("needs PySpark and java: install both to run a Spark cluster")
        self.url = ""
        self.folder = folder.resolve()
        self.workers = workers
        self.executor_mb = executor_mb
        self._home = home or Path(found.origin).parent
        self._java_options = java_options
        self._python_path = python_path
        self._submitted = 0
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self._start("master.Master", "master")
            self.url = self._logged("master", r"master at (spark://\S+)")
            names = [f"worker-{number}" for number in range(self.workers)]
            for name in names:
                size = ("--cores", "1", "--memory", f"{self.executor_mb}M")
                where = ("--work-dir", str(self.folder / name))
                self._start("worker.Worker", name, *size, *where, self.url)
            for name in names:
                self._logged(name, r"(Successfully registered) with master")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            error.add_note(self.log_ends())
        self.close()

    def submit(
        self, script: Path, *arguments: str, settings: Mapping[str, object] | None = None
    ) -> ScriptRun:
        """Run a script on all workers with spark-submit."""
        events = self._new_events()
        local = {"spark.driver.bindAddress": _HOST, "spark.driver.host": _HOST}
        given = {**self._settings(events), **local, **(settings or {})}
        command = [
            *(str(self._home / "bin" / "spark-submit"), "--master", self.url),
            *(word for name, value in given.items() for word in ("--conf", f"{name}={value}")),
            *(str(script), *arguments),
        ]
        with self._log("submit").open("ab") as log:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self._environment(),
                timeout=TIMEOUT_S,
                check=False,
            )
        if done.returncode:
            raise SparkFailed(f"{script.name} exited with {done.returncode}.\n{self.log_ends()}")
        return ScriptRun(events)

    def driver(
        self, settings: Mapping[str, object] | None = None, *, by_file: bool = True
    ) -> tuple[dict[str, str], ScriptRun]:
        """Return the environment of a program that is a driver itself, and what it has run.

        The settings are in Spark's file of defaults. Java starts with an archive of classes only
        without that file; then they are arguments, and the program chooses the options of its Java.
        """
        events = self._new_events()
        given = {**self._settings(events), **(settings or {})}
        environment = self._environment()
        del environment["SPARK_LOCAL_IP"]
        if by_file:
            configuration = self.folder / f"configuration-{self._submitted}"
            configuration.mkdir()
            lines = (f"{name} {value}\n" for name, value in given.items())
            (configuration / "spark-defaults.conf").write_text("".join(lines))
            environment["SPARK_CONF_DIR"] = str(configuration)
        else:
            del given["spark.driver.extraJavaOptions"]
            environment["PYSPARK_SUBMIT_ARGS"] = submit_arguments(given)
        return environment, ScriptRun(events)

    def _new_events(self) -> Path:
        self._submitted += 1
        events = self.folder / f"events-{self._submitted}"
        events.mkdir()
        return events

    def _settings(self, events: Path) -> dict[str, object]:
        """Return the settings of a driver that uses all workers."""
        return {
            "spark.cores.max": self.workers,
            "spark.executor.memory": f"{self.executor_mb}m",
            "spark.executor.extraJavaOptions": self._java_options,
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": self._java_options,
            # Wait for all executors: the first job would otherwise run on one worker only.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{TIMEOUT_S:.0f}s",
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": self.workers,
            "spark.sql.warehouse.dir": self.folder / "warehouse",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }

    def close(self) -> None:
        """Kill all processes."""
        for one in self._running.values():
            # A worker's executors are in its process group; their Python processes end with them.
            with suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
            one.wait()
        self._running.clear()
        self._wait(lambda: not self.processes() or None, "a process still runs")

    def processes(self) -> list[int]:
        """All processes whose working directory is in the folder."""
        found: list[int] = []
        for one in filter(str.isdigit, os.listdir("/proc")):
            try:
                where = Path(os.readlink(f"/proc/{one}/cwd"))
            except OSError:  # it has ended, or belongs to another user
                continue
            if where.is_relative_to(self.folder):
                found.append(int(one))
        return found

    def log_ends(self) -> str:
        """The end of each log."""
        return "\n".join(
            f"{log.name} ends with:\n{log.read_text(errors='replace')[-_LOG_CHARACTERS_SHOWN:]}"
            for log in sorted(self.folder.glob("*.log"))
        )

    def _start(self, kind: str, name: str, *arguments: str) -> None:
        where = ("--host", _HOST, "--port", "0", "--webui-port", "0")
        command = (str(self._home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}")
        with self._log(name).open("wb") as log:
            self._running[name] = subprocess.Popen(
                (*command, *where, *arguments),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self._environment(),
                process_group=0,
            )

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _logged(self, name: str, pattern: str) -> str:
        """Wait until a process has logged a match of a pattern; its first group."""

        def found() -> str | None:
            ended = self._running[name].poll() is not None
            match = re.search(pattern, self._log(name).read_text(errors="replace"))
            if ended and not match:
                raise SparkFailed(f"{name} ended.\n{self.log_ends()}")
            return match and match[1]

        return self._wait(found, f"{name} did not start")

    def _wait(self, wanted: Callable[[], T | None], otherwise: str) -> T:
        deadline_s = time.monotonic() + TIMEOUT_S
        while (found := wanted()) is None:
            if time.monotonic() > deadline_s:
                raise SparkFailed(f"{otherwise}.\n{self.log_ends()}")
            time.sleep(_POLL_S)
        return found

    def _environment(self) -> dict[str, str]:
        # Drop Spark's variables: the user's, or those of a session in this process.
        own = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
        if self._python_path is not None:
            own["PYTHONPATH"] = self._python_path
        return own | {
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": self._java_options,
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
            "PYSPARK_PYTHON": sys.executable,
        }

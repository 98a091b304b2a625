"""Spark on a cluster: a master and workers, processes of what PySpark brings along.

Invariant: in the `with` every worker is known to the master. At its end all of the processes have
ended, and those that the workers started for jobs too. They listen on loopback alone, on ports that
were free, and write nothing outside of the folder; a failure shows the end of what they logged.

    with SparkCluster(folder, workers=2) as cluster:
        ran = cluster.submit(script, "its", "arguments")
        assert len(ran.workers("a job")) == 2

A job has the name that its script gave it by `spark.sparkContext.setJobDescription`, and those of a
stream that of the query.
"""

import json
import os
import re
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

PATIENCE_SECONDS: Final = 900.0  # with a start, and with a script, on a machine that is busy

T = TypeVar("T")

_HOST = "127.0.0.1"
_SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"  # starts soon and takes little
_POLL_S = 0.05
_LOG_CHARACTERS_SHOWN = 4000


class SparkFailed(Exception):
    """The cluster did not start, or a script failed on it; the text has the end of the logs."""


class Ran:
    """A script that was run: what Spark has logged of its jobs."""

    def __init__(self, events: Path) -> None:
        self._events = events

    def workers(self, job: str | None = None) -> set[str]:
        """The workers that tasks of a job ended well on, or of any, by their addresses."""
        stages: set[int] = set()
        workers: dict[str, str] = {}
        found: set[str] = set()
        for event in self._logged():
            match event["Event"]:
                case "SparkListenerExecutorAdded":
                    # An executor's log is shown by its worker.
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

    def _logged(self) -> Iterator[Any]:  # Any: JSON
        (path,) = self._events.iterdir()
        with path.open() as lines:
            yield from map(json.loads, lines)


def _name(properties: Mapping[str, str]) -> str:
    # The jobs of a stream have the number of their micro-batch, and more, behind the name.
    return re.split(r"<br/>|\n", properties.get("spark.job.description", ""))[0]


class SparkCluster:
    """Starts when its `with` begins; each worker has one core, and memory for one executor."""

    def __init__(self, folder: Path, *, workers: int = 2, executor_mb: int = 512) -> None:
        found = find_spec("pyspark")
        if found is None or found.origin is None or shutil.which("java") is None:
            raise NoJudge("needs PySpark and java: install both to let Spark judge on a cluster")
        self.url = ""
        self.folder = folder.resolve()
        self.workers = workers
        self.executor_mb = executor_mb
        self._bin = Path(found.origin).parent / "bin"
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
            error.add_note(self.said())
        self.close()

    def submit(
        self, script: Path, *arguments: str, settings: Mapping[str, object] | None = None
    ) -> Ran:
        """Run a script on all of the workers, as spark-submit does."""
        self._submitted += 1
        events = self.folder / f"events-{self._submitted}"
        events.mkdir()
        given: dict[str, object] = {
            "spark.cores.max": self.workers,
            "spark.executor.memory": f"{self.executor_mb}m",
            "spark.executor.extraJavaOptions": _SMALL_JVM,
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": _SMALL_JVM,
            # No job begins before every worker has its executor: the first would run on one alone.
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{PATIENCE_SECONDS:.0f}s",
            "spark.driver.bindAddress": _HOST,
            "spark.driver.host": _HOST,
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": self.workers,
            "spark.sql.warehouse.dir": self.folder / "warehouse",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            **(settings or {}),
        }
        command = [
            *(str(self._bin / "spark-submit"), "--master", self.url),
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
                timeout=PATIENCE_SECONDS,
                check=False,
            )
        if done.returncode:
            raise SparkFailed(f"{script.name} ended with {done.returncode}.\n{self.said()}")
        return Ran(events)

    def close(self) -> None:
        """End all of it."""
        for one in self._running.values():
            # A worker's executors are of its group; their Pythons end with them.
            with suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
            one.wait()
        self._running.clear()
        self._wait(lambda: not self.processes() or None, "something still runs")

    def processes(self) -> list[int]:
        """All that work in the folder: the cluster, and whatever it has started."""
        found: list[int] = []
        for one in filter(str.isdigit, os.listdir("/proc")):
            try:
                where = Path(os.readlink(f"/proc/{one}/cwd"))
            except OSError:  # it has ended, or is somebody else's
                continue
            if where.is_relative_to(self.folder):
                found.append(int(one))
        return found

    def said(self) -> str:
        """The ends of all logs."""
        return "\n".join(
            f"{log.name} ends so:\n{log.read_text(errors='replace')[-_LOG_CHARACTERS_SHOWN:]}"
            for log in sorted(self.folder.glob("*.log"))
        )

    def _start(self, kind: str, name: str, *arguments: str) -> None:
        where = ("--host", _HOST, "--port", "0", "--webui-port", "0")
        command = (str(self._bin / "spark-class"), f"org.apache.spark.deploy.{kind}")
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

    def _logged(self, name: str, sign: str) -> str:
        """Wait until a process has logged something; what it was."""

        def found() -> str | None:
            ended = self._running[name].poll() is not None
            match = re.search(sign, self._log(name).read_text(errors="replace"))
            if ended and not match:
                raise SparkFailed(f"{name} ended.\n{self.said()}")
            return match and match[1]

        return self._wait(found, f"{name} did not start")

    def _wait(self, wanted: Callable[[], T | None], otherwise: str) -> T:
        deadline_s = time.monotonic() + PATIENCE_SECONDS
        while (found := wanted()) is None:
            if time.monotonic() > deadline_s:
                raise SparkFailed(f"{otherwise}.\n{self.said()}")
            time.sleep(_POLL_S)
        return found

    def _environment(self) -> dict[str, str]:
        # Spark's own variables are those of whoever runs this, or of a session in this process.
        own = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
        return own | {
            "SPARK_HOME": str(self._bin.parent),
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": _SMALL_JVM,
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
            "PYSPARK_PYTHON": sys.executable,
        }

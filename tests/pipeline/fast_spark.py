"""Starts Spark with little processor time, for tests in which Spark starts often and works little.

A session with two small queries takes 27 s of processor time. 15 s are left when Java uses only its
first compiler and the serial collector, and 7 s when it also maps an archive of Spark's classes.
The archive is the one of `make run`. A run of the sensors example saves it, once per environment.
"""

import fcntl
import os
import sys
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from judges.spark_cluster import submit_arguments
from ottla.pipeline.class_archive import ClassArchive
from ottla.pipeline.java import found_java
from ottla.pipeline.local_spark import JAVA_OPTIONS
from ottla.pipeline.spark_home import fast_spark_home
from pipeline.sensors.first_run import first_run, python_path
from sampling import SOAK

# Spark compiles Java code for each query, which takes longer than to interpret it for a few rows.
SMALL_DATA: Final = (
    {}
    if SOAK
    else {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.codegen.wholeStage": "false",
        # A query without new data asks for it again after 10 ms otherwise.
        "spark.sql.streaming.pollingDelay": "100ms",
    }
)


DAEMON: Final = (
    {"spark.python.daemon.module": "pipeline.spark_daemon"}
    if os.path.exists("/proc/self/task") and not SOAK  # where the daemon can count its threads
    else {}
)
"""Spark's Python processes start with their imports done; the tests are in their PYTHONPATH."""

TESTS: Final = Path(__file__).parents[1]


class FastSpark(NamedTuple):
    """What a process that starts Spark is given."""

    home: str  # SPARK_HOME
    java_options: str  # for drivers, executors, masters and workers

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that starts Spark."""
        return {
            **os.environ,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": submit_arguments(SMALL_DATA),
            "PYTHONPATH": f"{python_path()}{os.pathsep}{TESTS}",
            "SPARK_HOME": self.home,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }


@cache
def fast_spark() -> FastSpark:
    """Save the archive of classes unless it exists; Spark also starts without one.

    One process of the tests saves it, and the others wait.
    """
    archive = ClassArchive(found_java())
    archive.directory.mkdir(parents=True, exist_ok=True)
    with (archive.directory / "tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists:
            first_run()
    options = f"{JAVA_OPTIONS} {archive.java_options}" if archive.exists else JAVA_OPTIONS
    return FastSpark(str(fast_spark_home(archive.spark_home)), options)

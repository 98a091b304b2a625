"""Starts Spark with little processor time, for tests in which Spark starts often and works little.

A session with two small queries takes 27 s of processor time. 15 s are left when Java uses only its
first compiler and the serial collector, and 7 s when it also maps an archive of Spark's classes.
The archive is the one of `make run`; it is made once per environment.
"""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sensors import archive

from ottla.pipeline.java import found_java
from ottla.pipeline.spark_home import fast_spark_home

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE_S = 900.0
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


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
            "PYTHONPATH": python_path(),
            "SPARK_HOME": self.home,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }


def python_path() -> str:
    """The PYTHONPATH of Spark's Python processes: the examples before what this process has."""
    paths = [str(EXAMPLES), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return os.pathsep.join(dict.fromkeys(paths))


@cache
def fast_spark() -> FastSpark:
    """Make the archive of classes unless it exists; Spark also starts without one."""
    # In a process of its own: PySpark connects a process to one virtual machine only.
    subprocess.run(
        [sys.executable, "-m", "sensors.archive"],
        env={**os.environ, "PYTHONPATH": python_path()},
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE_S,
        check=True,
    )
    classes = archive.place(found_java())
    options = f"{_JAVA_OPTIONS} {archive.options(classes)}" if classes.exists() else _JAVA_OPTIONS
    return FastSpark(str(fast_spark_home(archive.home(classes))), options)

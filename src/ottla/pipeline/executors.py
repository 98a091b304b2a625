"""Prepares the executors of a cluster: sends the modules of Python steps, and checks their Python.

Without the check a missing package is an error of every micro-batch, deep in a traceback of Spark.

Invariant: the check runs as one job of Spark and imports what sources and sinks import. Spark
pickles its function by value, because it is a local one, so it also runs where Ottla is not
installed.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ottla.errors import OttlaError
from ottla.pipeline.restarts import failure_text
from ottla.pipeline.spec.model import Pipeline
from ottla.pipeline.step_modules import modules_of, source_files, write_archive
from ottla.release import RELEASE

if TYPE_CHECKING:
    from pyspark import SparkContext

POLL_S: Final = 0.1
_DONE: Final = ""
NEEDED: Final = ("pandas", "pyarrow", "ottla.pipeline.source", "ottla.pipeline.sink")
"""What sources and sinks import in an executor."""


class UnusableExecutors(OttlaError):
    """The executors cannot run a pipeline; the text has the reason."""


def send_modules(context: "SparkContext", pipeline: Pipeline, archive: Path) -> None:
    """Let executors import the modules of Python steps; Spark serves the archive to its end."""
    files = source_files(modules_of(pipeline))
    if files:
        write_archive(files, archive)
        context.addPyFile(str(archive))


def check_executors(
    context: "SparkContext",
    is_stopping: Callable[[], bool] = lambda: False,
    release: str = RELEASE,
) -> bool:
    """Raise UnusableExecutors if executors lack Ottla or what it needs.

    Waits for executors, which may take long on a busy cluster. Returns False if a stop was
    requested meanwhile.
    """
    found: list[str] = []

    def check() -> None:
        try:
            found.append(next(iter(_problems(context, release)), _DONE))
        except Exception as error:  # the edge of this thread; whatever Spark raises
            found.append(failure_text(str(error)))

    thread = threading.Thread(target=check, name="check executors", daemon=True)
    thread.start()
    while thread.is_alive():
        if is_stopping():
            context.cancelAllJobs()
            return False
        thread.join(POLL_S)
    if found != [_DONE]:
        raise UnusableExecutors(f"the executors of Spark cannot run the pipeline: {found[0]}")
    return True


def _problems(context: "SparkContext", release: str) -> list[str]:
    count = context.defaultParallelism
    rows: Any = context.parallelize(range(count), count)
    return rows.mapPartitions(_checking(release)).collect()


def _checking(release: str) -> Callable[[Iterable[int]], Iterator[str]]:
    """Return the function that runs on executors; it needs nothing of this module."""
    needed = NEEDED

    def check(rows: Iterable[int]) -> Iterator[str]:
        import importlib
        import platform
        import sys

        try:
            for name in needed:
                importlib.import_module(name)
            found = importlib.import_module("ottla.release").RELEASE
        except ImportError as error:
            what, cure = f"{error}", f"install Ottla {release} with the extra spark"
        else:
            if found == release:
                return
            what = f"Ottla {found} is installed, the driver has {release}"
            cure = "install the same release on all machines"
        yield f"{sys.executable} on {platform.node()}: {what}; {cure}"

    return check

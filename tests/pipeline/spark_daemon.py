"""The process from which Spark forks its Python processes, with their imports done before.

Spark's own daemon forks first, and each process then imports the same modules for a second. Tests
start many of them. Spark imports after the fork because numpy and pyarrow start threads at their
import. They start none here, or the daemon fails.
"""

import gc
import importlib
import os
import sys
from typing import Final

from pyspark.daemon import manager

PRELOADED: Final = (
    "pyarrow",
    "pyspark.worker",
    "ottla.pipeline.source",
    "ottla.pipeline.sink",
)


# NumPy's and pyarrow's settings for their threads.
WITHOUT_THREADS: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}


def main() -> None:
    """Import what the processes need, and serve Spark."""
    os.environ.update(WITHOUT_THREADS)
    worker = sys.argv[1:2] or ["pyspark.worker"]  # the module that the processes run
    for name in (*PRELOADED, *worker):
        importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads cannot be forked"
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()

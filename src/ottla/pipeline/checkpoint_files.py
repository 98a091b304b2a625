"""Chooses how Spark writes the files of checkpoints.

By default Spark renames them with Hadoop's FileContext. In a local directory that starts a process
(`readlink`) for each file that it looks at: about 40 for a micro-batch with state. Hadoop's
FileSystem renames the same files without a process.

Invariant: only local directories use FileSystem, whose rename is atomic there. Other file systems
keep Spark's default, because FileSystem does not promise an atomic rename for all of them.
"""

from typing import Any, Final
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

SETTING: Final = "spark.sql.streaming.checkpointFileManagerClass"
LOCAL_FILES: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


def write_local_checkpoints_fast(session: SparkSession, directory: str) -> None:
    """Let a session write checkpoints without processes, if their directory is on a local disk.

    A setting of the user stays.
    """
    if session.conf.get(SETTING, None) is None and _is_local(session, directory):
        session.conf.set(SETTING, LOCAL_FILES)


def _is_local(session: SparkSession, directory: str) -> bool:
    scheme = urlsplit(directory).scheme
    if not scheme:
        context: Any = session.sparkContext
        default: str = context._jsc.hadoopConfiguration().get("fs.defaultFS", "file:///")  # noqa: SLF001
        scheme = urlsplit(default).scheme
    return scheme == "file"

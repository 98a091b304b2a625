"""Reads and writes files of checkpoints in any file system that Spark knows, such as `s3a://`.

Invariant: Spark's own settings of the file system are used, and errors have no values of variables:
they name what failed, and not the file.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import SparkSession

from ottla.errors import OttlaError
from ottla.pipeline.local_spark import error_summary

_PATH: Final = "org.apache.hadoop.fs.Path"
_STREAMS: Final = "org.apache.commons.io.IOUtils"


class RemoteFilesFailed(OttlaError):
    """A file system does not respond as it should; the text has its error."""


class HadoopFiles:
    """The file systems of a session."""

    def __init__(self, session: SparkSession) -> None:
        given: Any = session  # Spark has no API for this
        self._jvm = given._jvm  # noqa: SLF001
        self._conf = given._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory; nothing if there is none."""
        with _reported("list"):
            path = self._path(directory)
            system = path.getFileSystem(self._conf)
            if not system.exists(path):
                return []
            return [one.getPath().getName() for one in system.listStatus(path)]

    def read(self, directory: str, name: str) -> str | None:
        """Return the text of a file; None if there is none."""
        with _reported("read"):
            path = self._path(f"{directory.rstrip('/')}/{name}")
            system = path.getFileSystem(self._conf)
            if not system.exists(path):
                return None
            stream = system.open(path)
            try:
                return str(getattr(self._jvm, _STREAMS).toString(stream, "UTF-8"))
            finally:
                stream.close()

    def write(self, directory: str, name: str, text: str) -> None:
        """Replace a file, and create its directory."""
        with _reported("write"):
            path = self._path(f"{directory.rstrip('/')}/{name}")
            stream = path.getFileSystem(self._conf).create(path, True)
            try:
                stream.write(text.encode())
            finally:
                stream.close()

    def _path(self, text: str) -> Any:
        # The whole name at once: for each part of a name, Java would search all jars.
        return getattr(self._jvm, _PATH)(text)


@contextmanager
def _reported(action: str) -> Generator[None]:
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        raise RemoteFilesFailed(f"cannot {action} a checkpoint: {error_summary(error)}") from None

"""The class data archive with which the JVM starts Spark in half the CPU time.

Java calls this class-data sharing. The JVM maps the archive into memory instead of reading
thousands of classes from jars and verifying them. A Java process writes an archive when it ends,
and later ones with the same class path use it.

Invariant: a file with the name of an archive is complete. Java ignores an archive that does not
match its version or class path. The name contains both, so that an environment that was moved
writes another archive.
"""

import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Final

from ottla.pipeline.java import Java

DIRECTORY_VARIABLE: Final = "OTTLA_SPARK_DIRECTORY"
"""Overrides the directory; the default is `.spark` in the environment of this Python."""


class ClassArchive:
    """The archive for one version of Java and Spark in one directory, and its Spark home."""

    def __init__(self, java: Java, directory: Path | None = None) -> None:
        # One class path, whichever link leads to the directory.
        self.directory = (directory or _default_directory()).resolve()
        self.spark_home = self.directory / "home"
        """For `fast_spark_home`. The class path begins with this directory."""
        place = hashlib.sha256(os.fsencode(self.spark_home)).hexdigest()[:8]
        name = f"java-{java.build}-spark-{version('pyspark')}-{place}.jsa"
        self.path = self.directory / re.sub(r"[^\w.+-]+", "_", name)

    @property
    def exists(self) -> bool:
        """Whether an earlier process has written the archive."""
        return self.path.exists()

    @property
    def java_options(self) -> str:
        """Return the options with which Java uses the archive."""
        return f"-Xshare:auto {quote_java_option(f'-XX:SharedArchiveFile={self.path}')}"

    @contextmanager
    def recording(self) -> Generator["Recording"]:
        """Prepare to write the archive; it is deleted at the end unless `save()` is called."""
        self.directory.mkdir(parents=True, exist_ok=True)
        # Next to the archive, because a file cannot be renamed into another file system.
        with tempfile.TemporaryDirectory(prefix="recording-", dir=self.directory) as directory:
            yield Recording(Path(directory) / "classes.jsa", self.path)


class Recording:
    """An archive that a Java process writes when it ends."""

    def __init__(self, temporary: Path, path: Path) -> None:
        self._temporary = temporary
        self._path = path

    @property
    def java_options(self) -> str:
        """Return the options to write the archive; a Java that cannot do it ignores them."""
        option = quote_java_option(f"-XX:ArchiveClassesAtExit={self._temporary}")
        return f"-XX:+IgnoreUnrecognizedVMOptions {option}"

    def save(self) -> None:
        """Keep the archive, if there is one. The Java process must have exited by itself."""
        with suppress(FileNotFoundError):
            os.replace(self._temporary, self._path)


def quote_java_option(option: str) -> str:
    """Quote an option for Spark's lists of Java options, which separate them by spaces."""
    return '"{}"'.format(option.replace("\\", "\\\\").replace('"', '\\"'))


def _default_directory() -> Path:
    chosen = os.environ.get(DIRECTORY_VARIABLE)
    return Path(chosen).absolute() if chosen else Path(sys.prefix) / ".spark"

"""The class data archive with which the JVM starts Spark in half the CPU time.

Java calls this class-data sharing. The JVM maps the archive into memory instead of reading
thousands of classes from jars and verifying them. A Java process writes an archive when it ends,
and later ones with the same class path use it.

Invariant: a file with the name of an archive is complete, whichever processes write it at the same
time. Java ignores an archive that does not match its version or class path. The name contains both,
so that another Java, another Spark and an environment that was moved write another archive.
"""

import hashlib
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ottla.pipeline.java import Java

DIRECTORY_VARIABLE: Final = "OTTLA_SPARK_DIRECTORY"
"""Overrides the directory; the default is one in the cache of the user for each installed Spark."""

ABANDONED_S: Final = 86_400.0
"""A recording that is older was left by a process that was killed."""

_RECORDING: Final = "recording-"


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
        self._delete_abandoned()
        # Next to the archive, because a file cannot be renamed into another file system.
        with tempfile.TemporaryDirectory(prefix=_RECORDING, dir=self.directory) as directory:
            yield Recording(Path(directory) / "classes.jsa", self.path)

    def _delete_abandoned(self) -> None:
        """Delete what killed processes have left, and the directories of deleted installations."""
        for one in self.directory.glob(f"{_RECORDING}*"):
            with suppress(OSError):
                if one.stat().st_mtime < time.time() - ABANDONED_S:
                    shutil.rmtree(one, ignore_errors=True)
        if self.directory.parent == _cache():
            for other in self.directory.parent.iterdir():
                jars = other / "home" / "jars"
                if jars.is_symlink() and not jars.exists():
                    shutil.rmtree(other, ignore_errors=True)


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

    @property
    def is_saved(self) -> bool:
        """Whether another process has written the archive meanwhile."""
        return self._path.exists()

    def save(self) -> None:
        """Keep the archive, if there is one. The Java process must have exited by itself."""
        with suppress(FileNotFoundError):
            os.replace(self._temporary, self._path)


def quote_java_option(option: str) -> str:
    """Quote an option for Spark's lists of Java options, which separate them by spaces."""
    return '"{}"'.format(option.replace("\\", "\\\\").replace('"', '\\"'))


def _default_directory() -> Path:
    chosen = os.environ.get(DIRECTORY_VARIABLE)
    if chosen:
        return Path(chosen).absolute()
    found = find_spec("pyspark")
    installed = "" if found is None or found.origin is None else str(Path(found.origin).resolve())
    return _cache() / hashlib.sha256(os.fsencode(installed)).hexdigest()[:12]


def _cache() -> Path:
    """Return the directory with what can be made again; that of this Python without a home."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(chosen):
        return Path(chosen) / "ottla" / "spark"
    home = os.path.expanduser("~")  # the method of Path raises an error if there is no home
    if not os.path.isabs(home):
        return Path(sys.prefix) / ".spark"
    return Path(home) / ".cache" / "ottla" / "spark"

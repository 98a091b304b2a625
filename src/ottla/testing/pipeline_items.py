"""The tests of pipeline files as items of pytest, on a Spark session that all of them share.

Invariant: Spark starts with the first item that runs, unless the test run has a session already,
and only a session that was started here is stopped. An item fails with the differences that
`ottla pipeline test` prints.
"""

import os
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from ottla.pipeline.spec.loading import FILE_BYTES_MAX, Loaded, load
from ottla.pipeline.spec.problems import InvalidPipeline, PipelineProblem
from ottla.release import how_to_install

if TYPE_CHECKING:
    from ottla.pipeline.declared_tests import DeclaredTests

MASTER: Final = "local[2]"
_KEYS: Final = [re.compile(rf"^{key}:", re.MULTILINE) for key in ("sources", "sinks", "tests")]


def pipeline_file(path: Path, parent: pytest.Collector) -> "PipelineFile | None":
    """Return the collector of a pipeline file with tests; None for any other file."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            return None
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None
    if not all(key.search(text) for key in _KEYS):
        return None
    collectors: Any = PipelineFile  # pytest does not type the arguments
    return collectors.from_parent(parent, path=path)


class PipelineFile(pytest.File):
    """A pipeline file."""

    tests: "DeclaredTests"

    def collect(self) -> Iterator["PipelineItem"]:
        """Yield an item for each test of the file."""
        loaded = self._load()
        for number, test in enumerate(loaded.pipeline.tests):
            place = loaded.positions.locate(PipelineProblem(("tests", number), "")).position
            items: Any = PipelineItem  # pytest does not type the arguments
            item: PipelineItem = items.from_parent(self, name=test.name)
            item.line = None if place is None else place.line - 1
            yield item

    def setup(self) -> None:
        """Prepare the queries, which the tests of the file share."""
        for name in ("pyspark", "pyarrow", "pandas"):
            if find_spec(name) is None:
                pytest.skip(f"needs {name}: {how_to_install('spark')}")
        from ottla.pipeline.declared_tests import DeclaredTests

        # Python steps are modules beside the file.
        folder = str(self.path.parent)
        sys.path.insert(0, folder)
        self.addfinalizer(lambda: sys.path.remove(folder))
        self.tests = DeclaredTests(_session(self.config), self._load(), str(self.path))
        self.addfinalizer(self.tests.close)

    def _load(self) -> Loaded:
        try:
            return load(self.path)
        except InvalidPipeline as error:
            raise self.CollectError(str(error)) from None


class PipelineItem(pytest.Item):
    """A test of a pipeline file."""

    line: int | None = None
    """Where the test is in the file, counted from 0."""

    def runtest(self) -> None:
        """Run the queries of the test, and compare their rows."""
        assert isinstance(self.parent, PipelineFile)
        self.parent.tests.check(self.name)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return what differs, without a traceback."""
        if isinstance(excinfo.value, AssertionError | InvalidPipeline):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the place of the test, and its name."""
        return self.path, self.line, self.name


def _session(config: pytest.Config) -> Any:
    """Return the session of the test run, or start one that ends with it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from ottla.pipeline.java import check_java
    from ottla.pipeline.local_spark import SETTINGS, driver_address

    builder: Any = SparkSession.builder
    contexts: Any = SparkContext
    if contexts._active_spark_context is not None:  # noqa: SLF001 - there is no public way
        return builder.getOrCreate()
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {**SETTINGS, **driver_address(MASTER)}
    session: Any = builder.master(MASTER).appName("pytest").config(map=settings).getOrCreate()
    config.add_cleanup(session.stop)
    return session

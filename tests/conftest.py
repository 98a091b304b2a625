"""Selects the kernel under test before anything of Ottla is imported, and distributes the tests.

OTTLA_TEST_KERNEL=python loads the source of the kernel even if the compiled one is installed, so
that one machine tests both. By default the tests use the installed kernel.

With -n, one process runs all files that use `shared_kafka`, and one all files named test_spark_…,
because they share a Kafka and a Spark. One process runs a whole file that starts Kafka's tools, or
that is named test_kafka_…, because its tests share what they start. xdist begins with the largest
of these groups.
"""

import os
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Generator
from contextlib import closing
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

import run_summary
import sampling
from kernel_loading import KERNEL, SourceFinder

if TYPE_CHECKING:
    from kafka_tools import KafkaTools
    from shared_kafka import SharedKafka

if os.environ.get("OTTLA_TEST_KERNEL") == "python":
    assert KERNEL not in sys.modules
    sys.meta_path.insert(0, SourceFinder)

# Every process of a run takes the same samples, even if a commit is made meanwhile.
os.environ["OTTLA_SEED"] = sampling.seed()

# In CI the same examples are drawn every time, so that a failure is caused by the change. Elsewhere
# the examples are new, and `make soak` draws ten times as many. There are no deadlines, because
# machines are busy.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("here", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "here")


def pytest_configure() -> None:
    """Restore the handler of Ctrl-C, which processes started in the background ignore."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Record the durations; after a failure, print how to repeat the samples."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return  # the controller process of xdist has all reports
    seconds: defaultdict[str, float] = defaultdict(float)
    counts: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    for report in chain.from_iterable(terminalreporter.stats.values()):
        if not isinstance(report, pytest.TestReport):
            continue
        parts = report.nodeid.partition("::")[0].split("/")
        area = parts[1] if len(parts) > 2 else "tests"
        seconds[area] += report.duration
        counts[area] += report.when == "call"
        if report.skipped and isinstance(report.longrepr, tuple):
            skipped[str(report.longrepr[2]).removeprefix("Skipped: ")] += 1
    run_summary.note_tests(seconds, counts, skipped)
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.section("samples")
        terminalreporter.line(f"repeat them with OTTLA_SEED={sampling.seed()}")


@cache
def _group(path: Path) -> str | None:
    """The group of files that must run in one process; None if each test can run anywhere."""
    if path.name.startswith("test_spark_"):
        return "spark"
    text = path.read_text()
    if "shared_kafka" in text or "client.both_brokers" in text:
        return "kafka"
    return str(path) if path.name.startswith("test_kafka_") or "java_tools" in text else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """Distribute tests one by one, except those of a group, which run in one process.

    xdist loses its own group marks if pytest computes the ids of tests.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByBroker(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            return _group(config.rootpath / path) or nodeid

    return ByBroker(config, log) if config.getoption("dist") == "load" else None


@pytest.fixture(scope="session")
def shared_kafka(tmp_path_factory: pytest.TempPathFactory) -> "Generator[SharedKafka]":
    """One Kafka for all tests of this process that need no special settings."""
    from shared_kafka import started

    with started(tmp_path_factory.mktemp("kafka")) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def java_tools() -> "Generator[KafkaTools]":
    """Kafka's command-line tools, in one Java process for all tests of this process."""
    from kafka_tools import KafkaTools

    with closing(KafkaTools()) as tools:
        yield tools

"""Selects the kernel under test before anything of Ottla is imported, and distributes the tests.

OTTLA_TEST_KERNEL=python loads the source of the kernel even if the compiled one is installed, so
that one machine tests both. By default the tests use the installed kernel.

With -n, one process runs all files that use `shared_kafka`, one all files named test_spark_… that
use the fixture `spark` or `first_run`, and one all tests with ZooKeeper, because they share a
Kafka, a Spark and a ZooKeeper. Another one runs the other files named test_spark_…, which start
Spark in processes of their own, so that these long tests begin early. One process runs a whole file
that starts Kafka's tools, that is named test_kafka_…, or that has a fixture for all its tests,
because these share what they start. xdist begins with the largest of these groups.
"""

import gc
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

import run_directory
import run_summary
import sampling
from cpu_time import CpuMeter
from kernel_loading import KERNEL, SourceFinder
from run_summary import Spent

if TYPE_CHECKING:
    from kafka_tools import KafkaTools
    from shared_kafka import SharedKafka

gc.disable()  # until all tests are collected: nothing of them is garbage

if os.environ.get("OTTLA_TEST_KERNEL") == "python":
    assert KERNEL not in sys.modules
    sys.meta_path.insert(0, SourceFinder)

# Every process of a run takes the same samples, even if a commit is made meanwhile.
os.environ["OTTLA_SEED"] = sampling.seed()

run_directory.create()

# In CI the same examples are drawn every time, so that a failure is caused by the change. Elsewhere
# the examples are new, and `make soak` draws 25 times as many. There are no deadlines, because
# machines are busy.
EXAMPLES = sampling.examples(40, usual=100)
settings.register_profile("ci", max_examples=EXAMPLES, derandomize=True, deadline=None)
settings.register_profile("here", max_examples=EXAMPLES, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "here")


CPU_S = pytest.StashKey[CpuMeter]()
CPU_PROPERTY = "cpu_s"
"""A property of the last report of a test: the processor time since the report before it."""


def pytest_configure() -> None:
    """Restore the handler of Ctrl-C, which processes started in the background ignore."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start to count processor time; exempt what is loaded so far from garbage collections."""
    gc.collect()
    gc.freeze()
    gc.enable()
    session.config.stash[CPU_S] = CpuMeter()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note the processor time of a test, with its fixtures and the processes that it started."""
    report = yield
    if report.when == "teardown":
        report.user_properties.append((CPU_PROPERTY, item.config.stash[CPU_S].read()))
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Record the durations; after a failure, print how to repeat the samples."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return  # the controller process of xdist has all reports
    files: defaultdict[str, Spent] = defaultdict(Spent)
    skipped: Counter[str] = Counter()
    for report in chain.from_iterable(terminalreporter.stats.values()):
        if not isinstance(report, pytest.TestReport):
            continue
        spent = files[report.nodeid.partition("::")[0]]
        spent.seconds += report.duration
        spent.tests += report.when == "call"
        cpu_s = dict(report.user_properties).get(CPU_PROPERTY)
        spent.cpu_seconds += cpu_s if isinstance(cpu_s, float) else 0.0
        if report.skipped and isinstance(report.longrepr, tuple):
            skipped[str(report.longrepr[2]).removeprefix("Skipped: ")] += 1
    run_summary.note_tests(files, skipped)
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.section("samples")
        terminalreporter.line(f"repeat them with OTTLA_SEED={sampling.seed()}")


MODULE_SCOPE = 'scope="module"'
SHARED_SPARK = ("spark: Any", "first_run()")


@cache
def _group(path: Path) -> str | None:
    """The group of files that must run in one process; None if each test can run anywhere."""
    text = path.read_text()
    if path.name.startswith("test_spark_"):
        return "spark" if any(map(text.__contains__, SHARED_SPARK)) else "spark processes"
    if "shared_kafka" in text or "client.both_brokers" in text:
        return "kafka"
    shares = path.name.startswith("test_kafka_") or "java_tools" in text or MODULE_SCOPE in text
    return str(path) if shares else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """Distribute tests one by one, except those of a group, which run in one process.

    xdist loses its own group marks if pytest computes the ids of tests.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByBroker(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith("tests/coordination/") and "zookeeper" in nodeid:
                return "zookeeper"
            return _group(config.rootpath / nodeid.partition("::")[0]) or nodeid

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

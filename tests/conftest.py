"""Chooses the kernel under test, before anything of Ottla is imported; shares out the tests.

OTTLA_TEST_KERNEL=python loads the kernel's source even where the compiled one is installed, so
that one machine tests both. Unset, the tests take what the installation has.

With -n, a file named test_kafka_… is run by one process: its tests share a broker of Kafka's, which
takes longer to fill than all of them to run. Those named test_spark_… are run by one process
together, for they share one Spark.
"""

import os
import signal
import sys
from collections import Counter, defaultdict
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import run_summary
import sampling
from kernel_loading import KERNEL, SourceFinder

if os.environ.get("OTTLA_TEST_KERNEL") == "python":
    assert KERNEL not in sys.modules
    sys.meta_path.insert(0, SourceFinder)

# Every process of a run takes the same samples, also when a commit is made meanwhile.
os.environ["OTTLA_SEED"] = sampling.seed()

# In CI the same examples are drawn every time, so that a run tells about the change it judges;
# everywhere else they are new ones, and `make soak` draws ten times as many.
# No deadlines: machines are busy, and how long an example takes is no verdict.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("here", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "here")


def pytest_configure() -> None:
    """Heed Ctrl-C, which whoever starts this in the background lets every process ignore."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Note what took how long; show how to take the same samples again when something failed."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return  # the process that shares out the tests has all reports
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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """Hand out tests one by one, but those with a broker file by file.

    The marks that xdist has for this are lost on a pytest that computes the ids of tests.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByBroker(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            name = Path(path).name
            if name.startswith("test_spark_"):
                return "spark"
            return path if name.startswith("test_kafka_") else nodeid

    return ByBroker(config, log) if config.getoption("dist") == "load" else None

"""pytest fixtures, and the tests of pipeline files; pytest loads them when Ottla is installed.

Invariant: importing this module is cheap; a test run without a cluster does not load the broker.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.testing.cluster_thread import ClusterThread


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the setting with which the tests of pipeline files are not collected."""
    doc = "Collect the tests of pipeline files: YAML with sources, sinks and tests."
    parser.addini("ottla_pipeline_tests", doc, type="bool", default=True)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the tests of a pipeline file."""
    if file_path.suffix not in (".yaml", ".yml"):
        return None
    if not parent.config.getini("ottla_pipeline_tests"):
        return None
    from ottla.testing.pipeline_items import pipeline_file

    return pipeline_file(file_path, parent)


@pytest.fixture(scope="session")
def ottla_settings() -> Mapping[str, object]:
    """The broker settings by Kafka's names; override this fixture to change them."""
    return {}


@pytest.fixture
def ottla_cluster(ottla_settings: Mapping[str, object]) -> "Iterator[ClusterThread]":
    """A cluster with one broker for one test, blocking or async."""
    from ottla.testing.cluster_thread import ClusterThread

    with ClusterThread(settings=ottla_settings) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def ottla_session_cluster(ottla_settings: Mapping[str, object]) -> "Iterator[ClusterThread]":
    """A cluster shared by all tests of a session, which must not interfere with each other."""
    from ottla.testing.cluster_thread import ClusterThread

    with ClusterThread(settings=ottla_settings) as cluster:
        yield cluster


@pytest.fixture
def ottla_cluster_of(
    ottla_settings: Mapping[str, object],
) -> "Iterator[Callable[[int], ClusterThread]]":
    """Start clusters for one test: `ottla_cluster_of(3)` returns one of three brokers."""
    from ottla.testing.cluster_thread import ClusterThread

    with ExitStack() as stack:
        yield lambda brokers: stack.enter_context(ClusterThread(brokers, settings=ottla_settings))

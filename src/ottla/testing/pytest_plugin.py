"""Fixtures for the tests of those who use Ottla; pytest finds them when Ottla is installed.

Invariant: importing this costs nothing: a test run that asks for no cluster loads no broker.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.testing.cluster_thread import ClusterThread


@pytest.fixture(scope="session")
def ottla_settings() -> Mapping[str, object]:
    """The settings of the brokers, by Kafka's names; define it anew to choose them."""
    return {}


@pytest.fixture
def ottla_cluster(ottla_settings: Mapping[str, object]) -> "Iterator[ClusterThread]":
    """A cluster of one broker for one test, whether that blocks or awaits."""
    from ottla.testing.cluster_thread import ClusterThread

    with ClusterThread(settings=ottla_settings) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def ottla_session_cluster(ottla_settings: Mapping[str, object]) -> "Iterator[ClusterThread]":
    """A cluster for all tests of a session, which must not stand in each other's way."""
    from ottla.testing.cluster_thread import ClusterThread

    with ClusterThread(settings=ottla_settings) as cluster:
        yield cluster

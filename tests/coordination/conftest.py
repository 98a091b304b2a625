"""All implementations of coordination, for the conformance tests."""

from collections.abc import Generator
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from coordination.backends import Runner, run_embedded, run_simulated
from coordination.zookeeper_backend import run_zookeeper
from judges.java import ZOOKEEPER_POM, class_path
from kafka_java import judge_needed
from ottla.coordination.ensemble import LocalServer

_roots = (f"/test/{number}" for number in count())


@pytest.fixture(scope="session")
def zookeeper_port(tmp_path_factory: pytest.TempPathFactory) -> Generator[int]:
    """A ZooKeeper server for all tests."""
    with judge_needed():
        jars = class_path(ZOOKEEPER_POM)
    folder: Path = tmp_path_factory.mktemp("zookeeper")
    with LocalServer(folder, jars, tick_ms=500) as server:
        yield server.port


@pytest.fixture(params=["embedded", "simulated", "zookeeper"])
def run(request: pytest.FixtureRequest) -> Runner:
    """Run a scenario in a new backend."""
    if request.param == "embedded":
        return run_embedded
    if request.param == "simulated":
        return run_simulated
    port: int = request.getfixturevalue("zookeeper_port")
    return partial(run_zookeeper, port, next(_roots))

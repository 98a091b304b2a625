"""A Spark session and a broker, which all tests of a process share."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest

from judges.java import SPARK_CONNECTOR_POM, class_path
from judges.ottla_broker import OttlaBroker, ottla_broker
from kafka_java import judge_needed
from ottla.pipeline.fork_server import ForkServer
from pipeline.fast_spark import DAEMON, SMALL_DATA, fast_spark
from sampling import SOAK

_NUMBERS = count()


@contextmanager
def _fork_server() -> Generator[str]:
    """Yield a Python for sources that Spark finds by name; in a soak it is Python itself.

    Each of their queries has a process, which imports for 0.7 s unless it is forked. Registered
    sources use another server, that of `register`. The processes of test_spark_cluster.py are not
    forked.
    """
    if SOAK or not hasattr(os, "pidfd_open"):
        yield sys.executable
        return
    with ForkServer() as server:
        yield server.executable


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, broker: OttlaBroker) -> Generator[Any]:
    """Spark with two task slots, in which the source is not registered; stops before the broker."""
    fast = fast_spark()
    with judge_needed():
        connector = class_path(SPARK_CONNECTOR_POM)
    os.environ.update(fast.environment)
    folder = tmp_path_factory.mktemp("spark")
    from pyspark.sql import SparkSession

    from ottla.pipeline.checkpoint_files import write_local_checkpoints_fast

    builder: Any = SparkSession.builder
    builder = (
        builder.master("local[2]")
        .appName("tests")
        .config("spark.jars", connector.replace(":", ","))  # the official one; ours needs no jar
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config(map={**SMALL_DATA, **DAEMON})
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", fast.java_options)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
    )
    with _fork_server() as python:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYSPARK_PYTHON", python)  # Java keeps it
            session = builder.getOrCreate()
        session.sparkContext.pythonExec = sys.executable
        session.sparkContext.setLogLevel("OFF")
        write_local_checkpoints_fast(session, str(folder))
        yield session
        session.stop()


@pytest.fixture(scope="session")
def broker() -> Generator[OttlaBroker]:
    """Our broker, in its own process."""
    settings = {
        "num.partitions": 3,
        "auto.create.topics.enable": "true",
        "log.retention.ms": -1,  # tests write records with old timestamps
        "ottla.partitions.max": 20_000,  # all tests of a process share the broker
    }
    with ottla_broker(settings) as running:
        yield running


@pytest.fixture(autouse=True)
def _cleared() -> Generator[None]:
    """Close the clients that a test which ran tasks itself has left in the pools."""
    yield
    for module, pool in (("range_reader", "READERS"), ("sink", "PRODUCERS")):
        worker = sys.modules.get(f"ottla.pipeline.{module}")
        if worker is not None:
            getattr(worker, pool).close()


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"topic-{next(_NUMBERS)}"

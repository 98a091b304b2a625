"""A session of Spark and a broker, which all tests of a process share."""

import os
import sys
from collections.abc import Generator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from judges.java import SPARK_CONNECTOR_POM, class_path
from judges.ottla_broker import OttlaBroker, ottla_broker
from kafka_java import judge_needed
from ottla.pipeline.spark_home import fast_spark_home

EXAMPLES = Path(__file__).parents[2] / "examples"
_NUMBERS = count()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, broker: OttlaBroker) -> Generator[Any]:
    """Spark on two cores of this machine, which was not told of the source; ends first."""
    with judge_needed():
        connector = class_path(SPARK_CONNECTOR_POM)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(EXAMPLES)  # for the workers
    folder = tmp_path_factory.mktemp("spark")
    os.environ["SPARK_HOME"] = str(fast_spark_home(folder / "home"))
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    session = (
        builder.master("local[2]")
        .appName("tests")
        .config("spark.jars", connector.replace(":", ","))  # the judge; ours needs none
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.driver.memory", "1g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker() -> Generator[OttlaBroker]:
    """Our broker, a process of its own."""
    settings = {
        "num.partitions": 3,
        "auto.create.topics.enable": "true",
        "log.retention.ms": -1,  # records of old times stay, also where tests take minutes
    }
    with ottla_broker(settings) as running:
        yield running


@pytest.fixture(autouse=True)
def _cleared() -> Generator[None]:
    """What tasks keep for the next one goes with the test, where a test was the worker."""
    yield
    for module, shelf in (("reading", "READERS"), ("sink", "PRODUCERS")):
        worker = sys.modules.get(f"ottla.pipeline.{module}")
        if worker is not None:
            getattr(worker, shelf).close()


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"topic-{next(_NUMBERS)}"

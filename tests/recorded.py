"""Fixtures for tests that compare with recorded answers of Apache Kafka.

A test module imports `recording`, whose file is named like the module: the answers for
`tests/cli/kafka/test_kafka_groups.py` are in `tests/compat/recorded/cli/kafka/groups.json`.
"""

from collections.abc import Generator
from pathlib import Path

import pytest

from judges.recording import Recording, Scenario

TESTS = Path(__file__).parent


@pytest.fixture(scope="module")
def recording(request: pytest.FixtureRequest) -> Generator[Recording]:
    """The recorded answers for a test module."""
    with Recording(recording_name(request.path)) as found:
        yield found


@pytest.fixture
def scenario(request: pytest.FixtureRequest, recording: Recording) -> Generator[Scenario]:
    """The recorded answers for one test, by its name and parameters."""
    with recording.scenario(request.node.name) as found:
        yield found


def recording_name(module: Path) -> str:
    """The name of the recording that belongs to a test module."""
    path = module.relative_to(TESTS)
    return str(path.with_name(path.stem.removeprefix("test_").removeprefix("kafka_")))

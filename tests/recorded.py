"""Fixtures for tests that compare with recorded answers of Apache Kafka.

A test module imports `recording`, whose file is named like the module: the answers for
`tests/cli/kafka/test_kafka_groups.py` are in `tests/compat/recorded/cli/kafka/groups.json`.
"""

import hashlib
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import pytest

from judges.recording import Json, Recording, Scenario

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


def assert_answers(
    scenario: Scenario,
    questions: Sequence[str],
    ours: Sequence[str],
    ask: Callable[[Sequence[str]], Sequence[str]],
) -> None:
    """Assert that our answers to thousands of random questions equal those of Java.

    Only fingerprints of Java's answers are recorded. `make judge` shows an answer that differs.
    """
    live: list[str] = []

    def fingerprints() -> Json:
        live.extend(ask(questions))
        assert len(live) == len(questions)
        prints = [fingerprint(one) for one in live]
        return [" ".join(prints[at : at + 10]) for at in range(0, len(prints), 10)]

    asked: Json = {"questions": len(questions), "fingerprint": fingerprint("\n".join(questions))}
    lines = scenario.answer(asked, fingerprints)
    assert isinstance(lines, list)
    recorded = [one for line in lines for one in str(line).split()]
    assert len(ours) == len(recorded)
    if live:
        wrong = [row for row in zip(questions, ours, live, strict=True) if row[1] != row[2]]
    else:
        rows = zip(questions, ours, map(fingerprint, ours), recorded, strict=True)
        wrong = [(one, mine, "") for one, mine, found, java in rows if found != java]
    shown = "\n".join(f"{one}\n ours: {mine}\n Java: {java}" for one, mine, java in wrong[:5])
    assert not wrong, f"{len(wrong)} of {len(ours)} answers differ from Java's:\n{shown}"


def fingerprint(text: str) -> str:
    """Eight digits of a hash of a text."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]

"""A sample of a long list: repeatable, evenly spread, and complete in a soak."""

import subprocess
from pathlib import Path

import pytest

import sampling
from sampling import examples, sample, scaled


@pytest.fixture(autouse=True)
def ordinary_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "SOAK", False)
    monkeypatch.setattr(sampling, "SCALE", 1.0)


def test_seed_repeats_its_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_SEED", "one")
    first = sample(range(1000), 10)
    assert first == sample(range(1000), 10)
    assert len(first) == 10
    monkeypatch.setenv("OTTLA_SEED", "another")
    assert first != sample(range(1000), 10)


def test_sample_has_one_case_of_each_stretch() -> None:
    for count in (1, 4, 10, 25):
        picked = sample(range(100), count)
        assert [case * count // 100 for case in picked] == list(range(count))


def test_every_case_is_in_the_sample_of_some_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[int] = set()
    for number in range(200):
        monkeypatch.setenv("OTTLA_SEED", str(number))
        seen.update(sample(range(23), 3))
    assert seen == set(range(23))


def test_soak_takes_every_case(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "SOAK", True)
    monkeypatch.setattr(sampling, "SCALE", 10.0)
    assert sample(range(100), 3) == list(range(100))
    assert scaled(20) == 200


def test_soak_draws_a_multiple_of_the_usual_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    assert examples(40, usual=100) == 40
    monkeypatch.setattr(sampling, "SOAK", True)
    monkeypatch.setattr(sampling, "SCALE", 10.0)
    assert examples(40, usual=100) == 1000


def test_short_list_is_not_sampled() -> None:
    assert sample("abc", 3) == sample("abc", 10) == ["a", "b", "c"]


def test_seed_defaults_to_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTTLA_SEED", raising=False)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
    ).stdout.strip()
    assert sampling.seed() == (head[:12] or "ottla")
    monkeypatch.setenv("OTTLA_SEED", "17")
    assert sampling.seed() == "17"


def test_seed_exists_outside_a_git_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTTLA_SEED", raising=False)
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    assert sampling.seed() == "ottla"

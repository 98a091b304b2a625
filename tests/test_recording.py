"""Recorded answers: read without Kafka, checked with it, never compared with stale questions."""

import json
from pathlib import Path

import pytest

from judges.recording import (
    REPORT,
    Json,
    Mode,
    NotRecorded,
    Recording,
    RecordingDiffers,
    read_scenarios,
)
from recorded import TESTS, recording_name


def nobody() -> Json:
    raise AssertionError("Kafka was asked")


def record(folder: Path, *answers: tuple[Json, Json], scenario: str = "one") -> None:
    with Recording("r", Mode.RECORD, folder) as recording, recording.scenario(scenario) as asking:
        for asked, answered in answers:
            assert asking.answer(asked, lambda answered=answered: answered) == answered


def read(folder: Path, *questions: Json, scenario: str = "one") -> list[Json]:
    with Recording("r", Mode.READ, folder) as recording, recording.scenario(scenario) as asking:
        assert not recording.asks_kafka
        return [asking.answer(one, nobody) for one in questions]


def check(folder: Path, *answers: tuple[Json, Json]) -> None:
    with Recording("r", Mode.CHECK, folder) as recording, recording.scenario("one") as asking:
        assert recording.asks_kafka
        for asked, answered in answers:
            assert asking.answer(asked, lambda answered=answered: answered) == answered


def test_recorded_answers_are_read_without_kafka(tmp_path: Path) -> None:
    record(tmp_path, ("a", {"x": 1}), ("b", ["y"]))
    assert read(tmp_path, "a", "b") == [{"x": 1}, ["y"]]


@pytest.mark.parametrize("scenario", ["one", "other"])
def test_question_without_an_answer_fails(tmp_path: Path, scenario: str) -> None:
    record(tmp_path, ("a", 1))
    with pytest.raises(NotRecorded, match="not recorded, record it again with `make judge"):
        read(tmp_path, "a", "b", scenario=scenario)


def test_changed_question_fails(tmp_path: Path) -> None:
    record(tmp_path, ({"topic": "a", "n": 1}, 1))
    changed = r"question 1 has changed(.|\n)*\"n\": 1(.|\n)*\"n\": 2"
    with pytest.raises(NotRecorded, match=changed):
        read(tmp_path, {"topic": "a", "n": 2})


def test_recorded_question_that_is_not_asked_fails(tmp_path: Path) -> None:
    record(tmp_path, ("a", 1), ("b", 2))
    with pytest.raises(NotRecorded, match=r"1 recorded questions were not asked(.|\n)*\"b\""):
        read(tmp_path, "a")


def test_check_asks_kafka_and_fails_on_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(tmp_path, ("a", {"x": 1, "y": 2}), ("b", 2), ("c", 3))
    text = (tmp_path / "r.json").read_text()
    monkeypatch.setenv(REPORT, str(tmp_path / "report"))
    check(tmp_path, ("a", {"x": 1, "y": 2}), ("b", 2), ("c", 3))
    with pytest.raises(RecordingDiffers, match=r'"y": 2(.|\n)*"y": 7'):
        check(tmp_path, ("a", {"x": 1, "y": 7}), ("b", 2))
    assert (tmp_path / "r.json").read_text() == text
    lines = [json.loads(line) for line in (tmp_path / "report").read_text().splitlines()]
    assert [(one["answers"], len(one["differences"])) for one in lines] == [(3, 0), (2, 2)]
    assert lines[-1]["differences"] == [
        {"question": 1, "recorded": {"answered": {"y": 2}}, "kafka": {"answered": {"y": 7}}},
        {"question": 3, "recorded": {"asked": "c", "answered": 3}, "kafka": None},
    ]


def test_recording_again_keeps_scenarios_that_are_not_asked(tmp_path: Path) -> None:
    record(tmp_path, ("a", 1), scenario="second")
    record(tmp_path, ("a", 1), scenario="first")
    once = (tmp_path / "r.json").read_text()
    record(tmp_path, ("a", 1), scenario="second")
    assert (tmp_path / "r.json").read_text() == once
    assert [*read_scenarios(tmp_path / "r.json")] == ["first", "second"]


def test_two_scenarios_of_one_name_fail(tmp_path: Path) -> None:
    record(tmp_path, ("a", 1))
    with Recording("r", Mode.READ, tmp_path) as recording:
        with recording.scenario("one") as asking:
            asking.answer("a", nobody)
        with pytest.raises(AssertionError, match="two scenarios"), recording.scenario("one"):
            pass


def test_recording_is_named_after_the_test_module() -> None:
    assert recording_name(TESTS / "cli/kafka/test_kafka_groups.py") == "cli/kafka/groups"

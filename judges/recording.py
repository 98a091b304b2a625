"""Recorded answers of Apache Kafka 4.3.1, for tests that run without it.

A recording is one JSON file below `tests/compat/recorded/`. It holds scenarios, and a scenario is
a list of questions in the order in which a test asks them, each with Kafka's answer:

    with Recording("cli/topics") as recording, recording.scenario("created twice") as scenario:
        answer = scenario.answer("kafka-topics --create --topic t", ask_kafka)

OTTLA_JUDGE chooses where an answer comes from:

    (unset)  the recording; Kafka is not asked
    check    Kafka; every answer that differs from the recording is reported
    record   Kafka; the answers replace the recording

The question is stored with its answer. A test whose question was not recorded, or is another one
than was recorded, fails and says how to record it. So does a test that asks fewer questions.
"""

import json
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeAlias

Json: TypeAlias = "str | int | float | bool | Sequence[Json] | Mapping[str, Json] | None"

RECORDED: Final = Path(__file__).parents[1] / "tests" / "compat" / "recorded"
MODE: Final = "OTTLA_JUDGE"
REPORT: Final = "OTTLA_JUDGE_REPORT"
"""Names the file to which every checked scenario appends a line of JSON."""

_ASKED: Final = "asked"
_ANSWERED: Final = "answered"
_WIDTH: Final = 100
_AGAIN: Final = "record it again with `make judge ARGS=--record`"


class Mode(Enum):
    """Where answers come from."""

    READ = ""
    CHECK = "check"
    RECORD = "record"


class NotRecorded(AssertionError):
    """The recording does not hold the answer to a question; the text says what to do."""


class RecordingDiffers(AssertionError):
    """Kafka's answer differs from the recording."""


def judge_mode() -> Mode:
    """The mode that OTTLA_JUDGE names."""
    return Mode(os.environ.get(MODE, ""))


class Scenario:
    """The questions of one scenario, in their order."""

    def __init__(self, name: str, entries: list[Json] | None, mode: Mode) -> None:
        self.name = name
        self.mode = mode
        self.asked: list[Json] = []
        self.differences: list[Json] = []
        self._entries = entries

    def answer(self, asked: Json, ask: Callable[[], Json]) -> Json:
        """Kafka's answer to the next question; `ask` is called only when Kafka is asked."""
        number = len(self.asked)
        asked = _plain(asked)
        recorded = self._entry(number)
        if self.mode is Mode.READ:
            if recorded is None:
                raise NotRecorded(
                    f"{self.name}: question {number + 1} is not recorded, {_AGAIN}:\n"
                    f"{_shown(asked)}"
                )
            if recorded[_ASKED] != asked:
                raise NotRecorded(
                    f"{self.name}: question {number + 1} has changed, {_AGAIN}.\n"
                    f"recorded: {_shown(recorded[_ASKED])}\nnow:      {_shown(asked)}"
                )
            self.asked.append(recorded)
            return recorded[_ANSWERED]
        entry: dict[str, Json] = {_ASKED: asked, _ANSWERED: _plain(ask())}
        self.asked.append(entry)
        if self.mode is Mode.CHECK and entry != recorded:
            self.differences.append(_difference(number, recorded, entry))
        return entry[_ANSWERED]

    def check_complete(self) -> None:
        """Fail if the recording holds more questions than were asked."""
        left = len(self._entries or ()) - len(self.asked)
        if left <= 0 or self.mode is Mode.RECORD:
            return
        first = self._entry(len(self.asked))
        assert first is not None
        if self.mode is Mode.CHECK:
            self.differences.append(_difference(len(self.asked), first, None))
            return
        raise NotRecorded(
            f"{self.name}: {left} recorded questions were not asked, {_AGAIN}. "
            f"The first:\n{_shown(first[_ASKED])}"
        )

    def _entry(self, number: int) -> dict[str, Json] | None:
        if self._entries is None or number >= len(self._entries):
            return None
        entry = self._entries[number]
        assert isinstance(entry, dict)
        return entry


class Recording:
    """The scenarios of one file. The end of its `with` raises if an answer of Kafka differs."""

    def __init__(self, name: str, mode: Mode | None = None, folder: Path = RECORDED) -> None:
        self.name = name
        self.mode = judge_mode() if mode is None else mode
        self.path = folder / f"{name}.json"
        self._recorded = read_scenarios(self.path)
        self._done: dict[str, Scenario] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.mode is Mode.RECORD:
            new: dict[str, Json] = {name: one.asked for name, one in self._done.items()}
            every = {name: one for name, one in {**self._recorded, **new}.items() if one}
            write_scenarios(self.path, every)
        differing = [one for one in self._done.values() if one.differences]
        if error is None and differing:
            shown = "\n".join(f"{one.name}: {_shown(one.differences)}" for one in differing)
            raise RecordingDiffers(f"{self.name}: Kafka does not answer as recorded\n{shown}")

    @property
    def asks_kafka(self) -> bool:
        """Whether answers come from Kafka, so that it has to run."""
        return self.mode is not Mode.READ

    @contextmanager
    def scenario(self, name: str) -> Generator[Scenario]:
        """One scenario, by a name that no other scenario of this recording has."""
        assert name not in self._done, f"{self.name}: there are two scenarios {name!r}"
        entries = self._recorded.get(name)
        assert entries is None or isinstance(entries, list)
        scenario = Scenario(name, entries, self.mode)
        yield scenario
        scenario.check_complete()
        self._done[name] = scenario
        self._report(scenario)

    def _report(self, scenario: Scenario) -> None:
        path = os.environ.get(REPORT)
        if path and self.asks_kafka:
            line = {
                "recording": self.name,
                "scenario": scenario.name,
                "answers": len(scenario.asked),
                "differences": scenario.differences,
            }
            with Path(path).open("a") as report:
                report.write(json.dumps(line) + "\n")


def read_scenarios(path: Path) -> dict[str, Json]:
    """The scenarios of a file, by name; none when there is no such file."""
    if not path.exists():
        return {}
    return json.loads(path.read_text())


def write_scenarios(path: Path, scenarios: Mapping[str, Json]) -> None:
    """Write a file whose text depends only on the scenarios."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_shown(dict(sorted(scenarios.items()))) + "\n")


def _difference(number: int, recorded: Json, kafkas: Json) -> Json:
    left, right = _unequal(recorded, kafkas)
    return {"question": number + 1, "recorded": left, "kafka": right}


def _unequal(left: Json, right: Json) -> tuple[Json, Json]:
    """Two values without the parts of dictionaries that are equal."""
    if not isinstance(left, dict) or not isinstance(right, dict):
        return left, right
    names = [name for name in {**left, **right} if left.get(name) != right.get(name)]
    pairs = {name: _unequal(left.get(name), right.get(name)) for name in names}
    return {name: one for name, (one, _) in pairs.items()}, {
        name: other for name, (_, other) in pairs.items()
    }


def _plain(value: Json) -> Json:
    """The value after a round trip through JSON."""
    return json.loads(json.dumps(value))


def _shown(value: Json, indent: int = 0) -> str:
    """JSON with one line for each row, and for each element that fits into one."""
    text = json.dumps(value, ensure_ascii=False)
    if indent + len(text) <= _WIDTH or not isinstance(value, (dict, list)) or not value:
        return text
    if isinstance(value, dict) and not any(isinstance(one, (dict, list)) for one in value.values()):
        return text
    inner = " " * (indent + 1)
    if isinstance(value, dict):
        lines = [
            f"{inner}{json.dumps(key, ensure_ascii=False)}: {_shown(one, indent + 1)}"
            for key, one in value.items()
        ]
        return "{\n" + ",\n".join(lines) + "\n" + " " * indent + "}"
    lines = [inner + _shown(one, indent + 1) for one in value]
    return "[\n" + ",\n".join(lines) + "\n" + " " * indent + "]"

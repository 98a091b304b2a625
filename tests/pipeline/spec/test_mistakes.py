"""A table of wrong declarations: each is a valid one with one change, and gives one message.

The table is mistakes.txt: a change `old -> new`, or a line to add, and below it the message. To add
a case, add its change and run the test with OTTLA_GOLDEN=write, which writes the messages.
"""

import os
from pathlib import Path

import pytest

from cases import Cases
from ottla.pipeline import InvalidPipeline
from ottla.pipeline.spec.problems import Severity
from pipeline.spec.declarations import SENSORS, loaded

TABLE = Path(__file__).with_name("mistakes.txt")
HEADER = "# Changes of the declaration SENSORS, each with its message; see test_mistakes.py."


def changes() -> list[tuple[str, str]]:
    """The cases of the table: a change, and the changed declaration."""
    found: list[tuple[str, str]] = []
    for line in TABLE.read_text().splitlines():
        if line.startswith((" ", "#")):
            continue
        old, arrow, new = (part.replace("\\n", "\n") for part in line.partition(" -> "))
        if arrow:
            assert SENSORS.count(old) == 1, f"{old!r} is there {SENSORS.count(old)} times"
        text = SENSORS.replace(old, new) if arrow else f"{SENSORS}{old}\n"
        found.append((line, text))
    return found


def test_declaration_without_mistakes_loads() -> None:
    assert loaded(SENSORS).warnings == ()


def test_each_mistake_gives_its_message() -> None:
    lines = [HEADER]
    cases = Cases()
    for change, text in changes():
        with cases.case(change):
            with pytest.raises(InvalidPipeline) as error:
                loaded(text, SECRET="hunter2", EMPTY="")
            problems = error.value.problems
            lines += [change, *(f"    {line}" for line in str(error.value).splitlines())]
            errors = [one for one in problems if one.severity is Severity.ERROR]
            assert "hunter2" not in str(error.value)
            assert len(errors) == 1
            assert errors[0].position is not None
    text = "\n".join([*lines, ""])
    if os.environ.get("OTTLA_GOLDEN") == "write":
        TABLE.write_text(text)
    cases.check()
    assert text == TABLE.read_text()

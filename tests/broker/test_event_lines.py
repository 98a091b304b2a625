"""The lines of the log: one per event, parseable, and impossible for peers to forge."""

import logging
import sys
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.event_log import read_json, read_text
from cases import each_case
from ottla.broker.effective_config import described_changes
from ottla.broker.event_lines import EventLines, LineFormat
from ottla.settings.broker import BROKER
from ottla.settings.topic import TOPIC

Read = Callable[[str], dict[str, str]]
FORMS = [(LineFormat.TEXT, read_text), (LineFormat.JSON, read_json)]


def record(event: str, *args: object, level: int = logging.INFO) -> logging.LogRecord:
    made = logging.getLogger("ottla.broker.topics").makeRecord(
        "ottla.broker.topics", level, "file.py", 1, event, args, None
    )
    made.created = 1_700_000_000.25
    return made


def test_text_line_has_all_fields() -> None:
    line = EventLines(LineFormat.TEXT).format(
        record("topic created", {"topic": "orders", "partitions": 3, "note": "a b", "new": True})
    )
    assert line == (
        "time=2023-11-14T22:13:20.250Z level=info source=broker.topics "
        'event="topic created" topic=orders partitions=3 note="a b" new=true'
    )


def test_json_line_keeps_numbers() -> None:
    line = EventLines(LineFormat.JSON).format(record("x", {"partitions": 3, "clean": False}))
    assert line.endswith('"event": "x", "partitions": 3, "clean": false}')


@pytest.mark.parametrize(("form", "read"), FORMS)
@given(value=st.text(st.characters(codec="utf-8")))
def test_any_value_round_trips_on_one_line(form: LineFormat, read: Read, value: str) -> None:
    line = EventLines(form).format(record("group stabilized", {"group": value, "members": 1}))
    assert read(line)["group"] == value
    assert read(line)["members"] == "1"
    assert line.isascii()
    assert line.isprintable()


@each_case(("form", "read"), FORMS)
@each_case(
    "value",
    [
        "g\ntime=2023-11-14T22:13:20.250Z level=error event=forged",
        'g" level=error event="forged',
        "g\x1b[31mred",
        "g\u202egnirts",
        "g\x7f\x85\r\0",
        "g=1",
        "",
    ],
)
def test_peer_cannot_forge_a_line(form: LineFormat, read: Read, value: str) -> None:
    line = EventLines(form).format(record("connection closed", {"peer": value}))
    facts = read(line)
    assert (facts["event"], facts["level"], facts["peer"]) == ("connection closed", "info", value)
    assert len(line.splitlines()) == 1
    assert line.isascii()
    assert line.isprintable()


@pytest.mark.parametrize(("form", "read"), FORMS)
def test_exception_is_one_line_with_its_traceback(form: LineFormat, read: Read) -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        made = record("request failed", {"api": "Fetch"}, level=logging.ERROR)
        made.exc_info = sys.exc_info()
    line = EventLines(form).format(made)
    facts = read(line)
    assert "\n" not in line
    assert facts["error"] == "ValueError: first\nsecond"
    assert facts["trace"].startswith("Traceback (most recent call last):\n")
    assert facts["api"] == "Fetch"


def test_messages_of_other_libraries_are_formatted() -> None:
    line = EventLines(LineFormat.TEXT).format(record("%s of %d", "a", 2, level=logging.WARNING))
    assert read_text(line)["event"] == "a of 2"
    assert read_text(line)["level"] == "warning"


def test_field_does_not_replace_a_standard_field() -> None:
    line = EventLines(LineFormat.TEXT).format(record("x", {"level": "fatal", "time": "never"}))
    assert read_text(line)["level"] == "info"


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({}, {"retention.ms": "1"}, "retention.ms=1"),
        ({"retention.ms": "1"}, {"retention.ms": "1"}, ""),
        ({"retention.ms": "1", "segment.ms": "2"}, {"retention.ms": "3"},
         "retention.ms=3, segment.ms unset"),
    ],
)  # fmt: skip
def test_config_changes_are_described(
    before: Mapping[str, str], after: Mapping[str, str], told: str
) -> None:
    assert described_changes(before, after, TOPIC) == told


SECRETS = [name for name, row in BROKER.settings.items() if row.sensitive]


@each_case("name", [*SECRETS, "listener.name.internal.ssl.keystore.password", "nobody.knows.this"])
def test_secret_and_unknown_settings_are_hidden(name: str) -> None:
    assert SECRETS
    assert described_changes({}, {name: "hunter2"}, BROKER) == f"{name}=(hidden)"
    assert described_changes({name: "hunter1"}, {name: "hunter2"}, BROKER) == f"{name}=(hidden)"
    assert described_changes({name: "hunter1"}, {}, BROKER) == f"{name} unset"

"""Output of results in each format."""

import json

import pytest
import yaml

from cases import each_case
from ottla.cli.output import Output, wanted
from ottla.cli.result import Failure, Result, Table, complain, facts, show, show_failure

ANSWER = Result(
    {"topics": [{"name": "a\x1b[31m", "size": 1}, {"name": "bé", "size": None}], "ok": True},
    ["Two topics:", Table(("NAME", "SIZE"), [("a\x1b[31m", 1), ("bé", None)])],
)


def test_table_is_aligned_and_escaped() -> None:
    table = Table(("NAME", "SIZE", "IN"), [("a\x1b[31m", 1, True), ("b", 1000, None)])
    assert [*table.lines()] == [
        "NAME       SIZE  IN",
        "a\\x1b[31m     1  yes",
        "b          1000  -",
    ]
    assert [*Table(("A", "B"), []).lines()] == ["A  B"]


def test_facts_are_in_two_columns() -> None:
    assert facts({"a_b": 1, "c": None, "d": "x\n"}) == ["a b  1", "c    -", "d    x\\n"]


def test_all_formats_have_the_same_content(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(ANSWER, Output.TABLE) == 0
    assert capsys.readouterr().out.splitlines()[0] == "Two topics:"
    assert show(ANSWER, Output.JSON) == 0
    told = capsys.readouterr().out
    assert told.count("\n") == 1
    assert json.loads(told) == ANSWER.value
    assert show(ANSWER, Output.YAML) == 0
    assert yaml.safe_load(capsys.readouterr().out) == ANSWER.value


def test_partial_failure_prints_result_and_errors(capsys: pytest.CaptureFixture[str]) -> None:
    answer = Result({"deleted": ["a"]}, ["Deleted a."], [Failure("b is not there", "UNKNOWN", "b")])
    assert show(answer, Output.TABLE) == 1
    told = capsys.readouterr()
    assert (told.out, told.err) == ("Deleted a.\n", "ottla: b is not there\n")
    assert show(answer, Output.JSON) == 1
    told = capsys.readouterr()
    assert json.loads(told.out) == {
        "deleted": ["a"],
        "errors": [{"about": "b", "code": "UNKNOWN", "message": "b is not there"}],
    }
    assert told.err == ""


def test_failure_is_one_line_or_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    failure = Failure("a\nb\x1b", "X")
    show_failure(failure, Output.TABLE)
    assert capsys.readouterr().err == "ottla: a; b\\x1b\n"
    show_failure(failure, Output.JSON)
    told = capsys.readouterr()
    assert json.loads(told.out) == {"error": {"code": "X", "message": "a\nb\x1b"}}


@each_case(
    ("message", "line"),
    [
        ("", "ottla: \n"),
        ("two  words\n", "ottla: two words\n"),
        ("one: expected 1\n\n  two: expected 2", "ottla: one: expected 1; two: expected 2\n"),
        ("These are wrong:\nA sentence.\nanother", "ottla: These are wrong: A sentence. another\n"),
    ],
)
def test_lines_of_a_message_are_separated(
    message: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    complain(message)
    assert capsys.readouterr().err == line


@each_case(
    ("arguments", "output"),
    [
        ([], Output.TABLE),
        (["-o"], Output.TABLE),
        (["-o", "json"], Output.JSON),
        (["-ojson"], Output.JSON),
        (["--output=yaml", "x"], Output.YAML),
        (["--output", "xml"], Output.TABLE),
        (["json", "-b", "o"], Output.TABLE),
    ],
)
def test_format_is_known_before_arguments_are_parsed(arguments: list[str], output: Output) -> None:
    assert wanted(arguments) is output

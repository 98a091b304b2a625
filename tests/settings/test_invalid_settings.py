import pickle

import pytest

from cases import each_case
from ottla.settings import InvalidSettings, Origin, Problem
from ottla.settings.invalid_settings import invalid, quoted

FILE = Origin("server.properties", 12)


def test_problem_is_one_line_with_origin() -> None:
    problem = invalid("num.partitions", quoted("zero"), "int, [1,...]", FILE)
    assert str(problem) == (
        'server.properties:12: num.partitions: invalid value "zero": expected int, [1,...]'
    )
    assert str(problem._replace(origin=Origin("--override"))).startswith("--override: num")
    assert str(problem._replace(origin=None)).startswith("num.partitions: ")
    assert str(Problem("", "malformed", FILE)) == "server.properties:12: malformed"


def test_note_follows_the_invalid_value() -> None:
    problem = invalid("a", '"x"', "int", note="not a number")
    assert str(problem) == 'a: invalid value "x" (not a number): expected int'


@each_case(
    ("text", "shown"),
    [
        ("é", '"é"'),
        ("a\nb", '"a\\nb"'),
        ("\x1b[31m", '"\\x1b[31m"'),
        ("\u2028", '"\\u2028"'),
        ("x" * 100, f'"{"x" * 100}"'),
        ("x" * 101, f'"{"x" * 99}…"'),
    ],
)
def test_quoting(text: str, shown: str) -> None:
    assert quoted(text) == shown


def test_invalid_settings_prints_all_problems() -> None:
    error = InvalidSettings(iter([Problem("a", "x"), Problem("b", "y", FILE)]))
    assert str(error) == "a: x\nserver.properties:12: b: y"
    assert [each.name for each in error.problems] == ["a", "b"]
    copy = pickle.loads(pickle.dumps(error))
    assert copy.problems == error.problems


def test_invalid_settings_requires_a_problem() -> None:
    with pytest.raises(AssertionError):
        InvalidSettings([])

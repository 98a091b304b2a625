"""Translation of Java's regular expressions to Python's."""

import pytest

from cases import each_case
from ottla.cli.kafka.include_list import included
from ottla.cli.kafka.java_patterns import BadPattern, compiled

NAMES = ["a", "b1", "B", "orders", "Orders-2", "x.y", "x_y", "[odd]", "a+b"]


@each_case(
    ("pattern", "names"),
    [
        (r"\p{Lower}", ["a"]),
        (r"\p{Lower}+", ["a", "orders"]),
        (r"\pL+", ["a", "B", "orders"]),
        (r"\P{Lower}", ["B"]),
        (r"[\p{Lower}\p{Digit}]+", ["a", "b1", "orders"]),
        (r"[^\p{Upper}]\p{Alnum}", ["b1"]),
        (r"(?<first>x)[._]y", ["x.y", "x_y"]),
        (r"x(?<=x).y", ["x.y", "x_y"]),
        (r"(?<one>o).*(?!\k<one>)rs", ["orders"]),
        (r"\Qa+b\E", ["a+b"]),
        (r"\Q[odd]", ["[odd]"]),
        (r"[]\[a-z]+", ["a", "orders", "[odd]"]),
        (r"\[odd\]", ["[odd]"]),
        (r"a\z", ["a"]),
        (r"\w\d", ["b1"]),
        ("a,b1", ["a", "b1"]),
        ("'a'", ["a"]),
        ("x.y", ["x.y", "x_y"]),
        ("", []),
    ],
)
def test_expressions_match_like_in_java(pattern: str, names: list[str]) -> None:
    assert included(pattern, NAMES) == names


@each_case("pattern", ["[", "*", "(", "p(?<x>", "a{2,1}", "\\", r"\p{Nothing}x"])
def test_invalid_expression_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern, match=r"is an invalid regex|is not supported"):
        compiled(pattern)


@each_case("pattern", ["[a-z&&[^b]]", "[a[b]]", r"[\P{Lower}]", r"\G", r"\X"])
def test_expression_with_another_meaning_is_refused(pattern: str) -> None:
    with pytest.raises(BadPattern, match="not supported"):
        compiled(pattern)

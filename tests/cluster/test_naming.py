"""The naming policy of topics: templates, placeholders and exempt topics."""

import re
from itertools import product

import pytest

from cases import each_case
from ottla.cluster.naming import check_policy, fits
from ottla.errors import ErrorCode, RequestError


@each_case(
    ("template", "name", "expected"),
    [
        ("{env}.{team}.{name}", "prod.web.clicks", True),
        ("{env}.{team}.{name}", "prod.web-2.clicks_raw", True),
        ("{env}.{team}.{name}", "prod.web", False),
        ("{env}.{team}.{name}", "prod.web.clicks.raw", False),
        ("{env}.{team}.{name}", "prod..clicks", False),
        ("{env}.{team}.{name}", "prod.web.", False),
        ("{env:dev|prod}.{name}", "dev.a", True),
        ("{env:dev|prod}.{name}", "prod.a", True),
        ("{env:dev|prod}.{name}", "test.a", False),
        ("{env:dev|prod}.{name}", "devel.a", False),
        ("{env:dev|prod}.{name}", "Dev.a", False),
        ("{env:a|a.b}.{name}", "a.b.c", True),
        ("test-{name}", "test-a-b", True),
        ("test-{name}", "test-", False),
        ("test-{name}", "a-test-b", False),
        ("{a}-{b}-done", "x-y-z-done", True),
        ("{a}-{b}-done", "x-done", False),
        ("only.this", "only.this", True),
        ("only.this", "only_this", False),
    ],
)
def test_name_matches_template(template: str, name: str, expected: bool) -> None:
    assert fits(name, template) is expected


def test_matching_agrees_with_a_regular_expression() -> None:
    templates = {
        "{a}-{b}": "[\\w-]+-[\\w-]+",
        "{a:x|x-|.x}{b}": "(x|x-|\\.x)[\\w-]+",
        "{a}x{b:|x}".replace(":|", ":x|"): "[\\w-]+x(x|x)",
        "-{a:x-|-x}-": "-(x-|-x)-",
    }
    for template, expression in templates.items():
        for size in range(6):
            for name in map("".join, product("x-.", repeat=size)):
                assert fits(name, template) is bool(re.fullmatch(expression, name)), name


def test_matching_takes_linear_time() -> None:
    """A backtracking regular expression would take longer than all tests."""
    assert not fits("-" * 249, "-".join(["{a}"] * 40) + ".")


def test_policy_violation_lists_all_templates() -> None:
    templates = ("{env:dev|prod}.{name}", "test-{name}")
    check_policy("prod.a", templates)
    check_policy("test-a", templates)
    with pytest.raises(RequestError) as refused:
        check_policy("a", templates)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert "{env:dev|prod}.{name}, test-{name}" in (refused.value.message or "")


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
def test_internal_topics_are_exempt(name: str) -> None:
    check_policy(name, ("{a}.{b}",))


def test_without_templates_every_name_is_allowed() -> None:
    check_policy("whatever", ())

"""sasl.jaas.config is parsed like in Java."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each_case
from ottla.settings.config_types import BadValue
from ottla.settings.jaas import read_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@each_case(
    ("text", "options"),
    [
        (f'{PLAIN} required username="u" password="p";', {"username": "u", "password": "p"}),
        (f"{PLAIN} REQUIRED username=u password='p q';", {"username": "u", "password": "p q"}),
        (f"{PLAIN} required;", {}),
        (
            f'{PLAIN} required // who\n  username="a=b;c" /* and\nhow */ password = "\\"\\\\" ;\n',
            {"username": "a=b;c", "password": '"\\'},
        ),
        (f'{PLAIN} required password="\\101\\t\\q//";', {"password": "A\tq//"}),
        (f'{PLAIN} required password="";', {"password": ""}),
    ],
)
def test_options_are_read(text: str, options: dict[str, str]) -> None:
    assert read_jaas(text) == options


@each_case(
    ("text", "what"),
    [
        ("", "begin"),
        ("hunter2", "begin"),
        (f"{PLAIN} username=hunter2;", "begin"),
        (f"{PLAIN} required password=hunter2", "`;`"),
        (f"{PLAIN} required password;", "name=value"),
        (f"{PLAIN} required password=;", "name=value"),
        (f"{PLAIN} required =hunter2;", "name=value"),
        (f"{PLAIN} required password==hunter2;", "name=value"),
        (f'{PLAIN} required password="hunter2;', "quote"),
        (f"{PLAIN} required password=hunter2; {PLAIN} required;", "more than one"),
    ],
)
def test_jaas_errors_contain_no_value(text: str, what: str) -> None:
    with pytest.raises(BadValue, match=what) as told:
        read_jaas(text)
    assert "hunter2" not in str(told.value)


@given(st.text(st.characters(blacklist_characters="\n", blacklist_categories=("Cs",))))
def test_any_password_can_be_quoted(password: str) -> None:
    quoted = password.replace("\\", "\\\\").replace('"', '\\"')
    assert read_jaas(f'M required password="{quoted}";') == {"password": password}

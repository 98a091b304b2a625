"""What is hidden in texts: the values of variables, however they are quoted."""

import json
from urllib.parse import quote

from ottla.pipeline.spec.loading import load_text
from ottla.pipeline.spec.redaction import Redaction
from pipeline.spec.declarations import SENSORS


def test_values_are_hidden_in_every_quotation() -> None:
    password = 'p"ä\\ss\n-second line-'
    hide = Redaction({password: "${PASSWORD}", "p": "${SHORT}"}).hide
    for quoted in (password, repr(password), json.dumps(password), quote(password, safe="")):
        assert hide(f"wrong: {quoted}!").replace('"', "").replace("'", "") == "wrong: ${PASSWORD}!"
    assert hide("a log has -second line- alone") == "a log has ${PASSWORD} alone"
    assert hide("pump") == "pump", "short values stay"


def test_longest_value_is_hidden_first() -> None:
    hide = Redaction({"hunter": "${A}", "hunter2": "${B}"}).hide
    assert hide("hunter2 and hunter") == "${B} and ${A}"


def test_nothing_is_hidden_without_variables() -> None:
    assert not Redaction()
    assert Redaction().hide("text") == "text"


def test_values_of_environment_and_files_are_hidden_and_defaults_are_not() -> None:
    text = SENSORS + 'spark: {spark.some.id: "${ID:-default-id}-${SECRET}-${file:pw}"}\n'
    loaded = load_text(
        text, "p.yaml", environment={"SECRET": "hunter2"}, read_file=lambda name: "of a file\n"
    )
    shown = loaded.redaction.hide(f"{loaded.pipeline.spark['spark.some.id']} is wrong")
    assert shown == "default-id-${SECRET}-${file:pw} is wrong"

"""`kafka-configs`: parsing of configs and formatting of numbers."""

from pathlib import Path

import pytest

from cases import each_case
from ottla.cli.kafka.configs.quotas import java_double
from ottla.cli.kafka.configs.tool import USAGE
from ottla.cli.kafka.configs.values import credential, to_set, to_unset
from ottla.cli.kafka.topics.tool import USAGE as TOPICS
from ottla.cli.kafka.topics.tool import new_topic
from ottla.cli.kafka.wrong_use import Illegal
from ottla.errors import OttlaError
from ottla.settings.invalid_settings import InvalidSettings


@each_case(
    ("text", "found"),
    [
        ("a=1", {"a": "1"}),
        ("a=1,b=2", {"a": "1", "b": "2"}),
        ("a=[x,y],b=2", {"a": "x,y", "b": "2"}),
        ("a=[x=1,y],b = 2", {"a": "x=1,y", "b": "2"}),
        ("a=", {"a": ""}),
        ("a=1,", {"a": "1"}),
        ("a=1,a=2", {"a": "2"}),
    ],
)
def test_add_config_is_parsed_with_brackets(text: str, found: dict[str, str]) -> None:
    assert to_set(USAGE.read(["--add-config", text])) == found


def test_config_file_is_applied_completely_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "settings"
    given = USAGE.read(["--add-config-file", str(path)])
    path.write_text("a=1\na : [2]\nb")
    assert to_set(given) == {"a": "[2]", "b": ""}
    path.write_text("a=1\nsegment.ms=\\u00zz\n")
    with pytest.raises(InvalidSettings, match=f"{path}:2: "):
        to_set(given)


@each_case("text", ["a", "a=1=2", "a=1,,b=2", "a b=1", "a$=1", ""])
def test_invalid_config_is_refused(text: str) -> None:
    with pytest.raises(Illegal):
        to_set(USAGE.read(["--add-config", text]))


def test_delete_config_is_parsed() -> None:
    assert to_unset(USAGE.read(["--delete-config", "a, b", "--delete-config", "c"])) == [
        "a",
        "b",
        "c",
    ]


def test_scram_iterations_have_a_default() -> None:
    assert credential("SCRAM-SHA-256", "password=a,b=c") == (4096, "a,b=c")
    assert credential("SCRAM-SHA-256", "iterations=-1,password=") == (4096, "")
    assert credential("SCRAM-SHA-512", "iterations=9000,password=x") == (9000, "x")


@each_case(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (1024.0, "1024.0"),
        (10.5, "10.5"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (20_000_000.0, "2.0E7"),
        (12345678.9, "1.23456789E7"),
        (0.001, "0.001"),
        (0.00025, "2.5E-4"),
        (-5e300, "-5.0E300"),
    ],
)
def test_doubles_are_formatted_like_java(value: float, text: str) -> None:
    assert java_double(value) == text


def test_replica_assignment_is_parsed_per_partition() -> None:
    given = TOPICS.read(["--topic", "a", "--replica-assignment", "1:2, 2:3"])
    assert new_topic(given).replicas == {0: [1, 2], 1: [2, 3]}


@each_case("broker", ["99999999999999", "-2147483649", "x", ""])
def test_invalid_broker_id_has_javas_message(broker: str) -> None:
    given = TOPICS.read(["--topic", "a", f"--replica-assignment=1:{broker}"])
    with pytest.raises(OttlaError) as told:
        new_topic(given)
    assert str(told.value) == f'For input string: "{broker}"'

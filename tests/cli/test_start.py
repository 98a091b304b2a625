"""Start of a command: checked by its imports and the garbage collector, not by time."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence

import pytest
import typer.main

from cases import each_case
from cli.test_startup_sigint import done_by
from judges.ottla_broker import OttlaBroker, ottla_broker
from ottla.cli.main import app
from ottla.cli.topic.lister import plain

PROGRAM = """
import atexit, sys
sys.argv = {arguments!r}
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
from {module} import {script} as script
script()
"""
COLLECTOR = """
import asyncio, gc
from ottla.cli import gc_freeze
from ottla.cli.event_loop import run_asking

usual = gc.get_threshold()
gc_freeze.hold()
assert gc.isenabled() and gc.get_threshold()[0] == gc_freeze.HELD

async def asked():
    assert gc.get_threshold()[0] == gc_freeze.HELD, "it still imports"
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert gc.get_threshold() == usual, "it waits"
    return gc.get_freeze_count()

frozen = run_asking(asked)
assert frozen > 0
gc_freeze.release()
assert gc.get_freeze_count() <= frozen, "what came later is searched"
"""

# Modules that are slow to import, or that only some commands need.
TERMINAL = ("typer", "rich", "click", "shellingham")
FORMS = ("yaml", "tomllib", "msgspec", "difflib")
ARRAYS = ("numpy", "pyarrow", "pandas", "pyspark")
BROKER = ("ottla.broker", "ottla.log", "ottla.records", "ottla.controller", "ottla.groups")
CLIENTS = ("ottla.client.producer", "ottla.client.consumer.consumer")
RECORDS = ("ottla.client.producer", "ottla.client.consumer", "uvloop")
OTHER_CALLS = ("ottla.client.admin.topics", "ottla.client.admin.groups", "ottla.cli.topic.command")
LISTING = (*TERMINAL, *FORMS, *ARRAYS, *BROKER, *RECORDS, *OTHER_CALLS)
CLIENT = ("ottla.client", "ottla.settings", "ottla.protocol", "ottla.transport", "ottla.errors")
VERSION = (*LISTING, *CLIENT, "asyncio", "ssl", "socket", "logging", "inspect", "dataclasses")


def started(module: str, script: str, *arguments: str) -> tuple[str, set[str]]:
    """Return the output of a command, and its imported modules."""
    done = done_by(PROGRAM.format(module=module, script=script, arguments=[*arguments]))
    assert done.returncode == 0, done.stderr
    return done.stdout, {*done.stderr.split()}


def imported(found: set[str], unwanted: Sequence[str]) -> list[str]:
    """Return the modules that are unwanted or inside an unwanted package."""
    return sorted(
        one for one in found if any(one == name or one.startswith(f"{name}.") for name in unwanted)
    )


@pytest.fixture(scope="module")
def broker() -> Iterator[OttlaBroker]:
    with ottla_broker({}) as found:
        started("ottla.cli.entry", "run", "ottla", "topic", "create", "a", "b", "-b",
                found.bootstrap)  # fmt: skip
        yield found


def test_version_imports_next_to_nothing() -> None:
    told, found = started("ottla.cli.entry", "run", "ottla", "version")
    assert told.startswith("ottla")
    assert "ottla.cli.version" in found
    assert imported(found, VERSION) == []


def test_topic_list_imports_only_its_client(broker: OttlaBroker) -> None:
    words = ("ottla", "topic", "list", "-b", broker.bootstrap)
    told, found = started("ottla.cli.entry", "run", *words)
    assert [line.split()[0] for line in told.splitlines()] == ["TOPIC", "a", "b"]
    assert "ottla.client.admin.topic_list" in found
    assert imported(found, LISTING) == []


def test_kafka_topics_list_imports_only_its_client(broker: OttlaBroker) -> None:
    words = ("kafka-topics", "--list", "--bootstrap-server", broker.bootstrap)
    told, found = started("ottla.cli.kafka.scripts", "topics", *words)
    assert told.split() == ["a", "b"]
    assert "ottla.client.admin.topic_list" in found
    assert imported(found, LISTING) == []


def test_other_commands_do_not_import_rich(broker: OttlaBroker) -> None:
    _, found = started("ottla.cli.entry", "run", "ottla", "group", "list", "-b", broker.bootstrap)
    assert "typer" in found
    assert imported(found, ("rich", "yaml", "tomllib", *ARRAYS, "ottla.log", *CLIENTS)) == []


def test_fast_path_prints_what_the_command_line_prints(broker: OttlaBroker) -> None:
    address = broker.bootstrap
    for more in ((), ("-o", "json"), ("-o", "yaml"), ("--internal",), ("-X", "client.id=me")):
        words = ("ottla", "topic", "list", *more)
        short, found = started("ottla.cli.entry", "run", *words, "-b", address)
        assert "typer" not in found
        long, found = started("ottla.cli.entry", "run", *words, f"--bootstrap-server={address}")
        assert "typer" in found
        assert short == long
    told, _ = started("ottla.cli.entry", "run", "ottla", "topic", "list", "-o", "json",
                      "-b", address)  # fmt: skip
    assert [one["name"] for one in json.loads(told)["topics"]] == ["a", "b"]


@each_case(
    "words",
    [
        "--help",
        "-b",
        "-b --internal",
        "-b x:1 -b y:1",
        "-o xml",
        "-o json -o table",
        "-ojson",
        "--output=json",
        "--no-such-flag",
        "a",
        "-b x:1 a",
        "-X a=1 -X",
        "--",
    ],
)
def test_fast_path_leaves_wrong_usage_to_the_command_line(words: str) -> None:
    assert plain(words.split()) is None


def test_fast_path_accepts_plain_arguments() -> None:
    for words in ("", "-b x:1", "--internal -o json --profile p", "-X a=1 -X b=2 --output yaml"):
        assert plain(words.split()) is not None


def test_only_the_requested_verb_of_a_noun_is_added() -> None:
    def verbs(*arguments: str) -> set[str]:
        group = getattr(typer.main.get_command(app(arguments)), "commands")["topic"]  # noqa: B009
        return {*group.commands}

    every = verbs()
    assert {"list", "create", "delete"} < every
    assert verbs("topic", "list", "-o", "json") == {"list"}
    for words in (("topic",), ("topic", "--help", "list"), ("topic", "lis"), ("--help", "topic")):
        assert verbs(*words) == every


def test_garbage_collector_is_relaxed_during_the_start() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COLLECTOR], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

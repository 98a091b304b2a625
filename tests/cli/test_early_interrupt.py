"""Ctrl-C before a command has begun: the process sends it to itself when a module is imported."""

import json
import subprocess
import sys

import pytest

from cli.console import PATIENCE_S, surroundings

PROGRAM = """
import os, signal, sys
from {module} import {script} as script

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {when!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv = {arguments!r}
script()
raise SystemExit("it was not interrupted")
"""
IGNORING = """
import signal
from ottla.cli.early_interrupt import EarlyInterrupt, begin

signal.signal(signal.SIGINT, signal.SIG_IGN)
EarlyInterrupt().heed()
begin()
assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
"""
AT_ONCE = ("ottla.cli.main", "typer", "ottla.cli.session", "ottla.cli.topic.command")
LIST = ("ottla", "topic", "list", "-b", "127.0.0.1:1")


def interrupted(
    module: str, script: str, when: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(module=module, script=script, when=when, arguments=[*arguments])
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=surroundings("/nonexistent"),
        timeout=PATIENCE_S,
    )


@pytest.mark.parametrize("when", AT_ONCE)
def test_a_command_says_so_in_one_line_and_ends_with_130(when: str) -> None:
    done = interrupted("ottla.cli.entry", "run", when, *LIST)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "ottla: interrupted\n")


@pytest.mark.parametrize("when", AT_ONCE)
def test_with_json_and_yaml_it_is_an_object(when: str) -> None:
    done = interrupted("ottla.cli.entry", "run", when, *LIST, "-o", "json")
    assert (done.returncode, done.stderr) == (130, "")
    assert json.loads(done.stdout)["error"]["code"] == "INTERRUPTED"
    done = interrupted("ottla.cli.entry", "run", when, *LIST, "-oyaml")
    assert (done.returncode, done.stderr) == (130, "")
    assert done.stdout == "---\nerror:\n  code: INTERRUPTED\n  message: interrupted\n"


@pytest.mark.parametrize("when", ["ottla.cli.kafka.topics.tool", "ottla.cli.kafka.flags"])
def test_one_of_kafkas_tools_ends_with_130_and_without_a_word(when: str) -> None:
    arguments = ("kafka-topics", "--list", "--bootstrap-server", "127.0.0.1:1")
    done = interrupted("ottla.cli.kafka.scripts", "topics", when, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_where_interrupts_are_ignored_they_stay_so() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IGNORING], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

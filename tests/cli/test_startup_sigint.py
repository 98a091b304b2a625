"""Ctrl-C before a command starts: the process sends it to itself when a module is imported.

One test sends it while the event loop is being created.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence

import pytest

from cli.console import PATIENCE_S, surroundings
from cli.scripts import BIN

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
SCRIPT = """
import os, runpy, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {when!r}:
            os.kill(os.getpid(), signal.SIGINT)

if {ignoring}:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.meta_path.insert(0, Interrupting())
sys.argv = {arguments!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""
IGNORING = """
import signal
from ottla.cli.startup_sigint import StartupSigint, begin

signal.signal(signal.SIGINT, signal.SIG_IGN)
StartupSigint().install()
begin()
assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
"""
LIST = ("ottla", "topic", "list", "-b", "127.0.0.1:1")
DESCRIBE = ("ottla", "topic", "describe", "-b", "127.0.0.1:1")
AT_ONCE = (
    *((one, DESCRIBE) for one in ("ottla.cli.main", "typer", "ottla.cli.topic.command")),
    *((one, LIST) for one in ("ottla.cli.topic.lister", "ottla.cli.session", "asyncio")),
)
MAKING_A_LOOP = """
import asyncio.base_events, os, signal, sys
from {module} import {script} as script

make = asyncio.base_events.BaseEventLoop.__init__

def interrupted(loop):
    make(loop)
    os.kill(os.getpid(), signal.SIGINT)

asyncio.base_events.BaseEventLoop.__init__ = interrupted
sys.argv = {arguments!r}
script()
"""


def interrupted(
    module: str, script: str, when: str, *arguments: str
) -> subprocess.CompletedProcess[str]:
    return done_by(PROGRAM.format(module=module, script=script, when=when, arguments=[*arguments]))


def done_by(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=surroundings("/nonexistent"),
        timeout=PATIENCE_S,
    )


@pytest.mark.parametrize(("when", "words"), AT_ONCE)
def test_interrupted_import_prints_one_line(when: str, words: Sequence[str]) -> None:
    done = interrupted("ottla.cli.entry", "run", when, *words)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "ottla: interrupted\n")


@pytest.mark.parametrize(("when", "words"), AT_ONCE)
def test_interrupted_import_prints_one_object(when: str, words: Sequence[str]) -> None:
    done = interrupted("ottla.cli.entry", "run", when, *words, "-o", "json")
    assert (done.returncode, done.stderr) == (130, "")
    assert json.loads(done.stdout)["error"]["code"] == "INTERRUPTED"
    done = interrupted("ottla.cli.entry", "run", when, *LIST, "-oyaml")
    assert (done.returncode, done.stderr) == (130, "")
    assert done.stdout == "---\nerror:\n  code: INTERRUPTED\n  message: interrupted\n"


@pytest.mark.parametrize("when", ["ottla.cli.kafka.topics.tool", "ottla.cli.kafka.flags"])
def test_interrupted_import_of_kafkas_tool_is_silent(when: str) -> None:
    arguments = ("kafka-topics", "--list", "--bootstrap-server", "127.0.0.1:1")
    done = interrupted("ottla.cli.kafka.scripts", "topics", when, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_interrupt_while_the_loop_is_created_is_clean() -> None:
    for words in (LIST, DESCRIBE):
        program = MAKING_A_LOOP.format(module="ottla.cli.entry", script="run", arguments=[*words])
        done = done_by(program)
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "ottla: interrupted\n")
    tool = ["kafka-topics", "--list", "--bootstrap-server", "127.0.0.1:1"]
    done = done_by(
        MAKING_A_LOOP.format(module="ottla.cli.kafka.scripts", script="topics", arguments=tool)
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ignored_sigint_stays_ignored() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IGNORING], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("when", ["ottla.cli.gc_freeze"])
@pytest.mark.parametrize(("script", "word"), [("ottla", "version"), ("kafka-topics", "--version")])
def test_first_interrupt_ends_the_script_by_the_signal(script: str, word: str, when: str) -> None:
    arguments = [str(BIN / script), word]
    done = done_by(SCRIPT.format(when=when, arguments=arguments, ignoring=False))
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
    done = done_by(SCRIPT.format(when=when, arguments=arguments, ignoring=True))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_importing_a_script_keeps_the_sigint_handler() -> None:
    program = "import signal, ottla.cli.entry, ottla.cli.kafka.scripts; "
    program += "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    assert done_by(program).returncode == 0

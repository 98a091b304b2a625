"""Ctrl-C in the event loop of a command.

Each case has a process of its own: no other test can send a signal to it or leave a handler.
"""

import subprocess
import sys
from textwrap import dedent, indent

import pytest

SCRIPT = """\
import asyncio
import signal

from ottla.cli.event_loop import run_asking

errors, results = [], []
{asked}

try:
    results.append(run_asking(asked, is_fast={is_fast}))
except BaseException as error:
    results.append(type(error).__name__)
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
print(results, errors)
"""

CALLBACK = """\
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.append(context))
    waited = loop.create_future()

    def callback():
        assert not waited.done()
        signal.raise_signal(signal.SIGINT)
        waited.set_result(1)
        results.append(waited.result())

    loop.call_soon(callback)
    await waited
    await loop.create_future()
"""


@pytest.mark.parametrize("is_fast", [False, True])
def test_ctrl_c_in_a_callback_does_not_disturb_it(*, is_fast: bool) -> None:
    assert outcome(CALLBACK, is_fast=is_fast) == "[1, 'KeyboardInterrupt'] []"


def test_a_second_ctrl_c_ends_a_command_that_does_not_return() -> None:
    body = """\
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            signal.raise_signal(signal.SIGINT)
            errors.append("the interrupt is lost")
    """
    assert outcome(body) == "['KeyboardInterrupt'] []"


def test_a_command_that_ends_by_itself_keeps_its_result() -> None:
    assert outcome("signal.raise_signal(signal.SIGINT)\nreturn 7") == "[7] []"


def test_a_cancelled_command_that_nobody_interrupted_is_no_interrupt() -> None:
    assert outcome("raise asyncio.CancelledError") == "['CancelledError'] []"


def outcome(body: str, *, is_fast: bool = False) -> str:
    """Run a command with this body; return its results, and the errors of the loop."""
    asked = "async def asked():\n" + indent(dedent(body), "    ")
    script = SCRIPT.format(asked=asked, is_fast=is_fast)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()

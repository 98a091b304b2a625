"""The portal between threads and the event loop: errors, interrupts and shutdown."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Iterator

import pytest

from ottla.client.sync import portal as portal_module
from ottla.client.sync.portal import Portal
from ottla.transport.channel import Disconnected, TimedOut


@pytest.fixture
def portal() -> Iterator[Portal]:
    opened = Portal("ottla test")
    yield opened
    opened.close()


def threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "ottla test"]


async def fails() -> None:
    await asyncio.sleep(0)
    raise ZeroDivisionError("deep inside")


def test_results_and_errors_reach_the_caller(portal: Portal) -> None:
    async def answered() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    assert portal.run(answered()) == "ottla test"
    assert portal.call(asyncio.get_running_loop) is portal.loop
    with pytest.raises(ZeroDivisionError, match="deep inside") as caught:
        portal.run(fails())
    assert "fails" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


def test_call_is_cancelled_at_its_timeout(portal: Portal) -> None:
    ended: list[bool] = []

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    with pytest.raises(TimedOut, match=r"0\.05 s"):
        portal.run(forever(), 0.05)
    assert ended == [True]


def test_wrong_timeout_is_refused(portal: Portal) -> None:
    async def never() -> None:
        raise AssertionError("the call is not begun")

    with pytest.raises(TypeError, match=r"timeout_s must be a number of seconds, not '3' \(str\)"):
        portal.run(never(), "3")  # pyright: ignore[reportArgumentType]


def test_interrupt_cancels_the_call(portal: Portal) -> None:
    began, ended = threading.Event(), threading.Event()

    async def forever() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    def interrupt() -> None:
        assert began.wait(10)
        os.kill(os.getpid(), signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        portal.run(forever())
    interrupting.join()
    assert ended.wait(10)
    assert portal.call(lambda: 5) == 5


def test_closed_portal_refuses_calls(portal: Portal) -> None:
    portal.close()
    portal.close()
    assert not threads()
    with pytest.raises(Disconnected, match="closed"):
        portal.run(fails())


def test_close_fails_waiting_calls(portal: Portal) -> None:
    began = threading.Event()
    heard: list[BaseException] = []

    async def forever() -> None:
        began.set()
        await asyncio.Event().wait()

    def wait() -> None:
        try:
            portal.run(forever())
        except Disconnected as error:
            heard.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert began.wait(10)
    portal.close()
    waiting.join(10)
    assert len(heard) == 1


def test_blocking_call_in_its_own_thread_is_refused(portal: Portal) -> None:
    def inside() -> None:
        portal.run(fails())

    with pytest.raises(RuntimeError, match="own thread"):
        portal.call(inside)


def test_unreferenced_portal_ends() -> None:
    forgotten = Portal("ottla test")
    gone = weakref.ref(forgotten)
    del forgotten
    gc.collect()
    assert gone() is None
    assert not threads()


def test_close_does_not_wait_for_a_blocked_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portal_module, "CLOSE_S", 0.1)
    stubborn, let_go = Portal("ottla stubborn"), threading.Event()
    stubborn.start(blocked(let_go))
    before_s = time.monotonic()
    stubborn.close()
    assert time.monotonic() - before_s < 5
    let_go.set()


async def blocked(let_go: threading.Event) -> None:
    let_go.wait(20)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_gets_an_error_and_exits(portal: Portal) -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            portal.run(fails())
        except Disconnected as error:
            code = 0 if "after the fork" in str(error) else 2
        finally:
            portal.close()
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert portal.call(lambda: 5) == 5


PROGRAMS = {
    "with_a_portal_that_is_open": "",
    "with_something_that_runs": "portal.start(asyncio.sleep(1000))",
    "with_a_thread_that_waits": (
        "threading.excepthook = lambda _: None  # it hears that the portal was closed\n"
        "threading.Thread(target=lambda: portal.run(asyncio.sleep(1000)), daemon=True).start()"
    ),
    "in_a_forked_child": "os.fork() or (portal.close(), sys.exit(0)); os.wait()",
}


@pytest.mark.parametrize("line", PROGRAMS.values(), ids=PROGRAMS)
def test_program_exits(line: str) -> None:
    program = (
        "import asyncio, os, sys, threading\n"
        "from ottla.client.sync.portal import Portal\n"
        "portal = Portal('p')\n"
        f"{line}\n"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")

"""Ctrl-C in the event loop of a command."""

import asyncio
import signal
from typing import Any

import pytest

from ottla.cli.event_loop import run_asking


@pytest.mark.parametrize("is_fast", [False, True])
def test_ctrl_c_in_a_callback_does_not_disturb_it(*, is_fast: bool) -> None:
    errors: list[dict[str, Any]] = []
    results: list[int] = []

    async def asked() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: errors.append(context))
        waited: asyncio.Future[int] = loop.create_future()

        def callback() -> None:
            assert not waited.done()
            signal.raise_signal(signal.SIGINT)
            waited.set_result(1)
            results.append(waited.result())

        loop.call_soon(callback)
        await waited
        await loop.create_future()

    with pytest.raises(KeyboardInterrupt):
        run_asking(asked, is_fast=is_fast)
    assert (results, errors) == ([1], [])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_ctrl_c_ends_a_command_that_does_not_return() -> None:
    async def asked() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("the interrupt is lost") from None

    async def interrupted() -> None:
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
        await asked()

    with pytest.raises(KeyboardInterrupt):
        run_asking(interrupted)


def test_a_command_that_ends_by_itself_keeps_its_result() -> None:
    async def asked() -> int:
        signal.raise_signal(signal.SIGINT)
        return 7

    assert run_asking(asked) == 7


def test_a_cancelled_command_that_nobody_interrupted_is_no_interrupt() -> None:
    async def asked() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run_asking(asked)

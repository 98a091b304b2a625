"""Child processes, behind an interface: what keeps Python busy for long must not stop the loop.

Invariant: a child ends when its standard input is closed, so none outlives the broker, whatever
that dies of; and when the `async with` that started it is left, it has ended and been waited for.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Final, Protocol

_LINE_BYTES_MAX: Final = 64 * 1024 * 1024
_ERROR_BYTES_KEPT: Final = 16 * 1024


class Child(Protocol):
    """A process that answers in lines."""

    @property
    def pid(self) -> int:
        """Its number."""
        ...

    def lines(self) -> AsyncIterator[bytes]:
        """What it writes to its standard output, until it closes it."""
        ...

    async def ended(self) -> tuple[int, str]:
        """Wait until it is over: its exit code, and the end of its standard error."""
        ...


class Processes(Protocol):
    """Who starts them."""

    def start(self, module: str, line: bytes) -> AbstractAsyncContextManager[Child]:
        """Run a module of Python with a line on its standard input, which stays open."""
        ...


class OsChild:
    """A process of the system."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._errors = asyncio.get_running_loop().create_task(self._read_errors())

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    async def lines(self) -> AsyncIterator[bytes]:
        """What it writes to its standard output, until it closes it."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            yield line

    async def ended(self) -> tuple[int, str]:
        """Wait until it is over."""
        text = await self._errors
        return await self._process.wait(), text

    async def _read_errors(self) -> str:
        """The end of what it writes, read all the time so that it never waits for that."""
        assert self._process.stderr is not None
        kept = b""
        while piece := await self._process.stderr.read(_ERROR_BYTES_KEPT):
            kept = (kept + piece)[-_ERROR_BYTES_KEPT:]
        return kept.decode("utf-8", "replace").strip()

    async def stop(self) -> None:
        """End it if it has not ended, and let go of everything."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._errors


class OsProcesses:
    """Starts them with the interpreter of this process."""

    @asynccontextmanager
    async def start(self, module: str, line: bytes) -> AsyncGenerator[OsChild, None]:
        """Run a module of Python."""
        pipe = asyncio.subprocess.PIPE
        # -P: nothing is imported from where the broker happens to have been started.
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", module),
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            limit=_LINE_BYTES_MAX,
        )
        child = OsChild(process)
        try:
            assert process.stdin is not None
            with suppress(BrokenPipeError, ConnectionResetError):  # its errors tell why it ended
                process.stdin.write(line.rstrip(b"\n") + b"\n")
                await process.stdin.drain()
            yield child
        finally:
            await child.stop()

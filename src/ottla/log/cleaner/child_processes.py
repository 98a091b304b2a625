"""Child processes behind an interface, for work that would keep the event loop busy.

Invariant: a child ends when its standard input is closed, so no child survives the broker. When the
`async with` that started a child is left, the child has ended and was waited for.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Final, Protocol

_LINE_BYTES_MAX: Final = 64 * 1024 * 1024
_ERROR_BYTES_KEPT: Final = 16 * 1024


class Child(Protocol):
    """A process that writes lines to its standard output."""

    @property
    def pid(self) -> int:
        """The process id."""
        ...

    def lines(self) -> AsyncIterator[bytes]:
        """The lines of its standard output, until it closes it."""
        ...

    async def ended(self) -> tuple[int, str]:
        """Wait for its end; return the exit code and the end of its standard error."""
        ...


class Processes(Protocol):
    """Starts child processes."""

    def start(self, module: str, line: bytes) -> AbstractAsyncContextManager[Child]:
        """Run a Python module with one line on its standard input, which stays open."""
        ...


class OsChild:
    """A process of the operating system."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._errors = asyncio.get_running_loop().create_task(self._read_errors())

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    async def lines(self) -> AsyncIterator[bytes]:
        """The lines of its standard output, until it closes it."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            yield line

    async def ended(self) -> tuple[int, str]:
        """Wait for the end of the process."""
        text = await self._errors
        return await self._process.wait(), text

    async def _read_errors(self) -> str:
        """Read standard error all the time, so that the child never blocks on it; keep the end."""
        assert self._process.stderr is not None
        kept = b""
        while piece := await self._process.stderr.read(_ERROR_BYTES_KEPT):
            kept = (kept + piece)[-_ERROR_BYTES_KEPT:]
        return kept.decode("utf-8", "replace").strip()

    async def stop(self) -> None:
        """Kill the process if it runs, and release everything."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._errors


class OsProcesses:
    """Starts child processes with the interpreter of this process."""

    @asynccontextmanager
    async def start(self, module: str, line: bytes) -> AsyncGenerator[OsChild, None]:
        """Run a Python module."""
        pipe = asyncio.subprocess.PIPE
        # -P: import nothing from the current directory.
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
            with suppress(
                BrokenPipeError, ConnectionResetError
            ):  # its standard error has the reason
                process.stdin.write(line.rstrip(b"\n") + b"\n")
                await process.stdin.drain()
            yield child
        finally:
            await child.stop()

"""Output in large pieces, written beside an event loop."""

import asyncio
import os
import threading

import pytest

from ottla.cli.blocking_calls import BlockingCalls
from ottla.cli.records.output import PIECE_BYTES, RecordOutput


def test_everything_is_written_in_order() -> None:
    read, write = os.pipe()
    found: list[bytes] = []

    def drain() -> None:
        while data := os.read(read, 1 << 20):
            found.append(data)

    reader = threading.Thread(target=drain)
    reader.start()

    async def main() -> None:
        output = RecordOutput(write, harmless=False)
        for number in range(1000):
            await output.write(b"%06d" % number * 500)
        await output.flush()
        os.close(write)

    asyncio.run(main())
    reader.join()
    os.close(read)
    assert b"".join(found) == b"".join(b"%06d" % number * 500 for number in range(1000))


def test_small_piece_is_written_on_flush() -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)

    async def main() -> None:
        output = RecordOutput(write, harmless=False)
        await output.write(b"a")
        with pytest.raises(BlockingIOError):
            os.read(read, 10)
        await output.flush()
        assert os.read(read, 10) == b"a"

    asyncio.run(main())
    os.close(read)
    os.close(write)


def test_closed_reader_raises_broken_pipe() -> None:
    read, write = os.pipe()
    os.close(read)

    async def main() -> None:
        output = RecordOutput(write, harmless=False)
        await output.write(b"x" * PIECE_BYTES)
        with pytest.raises(BrokenPipeError):
            await output.flush()

    asyncio.run(main())
    os.close(write)


def test_non_blocking_pipe_is_written_completely() -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    whole = b"x" * 300_000

    async def main() -> None:
        output = RecordOutput(write, harmless=False)
        writing = asyncio.ensure_future(output.write(whole))
        await writing
        found = b""
        while len(found) < len(whole):
            found += await asyncio.to_thread(os.read, read, 1 << 16)
        await output.flush()
        assert found == whole

    asyncio.run(main())
    os.close(read)
    os.close(write)


def test_blocked_writer_does_not_delay_the_exit() -> None:
    read, write = os.pipe()

    async def main() -> None:
        output = RecordOutput(write, harmless=False)
        await output.write(b"x" * (1 << 20))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await output.flush()

    asyncio.run(main())  # returns, although the thread still writes
    os.close(read)
    os.close(write)


def test_blocking_calls_run_in_order() -> None:
    async def main() -> None:
        calls = BlockingCalls()
        done: list[int] = []
        waiting = [calls.begin(lambda n=n: done.append(n)) for n in range(20)]
        await asyncio.gather(*waiting)
        assert done == [*range(20)]
        with pytest.raises(ZeroDivisionError):
            await calls.begin(lambda: 1 / 0)

    asyncio.run(main())

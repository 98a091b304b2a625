"""What is written in large pieces, beside an event loop."""

import asyncio
import os
import threading

import pytest

from ottla.cli.blocking_calls import BlockingCalls
from ottla.cli.records.output import PIECE_BYTES, RecordOutput


def test_all_of_it_leaves_in_order() -> None:
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


def test_a_little_waits_for_more_until_it_is_flushed() -> None:
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


def test_a_reader_that_left_is_told() -> None:
    read, write = os.pipe()
    os.close(read)

    async def main() -> None:
        output = RecordOutput(write, harmless=False)
        await output.write(b"x" * PIECE_BYTES)
        with pytest.raises(BrokenPipeError):
            await output.flush()

    asyncio.run(main())
    os.close(write)


def test_a_pipe_that_does_not_block_is_waited_for() -> None:
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


def test_a_reader_that_never_reads_keeps_nobody() -> None:
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


def test_calls_are_done_one_after_the_other() -> None:
    async def main() -> None:
        calls = BlockingCalls()
        done: list[int] = []
        waiting = [calls.begin(lambda n=n: done.append(n)) for n in range(20)]
        await asyncio.gather(*waiting)
        assert done == [*range(20)]
        with pytest.raises(ZeroDivisionError):
            await calls.begin(lambda: 1 / 0)

    asyncio.run(main())

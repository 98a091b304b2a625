# pyright: reportPrivateUsage=false
"""The fast path of Produce against the handler: the same responses, files and state.

Every request is served in two worlds with the same partitions. The fast path of one of them serves
what is ordinary. `make test` compares the requests of a sample of the worlds, `make soak` those of
all of them: two million.
"""

import asyncio
import sys
from itertools import chain
from random import Random
from typing import Any, Final
from unittest.mock import patch

import pytest

from broker.produce_worlds import (
    EVENTS,
    TIMEOUT_MS,
    ManualClock,
    Requests,
    World,
    difference,
    variants,
)
from kernel_loading import KERNEL, SourceFinder, load_kernel
from kernel_loading import SOURCE as FOLDER
from ottla.broker.produce_fast_path import ProduceFastPath
from ottla.records._kernel import COMPILED
from ottla.testing.clock import simulated
from sampling import sample, scaled

SOURCE: Final = (FOLDER / "ottla/broker/produce_fast_path.py").read_text()
KERNEL_MODULES: Final = ("batch_headers", "buffers", "constants")

REQUESTS: Final = 500
"""Requests per world."""

WORLDS: Final = sample(range(scaled(400 if COMPILED else 8)), 64)
RUNS: Final = 8
MUTANT_WORLDS: Final = 48


def plain_fast_path(condition: str = "", without: str = "") -> Any:
    """The class of the fast path in plain Python, without one of its conditions."""
    assert not condition or SOURCE.count(condition) == 1, condition
    source = SOURCE.replace(condition, without) if condition else SOURCE
    kernel = load_kernel(SourceFinder)
    namespace: dict[str, Any] = {"__name__": "produce_fast_path_mutant"}
    modules = {f"{KERNEL}.{name}": getattr(kernel, name) for name in KERNEL_MODULES}
    with patch.dict(sys.modules, modules):
        exec(compile(source, "produce_fast_path_mutant", "exec"), namespace)
    return namespace["ProduceFastPath"]


async def compare(seed: str, fast_path: Any = ProduceFastPath, requests: int = REQUESTS) -> int:
    """Serve requests in two worlds; return how many the fast path served."""
    random, clock = Random(seed), ManualClock()
    fast = await World(clock, fast_path).open()
    slow = await World(clock).open()
    source = Requests(random, clock)
    failing_from = requests - 40
    for number in range(requests):
        clock.ms += random.choice((0, 0, 1, 7, 40))
        if number >= failing_from and number % 8 == 0:
            _trouble(random, fast, slow)
        frame = source.request(slow)
        left, right = await fast.serve(frame), await slow.serve(frame)
        assert left == right, f"request {number}: {frame.hex()}"
        assert not fast.fast_path.appended
        if random.random() < 0.08:
            await _let_happen(random.choice(EVENTS), fast, slow)
        if number % 20 == 19:
            assert (found := difference(fast, slow)) is None, f"request {number}: {found}"
    await _let_happen("time out", fast, slow)
    assert difference(fast, slow) is None
    assert fast.files() == slow.files()
    return fast.served


async def _let_happen(event: str, fast: World, slow: World) -> None:
    """Let replicas fetch, leave or take over; the responses that waited must be the same."""
    if event == "time out":
        # Once for both worlds: a changed byte can give a request a slightly longer timeout.
        await asyncio.sleep(TIMEOUT_MS / 1000 + 0.01)
    left, right = fast.happen(event), slow.happen(event)
    assert left == right, event


async def compare_variants(fast_path: Any = ProduceFastPath) -> int:
    """Serve invalid requests, and ordinary ones with every byte changed; return the fast ones."""
    random, clock = Random("variants"), ManualClock()
    fast = await World(clock, fast_path).open()
    slow = await World(clock).open()
    source = Requests(random, clock)
    changed = (frame for one in source.ordinary() for frame in (one, *variants(one)))
    for frame in chain(source.invalid(), changed):
        left, right = await fast.serve(frame), await slow.serve(frame)
        assert left == right, frame.hex()
    assert difference(fast, slow) is None
    return fast.served


def _trouble(random: Random, *worlds: World) -> None:
    """Let the disk fill up, or the writes of one file fail."""
    room, index = random.randrange(400), random.randrange(4)
    full = random.random() < 0.7
    for world in worlds:
        used = sum(len(content.data) for content in world.disk._files.values())
        world.disk.capacity_bytes = used + room if full else None
        world.disk.fails = lambda what, path: (
            not full and what == "write" and f"plain-{index}/" in path
        )


def test_variants_of_ordinary_requests() -> None:
    async def program(_: object) -> int:
        return await compare_variants()

    assert simulated(program) > 100


@pytest.mark.parametrize("run", range(RUNS))
def test_fast_path_does_what_the_handler_does(run: int) -> None:
    async def program(_: object) -> None:
        served = 0
        worlds = WORLDS[run::RUNS]
        for number in worlds:
            served += await compare(f"{number}")
        share = served / (len(worlds) * REQUESTS)
        assert share > 0.2, f"only {share:.0%} of the requests were ordinary"

    simulated(program)


def test_timeouts_end_in_both_worlds_at_the_same_time() -> None:
    """In this world a request has a timeout of 1023 ms, which ends after one sleep of 1010 ms."""

    async def program(_: object) -> int:
        return await compare("3088")

    assert simulated(program) > 0


# Each condition of an ordinary request, and what the source has without it. Not in the list are the
# conditions that keep a read or a shift within its bounds and that a later condition implies.
CONDITIONS: Final = (
    ("p[1] != 0 or", ""),  # another API
    ("p[2] != 0 or", ""),
    ("p[3] < 9 or", ""),
    ("or p[3] > 13", ""),
    ("length < -1 or", ""),
    ("if not is_utf8(p, pos, length):", "if False:"),
    ("return 0 if p[pos] != 0 else pos + 1", "return pos + 1"),
    ("size - pos < 8 or p[pos] != 0", "size - pos < 8"),
    ("(self._acks != 1 and self._acks != -1) or", ""),
    ("or size - pos <= p[pos]", ""),
    ("if not is_utf8(p, pos + 1, p[pos] - 1):", "if False:"),
    ("length < HEADER_SIZE or", ""),
    ("or length >= size - pos:", ":"),
    ("if p[pos] != 0:\n                    return", "if False:\n                    return"),
    ("if pos >= size or p[pos] != 0:", "if pos >= size:"),
    ("pos == size - 1 and", ""),
    ("and p[pos] == 0\n", "\n"),
    ("if partition is None:", "if False:"),
    ("partition.internal\n            or", ""),
    ("or (self._acks == -1 and partition.in_sync_min > partition.in_sync_count)", ""),
    ("and self._acks == -1:", ":"),  # acks=1 does not wait
    ("return partition.high_watermark > last_offset", "return True"),
    ("partition.note_appended(size)", "pass"),
    ("batch.last_offset + 1, batch.error_at", "batch.last_offset, batch.error_at"),
    ("ack.begin(self._timeout_ms)", "ack.begin(0)"),
    ("if partition.in_sync is not None:", "if False:"),
    ("or rules.compression is not None", ""),
    ("or rules.timestamp_type is not _CREATE_TIME", ""),
    ("or size > rules.max_message_bytes", ""),
    ("or state.failure is not None", ""),
    ("or state.truncating", ""),
    ("or state.leader_epoch != partition.leader_epoch", ""),
    ("if other.partition is partition:", "if False:"),
    ("p[start + 16] != 2\n            or", ""),
    ("or big_endian(p, start + 8, 4) + LENGTH_END != size", ""),
    ("or big_endian(p, start, 8) != 0", ""),
    ("or attributes & TRANSACTIONAL", ""),
    ("or count < 1", ""),
    ("or count != delta + 1", ""),
    ("timestamp < NO_TIMESTAMP or", ""),
    ("or timestamp != big_endian(p, start + 35, 8)", ""),
    ("if producer is None or not", "if producer is not None and not"),
    ("except (RequestError, WouldBlock):", "except ZeroDivisionError:"),
    ("if crc32c(batch[21:]) != unsigned32(view.at, start + 17):", "if False:"),
    ("if reason or", "if"),
    ("or out_of_bounds >= 0", ""),
    ("or (without_key >= 0 and rules.compacted)", ""),
    ("size > segment_bytes or last", "last"),
    ("last_offset + 1 - state.recovery_point >= config.flush_messages or", ""),
    ("or config.flush_ms <= 0", ""),
    ("segment_size > segment_bytes - size\n        or", ""),
    ("or waited_ms > config.segment_ms - segment.jitter_ms", ""),
    ("or segment.offset_index._entries >= index_bytes_max // 8", ""),
    ("or segment.time_index._entries >= index_bytes_max // 12 - 1", ""),
    ("producer.epoch != epoch\n        or", ""),
    ("or producer.next_sequence != sequence", ""),
    ("or producer.transaction_first_offset is not None", ""),
    ("if cached[0] == sequence and cached[1] == last:", "if False:"),
)


def finds_difference(fast_path: Any) -> bool:
    """Whether the requests show that a fast path differs from the handler."""

    async def program(_: object) -> bool:
        try:
            await compare_variants(fast_path)
            for number in range(MUTANT_WORLDS):
                await compare(f"mutant {number}", fast_path)
        except Exception:  # a difference, or an error of the mutant itself
            return True
        return False

    return simulated(program)


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda one: one[0].split("\n")[0])
def test_each_condition_is_needed(condition: tuple[str, str]) -> None:
    assert finds_difference(plain_fast_path(*condition)), "no request needs the condition"


def test_plain_fast_path_is_correct() -> None:
    assert not finds_difference(plain_fast_path())

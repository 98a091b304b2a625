# pyright: reportPrivateUsage=false
"""The fast path of Produce against the handler: the same responses, files and state.

Every request is served in two worlds with the same partitions. The fast path of one of them serves
what is ordinary. `make test` compares the requests of a sample of the worlds, 200,000, and `make
soak` those of all of them, two million.
"""

import asyncio
import sys
from collections.abc import Iterable
from functools import cache
from itertools import chain
from random import Random
from typing import Any, Final
from unittest.mock import patch

import pytest

from broker.produce_worlds import (
    EVENTS,
    SETTINGS,
    START_MS,
    TIMEOUT_MS,
    FastRandom,
    Kind,
    ManualClock,
    Requests,
    World,
    difference,
    produce_frame,
    variants,
)
from cases import Cases
from kernel_loading import KERNEL, SourceFinder, load_kernel
from kernel_loading import SOURCE as FOLDER
from ottla.broker.produce_fast_path import ProduceFastPath
from ottla.ids import Offset, PartitionIndex, TopicPartition, Uuid
from ottla.log.log_config import LogConfig
from ottla.protocol.messages.produce import ProduceResponse
from ottla.records._kernel import COMPILED
from ottla.records.builder import BatchBuilder
from ottla.testing.clock import simulated
from sampling import SOAK, sample

SOURCE: Final = (FOLDER / "ottla/broker/produce_fast_path.py").read_text()
KERNEL_MODULES: Final = ("batch_headers", "buffers", "constants")

REQUESTS: Final = 1000
"""Requests per world."""

COMPARED_EVERY: Final = 100
"""Requests between two comparisons of the state, each of which takes as long as ten requests."""

WORLDS: Final = sample(range(2000 if COMPILED else 40), 200 if COMPILED else 8)
RUNS: Final = 8
MUTANT_WORLDS: Final = 48
PLAIN_WORLDS_SAMPLED: Final = 4
VARIANTS: Final = -1
"""Stands for the variants of ordinary requests, beside the numbers of worlds."""
LIMITS: Final = -2
"""Stands for requests as large as an ordinary one may be, and larger."""


PLAIN: Final = TopicPartition("plain", PartitionIndex(0))


def _keyless(timestamp: int) -> bytes:
    builder = BatchBuilder()
    builder.append(timestamp, None, bytes(200))
    return builder.build()


BATCH: Final = _keyless(START_MS)


def plain_fast_path(condition: str = "", without: str = "") -> Any:
    """The class of the fast path in plain Python, without one of its conditions."""
    assert not condition or SOURCE.count(condition) == 1, condition
    source = SOURCE.replace(condition, without) if condition else SOURCE
    kernel = plain_kernel()
    namespace: dict[str, Any] = {"__name__": "produce_fast_path_mutant"}
    modules = {f"{KERNEL}.{name}": getattr(kernel, name) for name in KERNEL_MODULES}
    with patch.dict(sys.modules, modules):
        exec(compile(source, "produce_fast_path_mutant", "exec"), namespace)
    return namespace["ProduceFastPath"]


@cache
def plain_kernel() -> Any:
    return load_kernel(SourceFinder)


async def compare(seed: str, fast_path: Any = ProduceFastPath, requests: int = REQUESTS) -> int:
    """Serve requests in two worlds; return how many the fast path served."""
    random, clock = FastRandom(seed), ManualClock()
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
        if random.random() < 0.1:
            await _let_happen(random.choice(EVENTS), fast, slow)
        if number % COMPARED_EVERY == 0:
            assert (found := difference(fast, slow)) is None, f"request {number}: {found}"
    await _let_happen("time out", fast, slow)
    assert difference(fast, slow) is None
    assert fast.files() == slow.files()
    return fast.served


async def _let_happen(event: str, fast: World, slow: World) -> list[object]:
    """Let one of EVENTS happen; return the responses that waited, which must be the same."""
    if event == "time out":
        # Once for both worlds: a changed byte can give a request a slightly longer timeout.
        await asyncio.sleep(TIMEOUT_MS / 1000 + 0.01)
    left, right = fast.happen(event), slow.happen(event)
    assert left == right, event
    await fast.end_flushes()
    await slow.end_flushes()
    return left


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


async def check_limits(fast_path: Any = ProduceFastPath) -> None:
    """The handler serves larger requests cooperatively, with the same result."""
    world = await World(ManualClock(), fast_path).open()
    for name in ("wide", "wider"):
        await world.create(name, Uuid(name.encode().ljust(16)), Kind(partitions=110))
    serve = world.fast_path.serve
    assert serve(memoryview(produce_frame(BATCH, {"wide": 110, "wider": 90}))) is not None
    assert serve(memoryview(produce_frame(BATCH, {"wide": 110, "wider": 91}))) is None


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


def test_large_requests_are_left_to_the_handler() -> None:
    async def program(_: object) -> None:
        await check_limits()

    simulated(program)


def test_response_has_the_log_start_after_deleted_records() -> None:
    async def program(_: object) -> None:
        world = await World(ManualClock(), ProduceFastPath).open()
        for _ in range(4):
            await world.serve(produce_frame(BATCH))
        world.manager.partitions[PLAIN].log.advance_log_start(Offset(3))
        response = await world.serve(produce_frame(BATCH))
        assert world.served == 5
        assert isinstance(response, bytes)
        answer = ProduceResponse.decode(memoryview(response)[9:], 12)  # size, id, tagged fields
        (partition,) = answer.responses[0].partition_responses
        assert (partition.base_offset, partition.log_start_offset) == (4, 3)

    simulated(program)


# The clock of the last request; by default no time has passed.
PASSED_MS: Final = {"message.timestamp.before.max.ms": 200}


async def check_changed_setting(setting: str) -> None:
    """Change a setting of a topic between requests that the fast path has served."""
    clock = ManualClock()
    fast, slow = await World(clock, ProduceFastPath).open(), await World(clock).open()
    kind = Kind(LogConfig(index_interval_bytes=0), in_sync=(1, 2))
    early, late = _keyless(START_MS + 50), _keyless(START_MS + 150)
    for world in (fast, slow):
        await world.create("warm", Uuid(b"warm".ljust(16)), kind)
        for _ in range(3):
            await world.serve(produce_frame(early, {"warm": 1}))
        world.happen("replicate")
        world.set("warm", SETTINGS[setting](kind))
    assert fast.served_replicated == 3, "the fast path was not used before the change"
    clock.ms += PASSED_MS.get(setting, 0)
    last = produce_frame(late, {"warm": 1})
    assert await fast.serve(last) == await slow.serve(last)
    assert fast.served == 3, "the fast path does not see the change"
    assert fast.happen("replicate") == slow.happen("replicate")
    assert difference(fast, slow) is None
    for world in (fast, slow):
        world.set("warm", kind)
    assert await fast.serve(last) == await slow.serve(last)
    assert fast.served == 4, "the fast path does not see that the setting was reset"
    assert fast.happen("replicate") == slow.happen("replicate")
    assert difference(fast, slow) is None


def test_changed_setting_counts_at_once() -> None:
    cases = Cases()

    async def program(_: object) -> None:
        for setting in SETTINGS:
            with cases.case(setting):
                await check_changed_setting(setting)

    simulated(program)
    cases.check()


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
        assert share > 0.25, f"only {share:.0%} of the requests were ordinary"

    simulated(program)


def test_timeouts_end_in_both_worlds_at_the_same_time() -> None:
    """A changed byte may give a request a timeout that ends after one sleep of 1010 ms."""

    async def program(_: object) -> None:
        clock = ManualClock()
        fast, slow = await World(clock, ProduceFastPath).open(), await World(clock).open()
        for world in (fast, slow):
            frame = produce_frame(BATCH, {"replicated": 1}, timeout_ms=1023)
            assert await world.serve(frame) is None
        assert fast.served_replicated == 1
        assert not await _let_happen("time out", fast, slow)
        assert len(await _let_happen("time out", fast, slow)) == 1

    simulated(program)


# Each condition of an ordinary request, and what the source has without it. Not in the list are the
# conditions that keep a read or a shift within its bounds and that a later condition implies.
# Beside each stands the first world that shows a difference without it.
CONDITIONS: Final[dict[tuple[str, str], int]] = {
    ("p[0] != 0 or", ""): VARIANTS,  # another API
    ("p[1] != 0 or", ""): VARIANTS,
    ("p[2] != 0 or", ""): VARIANTS,
    ("p[3] < 9 or", ""): VARIANTS,
    ("or p[3] > 13", ""): VARIANTS,
    ("length < -1 or", ""): VARIANTS,
    ("if not is_utf8(p, pos, length):", "if False:"): VARIANTS,
    ("return 0 if p[pos] != 0 else pos + 1", "return pos + 1"): VARIANTS,
    ("size - pos < 8 or p[pos] != 0", "size - pos < 8"): VARIANTS,
    ("(self._acks != 1 and self._acks != -1) or", ""): VARIANTS,
    ("topics < 2 or", ""): VARIANTS,
    ("partitions < 2 or", ""): VARIANTS,
    ("if len(self._batches) + partitions - 1 > PARTITIONS_MAX:", "if False:"): LIMITS,
    ("or size - pos <= p[pos]", ""): VARIANTS,
    ("if not is_utf8(p, pos + 1, p[pos] - 1):", "if False:"): VARIANTS,
    ("length < HEADER_SIZE or", ""): 0,
    ("or length >= size - pos:", ":"): VARIANTS,
    (
        "if p[pos] != 0:\n                    return",
        "if False:\n                    return",
    ): VARIANTS,
    ("if pos >= size or p[pos] != 0:", "if pos >= size:"): VARIANTS,
    ("pos == size - 1 and", ""): VARIANTS,
    ("and p[pos] == 0\n", "\n"): VARIANTS,
    ("if partition is None:", "if False:"): VARIANTS,
    ("partition.internal\n            or", ""): 0,
    ("or (self._acks == -1 and partition.in_sync_min > partition.in_sync_count)", ""): 0,
    ("and self._acks == -1:", ":"): 0,  # acks=1 does not wait
    ("return partition.high_watermark > last_offset", "return True"): 0,
    ("partition.note_appended(size)", "pass"): 0,
    ("batch.last_offset + 1, batch.error_at", "batch.last_offset, batch.error_at"): 0,
    ("ack.begin(self._timeout_ms)", "ack.begin(0)"): 0,
    ("if partition.in_sync is not None:", "if False:"): 0,
    ("rules = partition.rules", "rules = globals().setdefault(name, partition.rules)"): 0,
    ("config = state.config", "config = globals().setdefault(name, state.config)"): 0,
    ("or rules.compression is not None", ""): 1,
    ("or rules.timestamp_type is not _CREATE_TIME", ""): 0,
    ("or size > rules.max_message_bytes", ""): 0,
    ("or state.failure is not None", ""): 0,
    ("or state.truncating", ""): 2,
    ("or state.leader_epoch != partition.leader_epoch", ""): 0,
    ("if other.partition is partition:", "if False:"): 0,
    ("p[start + 16] != 2\n            or", ""): VARIANTS,
    ("or big_endian(p, start + 8, 4) + LENGTH_END != size", ""): VARIANTS,
    ("or big_endian(p, start, 8) != 0", ""): VARIANTS,
    ("or attributes & TRANSACTIONAL", ""): 2,
    ("or count < 1", ""): 0,
    ("or count != delta + 1", ""): 0,
    ("timestamp < NO_TIMESTAMP or", ""): VARIANTS,
    ("or timestamp != big_endian(p, start + 35, 8)", ""): 0,
    ("if producer is None or not", "if producer is not None and not"): 0,
    ("except (RequestError, WouldBlock):", "except ZeroDivisionError:"): VARIANTS,
    ("if crc32c(batch[21:]) != unsigned32(view.at, start + 17):", "if False:"): VARIANTS,
    ("if reason or", "if"): VARIANTS,
    ("or out_of_bounds >= 0", ""): 0,
    ("or (without_key >= 0 and rules.compacted)", ""): 0,
    ("size > segment_bytes or last", "last"): 0,
    ("or last_offset > segment.offset_max", ""): 1,
    ("last_offset + 1 - state.recovery_point >= config.flush_messages or", ""): 0,
    ("or config.flush_ms <= 0", ""): 0,
    ("segment_size > segment_bytes - size\n        or", ""): 0,
    ("or waited_ms > config.segment_ms - segment.jitter_ms", ""): 0,
    ("or segment.offset_index._entries >= index_bytes_max // 8", ""): 2,
    ("or segment.time_index._entries >= index_bytes_max // 12 - 1", ""): 0,
    ("producer.epoch != epoch\n        or", ""): 0,
    ("or producer.next_sequence != sequence", ""): 0,
    ("or producer.transaction_first_offset is not None", ""): 0,
    ("if cached[0] == sequence and cached[1] == last:", "if False:"): 2,
    ("batch.state.log_start_offset, 8", "0, 8"): 0,
}


def first_difference(fast_path: Any, numbers: Iterable[int]) -> int | None:
    """The first world, or VARIANTS, whose requests show a difference from the handler."""

    async def program(_: object) -> int | None:
        for number in numbers:
            try:
                if number == VARIANTS:
                    await compare_variants(fast_path)
                elif number == LIMITS:
                    await check_limits(fast_path)
                else:
                    await compare(f"mutant {number}", fast_path)
            except Exception:  # a difference, or an error of the mutant itself
                return number
        return None

    return simulated(program)


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda one: one[0].split("\n")[0])
def test_each_condition_is_needed(condition: tuple[str, str]) -> None:
    """The recorded world is tried first, so that most conditions take one world."""
    first = CONDITIONS[condition]
    numbers = range(LIMITS, MUTANT_WORLDS)
    if not SOAK:
        numbers = sorted(numbers, key=lambda number: number != first)
    found = first_difference(plain_fast_path(*condition), numbers)
    assert found is not None, "no request needs the condition"
    if SOAK:
        assert found == first, "write down the first world that needs the condition"


def test_plain_fast_path_is_correct() -> None:
    """The recorded worlds show each missing condition; others are sampled."""
    worlds = {*CONDITIONS.values(), *sample(range(MUTANT_WORLDS), PLAIN_WORLDS_SAMPLED)}
    assert first_difference(plain_fast_path(), sorted(worlds)) is None

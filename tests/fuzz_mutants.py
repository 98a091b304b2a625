"""Damaged bytes for the fuzz tests, others for every commit, and limits on memory.

A run is seeded by OTTLA_FUZZ_SEED (by default the commit, as the samples) and the name of its part,
so that a failure can be repeated. The failing input is printed. A soak multiplies the usual counts
by OTTLA_FUZZ_SCALE; a test run takes a part of them.
"""

import os
import resource
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from random import Random
from struct import pack
from typing import Final

import sampling
from protocol_values import varint

SEED: Final = os.environ.get("OTTLA_FUZZ_SEED") or sampling.seed()
SCALE: Final = sampling.SCALE if sampling.SOAK else 0.25

# The usual number of inputs of each part. tests/fuzz/test_counts.py adds them up.
INPUTS: Final = {
    "frames": 30_000,
    "messages": 130_000,
    "stored": 20_000,
    "conversations": 20_000,
    "batches": 60_000,
    "logins": 4_000,
}
INPUTS_MIN: Final = 200_000

MEMORY_GROWTH_MAX: Final = 64 * 1024 * 1024

_INTERESTING: Final = (0, 1, 2, 16, 17, 127, 128, 255, 256, 32_767, 32_768, 65_535, 2**31 - 1)
_NUMBERS: Final = (
    *(pack(">b", n) for n in (-1, -2, 0, 1, 127, -128)),
    *(pack(">h", n) for n in (-1, -2, 0, 1, 32_767, -32_768)),
    *(pack(">i", n) for n in (-1, -2, 0, 1, 127, 128, 2**20, 2**31 - 1, -(2**31))),
    *(pack(">q", n) for n in (-1, 0, 2**63 - 1, -(2**63))),
    *(varint(n) for n in (*_INTERESTING, 2**31, 2**32 - 2, 2**32 - 1)),
    b"\x80\x00",
    b"\xff\xff\xff\xff\x1f",
    b"\xff\xff\xff\xff\xff\x01",
)


def scaled(part: str, shards: int = 1) -> int:
    """The number of inputs in one of `shards` equal shares of a part."""
    return -(-int(INPUTS[part] * SCALE) // shards)


def seeded(part: str, shard: object = "") -> Random:
    """The random generator of one share."""
    return Random(f"{SEED} {part} {shard}")


def mutant(random: Random, corpus: Sequence[bytes]) -> bytes:
    """An element of the corpus, damaged one to four times."""
    raw = bytearray(random.choice(corpus))
    for _ in range(random.choice((1, 1, 1, 2, 2, 4))):
        _damage(random, raw, corpus)
    return bytes(raw)


def _damage(random: Random, raw: bytearray, corpus: Sequence[bytes]) -> None:
    at = random.randrange(len(raw) + 1)
    match random.randrange(10):
        case 0 | 1 if at < len(raw):
            raw[at] ^= 1 << random.randrange(8)
        case 2 if at < len(raw):
            raw[at] = random.randrange(256)
        case 3 | 4 | 5:
            number = random.choice(_NUMBERS)
            raw[at : at + len(number)] = number
        case 6:
            del raw[at:]
        case 7:
            raw[at:at] = random.choice(_NUMBERS) if random.randrange(2) else random.randbytes(3)
        case 8:
            del raw[at : at + random.randrange(1, 9)]
        case _:
            other = random.choice(corpus)
            raw[at:] = other[random.randrange(len(other) + 1) :]


@contextmanager
def bounded_memory() -> Generator[None]:
    """Check that the body does not use more memory than an attack may cause."""
    before = _largest_bytes()
    yield
    grown = _largest_bytes() - before
    assert grown <= MEMORY_GROWTH_MAX, f"the process grew by {grown} bytes"


def _largest_bytes() -> int:
    """The peak memory of the process."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


@contextmanager
def explained(part: str, shard: object, number: int, **what: object) -> Generator[None]:
    """Add to a failure how to repeat it."""
    try:
        yield
    except BaseException as error:
        told = ", ".join(f"{name}={value!r}" for name, value in what.items())
        error.add_note(f"OTTLA_FUZZ_SEED={SEED}, {part} {shard}, input {number}: {told}")
        raise

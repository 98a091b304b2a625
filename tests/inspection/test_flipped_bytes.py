"""The check notices changed bytes, truncated files and missing files of a data directory.

`make test` takes a sample of the bytes of each file; `make soak` takes all of them.

Changes that the check cannot notice are listed here with the reason. Either the change is harmless,
or no other file contradicts it.
"""

import re
from collections.abc import Callable

import pytest

from cases import each_case
from inspection.inspected_directory import (
    DATA,
    PARTITIONS,
    checked,
    content,
    damage,
    data_directory,
    flip,
    is_damaged,
    paths,
    put,
    write_offsets,
)
from ottla.inspection.findings import Level
from ottla.inspection.walk import FoundBatch, Walk
from ottla.log.names import RECOVERY_POINTS
from ottla.testing.disk import SimulatedDisk
from sampling import SOAK, sample

MASKS = [0x01, 0xFF, *(1 << bit for bit in range(1, 8))] if SOAK else [0x01, 0xFF]
PLACES_SAMPLED = 16  # of the bytes of each file

Damaged = Callable[[bytes], bool]
"""Whether the current content of a file is one that the check does not notice."""


def matches(pattern: bytes) -> Damaged:
    return lambda data: re.fullmatch(pattern, data, re.DOTALL) is not None


def entry_numbers(data: bytes, size: int, at: int) -> list[int]:
    return [int.from_bytes(data[n + at : n + at + 4], "big") for n in range(0, len(data), size)]


def raises_an_offset_alone(original: bytes) -> Damaged:
    """Whether only the offset of one `.index` entry differs and is larger."""

    def check(data: bytes) -> bool:
        before, after = entry_numbers(original, 8, 0), entry_numbers(data, 8, 0)
        return entry_numbers(original, 8, 4) == entry_numbers(data, 8, 4) and all(
            new >= old for new, old in zip(after, before, strict=True)
        )

    return check


def lowers_an_offset_alone(original: bytes) -> Damaged:
    """Whether only the offset of one `.timeindex` entry differs and is smaller."""

    def check(data: bytes) -> bool:
        before, after = entry_numbers(original, 12, 8), entry_numbers(data, 12, 8)
        times = [original[n : n + 8] for n in range(0, len(original), 12)]
        return times == [data[n : n + 8] for n in range(0, len(data), 12)] and all(
            new <= old for new, old in zip(after, before, strict=True)
        )

    return check


# Every change that is not reported as damage must be in this list: the end of the file name, the
# possible content, and the reason.
HARMLESS: list[tuple[str, Callable[[bytes], Damaged], str]] = [
    (
        "/.kafka_cleanshutdown",
        lambda original: matches(rb'\{"\w{7}":\d,"brokerEpoch":\d\d\}'),
        "the version is not used; no other file has the broker's epoch",
    ),
    (
        "/meta.properties",
        lambda original: matches(rb"[^\n]+\n[^\n]+\nnode.id=\d\n[^\n]+\n"),
        "names of properties are reported as notes; no other file has the ids",
    ),
    (
        "/recovery-point-offset-checkpoint",
        lambda original: matches(rb"0\n2\n[tu] 0 (31|30|2\d|1\d|[0-9])\n[tu] 1 [0-2]\n"),
        "a lower recovery point, or none: more is checked after a crash",
    ),
    (
        "/replication-offset-checkpoint",
        lambda original: matches(rb"0\n2\n[tu] 0 (31|30|2\d|1\d|[0-9])\n[tu] 1 [0-2]\n"),
        "a lower high watermark, or none: it is a hint (A5)",
    ),
    (
        ".index",
        raises_an_offset_alone,
        "the last offset of a later batch, told as a note: look-ups begin earlier than they need",
    ),
    (
        ".timeindex",
        lowers_an_offset_alone,
        "another offset of the same batch, told as a note: look-ups begin with the same batch",
    ),
    (
        "/partition.metadata",
        lambda original: matches(rb"version: \d\ntopic_id: AAECAwQFBgcICQoLDA0ODw"),
        "the version only says that there may be more lines",
    ),
]


def is_listed(path: str, original: bytes, data: bytes) -> bool:
    return any(path.endswith(suffix) and damaged(original)(data) for suffix, damaged, _ in HARMLESS)


def test_unchanged_directory_has_no_findings() -> None:
    assert checked(data_directory()) == []


@pytest.mark.parametrize("mask", MASKS)
def test_every_changed_byte_is_detected(mask: int) -> None:
    disk = data_directory()
    missed = [
        (path, at)
        for path in paths(disk)
        for at in sample(range(len(content(disk, path))), PLACES_SAMPLED)
        if unnoticed(disk, path, at, mask)
    ]
    assert missed == []


def unnoticed(disk: SimulatedDisk, path: str, at: int, mask: int) -> bool:
    original = content(disk, path)
    flip(disk, path, at, mask)
    missed = not is_damaged(disk) and not is_listed(path, original, content(disk, path))
    flip(disk, path, at, mask)
    return missed


def test_every_listed_exception_is_needed() -> None:
    """A row that covers nothing would hide the next mistake."""
    disk = data_directory()
    used: set[str] = set()
    for path in paths(disk):
        original = content(disk, path)
        for suffix, damaged, _ in HARMLESS:
            if not path.endswith(suffix) or suffix in used:
                continue
            for at in range(len(original)):
                flip(disk, path, at, 1)
                if damaged(original)(content(disk, path)) and not is_damaged(disk):
                    used.add(suffix)
                flip(disk, path, at, 1)
    assert used == {suffix for suffix, _, _ in HARMLESS}


# Truncations after which the rest is harmless, or no other file shows that there was more.
HARMLESS_CUTS: list[tuple[str, Callable[[int], bool], str]] = [
    (r"/.kafka_cleanshutdown", lambda left: left == 0, "as earlier releases of Kafka leave it"),
    (
        r"/meta.properties",
        lambda left: left >= 53,
        "of the directory's id, which is optional, another file has nothing",
    ),
    (
        r"-offset-checkpoint",
        lambda left: left == 0,
        "an empty checkpoint holds nothing: all is checked after a crash",
    ),
    (r"\d.index", lambda left: left % 8 == 0, "with fewer entries look-ups read more"),
]


def test_every_truncation_is_detected() -> None:
    disk = data_directory()
    missed: list[tuple[str, int]] = []
    for path in paths(disk):
        original = content(disk, path)
        for left in sample(range(len(original)), PLACES_SAMPLED):
            put(disk, path, original[:left])
            harmless = any(
                re.search(pattern + "$", path) and is_harmless(left)
                for pattern, is_harmless, _ in HARMLESS_CUTS
            )
            if not is_damaged(disk) and not harmless:
                missed.append((path, left))
        put(disk, path, original)
    assert missed == []


def test_every_missing_file_is_detected() -> None:
    disk = data_directory()
    # Without these files a start takes longer, rebuilds them, or knows less.
    not_needed = (
        "clean", "meta.properties", "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint", ".snapshot", "partition.metadata",
    )  # fmt: skip
    for path in paths(disk):
        original = content(disk, path)
        disk.remove(path)
        if not any(part in path for part in not_needed):
            assert is_damaged(disk), path
        put(disk, path, original)


@each_case("size", [1, 8, 61, 200])
def test_runs_of_zeros_are_detected(size: int) -> None:
    """As a device that lost a page returns them."""
    disk = data_directory()
    for path in paths(disk):
        original = content(disk, path)
        if not path.endswith(".log"):
            continue
        for at in sample(range(0, len(original), 7), PLACES_SAMPLED):
            changed = original[:at] + bytes(min(size, len(original) - at)) + original[at + size :]
            if changed != original:
                put(disk, path, changed)
                assert is_damaged(disk), (path, at)
        put(disk, path, original)


ACTIVE = f"{DATA}/t-0/00000000000000000026"


def levels_of_flips(disk: SimulatedDisk) -> dict[int, set[Level]]:
    """The findings about the active segment if a bit of one byte is flipped, by position."""
    found: dict[int, set[Level]] = {}
    for at in range(len(content(disk, f"{ACTIVE}.log"))):
        flip(disk, f"{ACTIVE}.log", at, 1)
        found[at] = {one.level for one in checked(disk) if one.path == f"{ACTIVE}.log"}
        flip(disk, f"{ACTIVE}.log", at, 1)
    return found


def test_flips_below_the_recovery_point_are_always_found() -> None:
    found = levels_of_flips(data_directory(clean=False))
    assert all(Level.DAMAGE in levels for levels in found.values())


def test_above_the_recovery_point_a_tail_may_be_incomplete() -> None:
    disk = data_directory(clean=False)
    write_offsets(disk, RECOVERY_POINTS, {PARTITIONS[0]: 26})
    for kind in ("index", "timeindex"):  # as during writes to a segment
        disk.remove(f"{ACTIVE}.{kind}")
    starts = [batch.position for batch in positions(content(disk, f"{ACTIVE}.log"))]
    lengths = {start + n for start in starts for n in range(8, 12)}
    last_epoch = {starts[-1] + n for n in range(12, 16)}
    for at, levels in levels_of_flips(disk).items():
        if at in last_epoch:
            assert levels == {Level.NOTE}
        elif Level.DAMAGE not in levels:
            assert at in lengths
            assert levels == {Level.INCOMPLETE}


def test_batch_followed_by_others_is_not_incomplete() -> None:
    disk = data_directory(clean=False)
    write_offsets(disk, RECOVERY_POINTS, {PARTITIONS[0]: 26})
    flip(disk, f"{ACTIVE}.log", 9, 1)  # the first batch claims to be longer than the file
    assert any(one.path == f"{ACTIVE}.log" for one in damage(disk))


def positions(data: bytes) -> list[FoundBatch]:
    disk = SimulatedDisk()
    disk.make_directory(DATA)
    put(disk, f"{DATA}/f", data)
    found = Walk(disk.open(f"{DATA}/f")).batches(lambda header: False)
    return [batch for batch in found if isinstance(batch, FoundBatch)]

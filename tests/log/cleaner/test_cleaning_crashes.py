"""Crashes and disk failures at every disk call of a cleaning, and the log that is opened afterwards
(rule C7).

`make test` takes a sample of the calls. `make soak` stops at every call, in ten logs.
"""

from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from functools import cache
from random import Random

import pytest

from log.cleaner.compaction_model import (
    RULES,
    CompactedLog,
    ConsumedRecord,
    committed_table,
    offsets,
    write_randomly,
)
from log.logs import FOLDER, raw
from ottla.errors import StorageFailure
from ottla.log.cleaner.cleaner_runners import CleaningFailed
from ottla.log.names import FileState, parse_offset_file
from ottla.records.batch import Batch, batches
from ottla.testing.disk import Crashed, Loss, SimulatedDisk, finish
from sampling import sample, scaled

SEEDS = scaled(1)
CRASHES_SAMPLED = 15  # of more than 60 calls, or of more than 40
FAILURES_SAMPLED = 5  # of each kind of call
STARTS_SAMPLED = 2  # seeds, of 12


@cache
def written(seed: int) -> CompactedLog:
    """A log that was cleaned before and has more to clean: several groups, tombstones, markers."""
    random = Random(seed)
    owner = CompactedLog()
    write_randomly(owner, random, 25)
    owner.compact()
    owner.now_ms += 60
    write_randomly(owner, random, 20)
    finish(owner.log.close())  # records that were not flushed may be lost, cleaned or not
    return owner


def history(seed: int) -> CompactedLog:
    """The same log for each call, on its own disk."""
    return written(seed).twin()


def read_records(batch: Batch) -> set[ConsumedRecord]:
    assert batch.crc_ok
    return {ConsumedRecord(r.offset, r.key, r.value, r.timestamp) for r in batch.records()}


def check_after_crash(owner: CompactedLog, disk: SimulatedDisk) -> None:
    """Check that each group is the old or the cleaned one: no record is missing, none is added."""
    before = owner.model.copy()
    first, log_end = owner.first_dirty_offset, owner.log.log_end_offset
    producers = sorted((p.producer_id, p.epoch, str(p.last_offset)) for p in owner.log.producers)
    owner.reopen(clean=False, disk=disk)
    owner.reopen(clean=False)  # recovery is complete: opening the log again finds nothing to do
    states = {parsed.state for n in disk.names(FOLDER) if (parsed := parse_offset_file(n))}
    assert states == {FileState.LIVE}
    assert owner.log.log_end_offset == log_end
    assert (
        sorted((p.producer_id, p.epoch, str(p.last_offset)) for p in owner.log.producers)
        == producers
    )
    assert committed_table(owner.log) == before.committed()
    old = {batch.base: batch for batch in before.batches}
    for batch in batches(raw(owner.log)):
        was = old[batch.header.base_offset]
        assert was.last == batch.header.last_offset
        assert read_records(batch) <= set(was.records)
    # The checkpoint was not moved, so the next cleaning ends where this one would have ended.
    owner.first_dirty_offset = first


@pytest.mark.parametrize("loss", list(Loss))
@pytest.mark.parametrize("seed", range(SEEDS))
def test_c7_crash_at_any_call_of_a_cleaning_loses_nothing(loss: Loss, seed: int) -> None:
    expected = history(seed)
    first = len(expected.disk.calls)
    assert expected.compact() is not None
    expected.check()
    calls = [what for what, _ in expected.disk.calls[first:]]
    assert len(calls) > 60
    assert {*calls} >= {"create", "write", "sync", "rename"}
    for crash in sample(range(len(calls) + 1), CRASHES_SAMPLED):
        owner = history(seed)
        owner.disk.crash_at = first + crash
        if crash < len(calls):
            with pytest.raises(Crashed):
                owner.compact()
            check_after_crash(owner, owner.disk.after_crash(loss, Random(crash)))
            owner.compact()
        else:
            owner.compact()
            owner.reopen(clean=False, disk=owner.disk.after_crash(loss, Random(crash)))
        # The interrupted cleaning may have set the delete horizon of markers already.
        assert [one[:-1] for one in owner.facts()] == [one[:-1] for one in expected.facts()]


@pytest.mark.parametrize("what", ["create", "write", "sync", "rename", "remove"])
def test_log_opens_after_a_disk_failure_in_a_cleaning(what: str) -> None:
    whole = history(3)
    first = len(whole.disk.calls)
    whole.compact()
    count = sum(called == what for called, _ in whole.disk.calls[first:])
    assert count or what == "remove"
    for turns in sample(range(count), FAILURES_SAMPLED):
        owner = history(3)
        left = turns

        def fails(called: str, path: str) -> bool:
            nonlocal left
            left -= called == what
            return left < 0

        owner.disk.fails = fails
        with pytest.raises((StorageFailure, CleaningFailed)):
            owner.compact()
        owner.disk.fails = lambda called, path: False
        check_after_crash(owner, owner.disk.after_crash(Loss.ALL, Random(turns)))
        owner.compact()


def test_full_disk_fails_the_cleaning_but_not_the_log() -> None:
    owner = history(5)
    before = owner.facts()
    owner.disk.capacity_bytes = sum(
        owner.disk.open(f"{FOLDER}/{name}").size() for name in owner.disk.names(FOLDER)
    )
    with pytest.raises(CleaningFailed, match="no space left"):
        owner.compact()
    assert owner.facts() == before
    assert not [name for name in owner.disk.names(FOLDER) if name.endswith(".cleaned")]
    owner.disk.capacity_bytes = None
    owner.append([(b"k", b"v")])
    owner.compact()
    owner.check()


def log_that_splits() -> CompactedLog:
    """A log whose delete horizons make a group larger than a segment, so that it becomes two."""
    source = CompactedLog(replace(RULES, segment_bytes=480, delete_retention_ms=10**12))
    for number in range(12):
        source.append([(b"%d-%d" % (number, each), None) for each in range(8)])
    finish(source.log.close())
    return source


@pytest.mark.parametrize("loss", [Loss.TORN, Loss.HOLES])
def test_c7_crash_in_a_swap_of_two_segments_loses_nothing(loss: Loss) -> None:
    """Either both new segments replace the old ones or neither does."""
    source = log_that_splits()
    whole = source.twin()
    bases = {segment.base_offset for segment in whole.log.segments}
    first = len(whole.disk.calls)
    whole.compact()
    count = len(whole.disk.calls) - first
    assert count > 40
    assert {segment.base_offset for segment in whole.log.segments} - bases
    for crash in sample(range(count), CRASHES_SAMPLED):
        owner = source.twin()
        owner.disk.crash_at = len(owner.disk.calls) + crash
        with pytest.raises(Crashed):
            owner.compact()
        crashed = owner.disk
        for seed in range(crash * 4, crash * 4 + 4):
            owner.reopen(clean=False, disk=crashed.after_crash(loss, Random(seed)))
            assert offsets(owner.log) == list(range(96)), seed


def half_swapped(source: CompactedLog) -> list[SimulatedDisk]:
    """The disk after a crash in the first swap, in each state that can be on the device."""
    found: dict[tuple[str, ...], SimulatedDisk] = {}
    owner, crash, swaps = source.twin(), 0, 0
    while swaps < 2:
        owner = source.twin()
        owner.disk.crash_at = len(owner.disk.calls) + crash
        with suppress(Crashed):
            owner.compact()
        left = owner.disk.after_crash(Loss.ALL, Random(0))
        names = tuple(left.names(FOLDER))
        if any(name.endswith(".swap") for name in names):
            found.setdefault(names, left)
        swaps = sum(path.endswith(".log.swap") for _, path in owner.disk.calls) // 2
        crash += 1
    return list(found.values())


def test_c7_crash_while_completing_a_swap_loses_nothing() -> None:
    source = log_that_splits()
    states = half_swapped(source)
    assert len(states) >= 3
    for disk in states:
        calls, ended = 0, False
        while not ended:
            for seed in sample(range(12), STARTS_SAMPLED):
                owner = source.twin()
                dying = deepcopy(disk)
                dying.crash_at = calls
                with suppress(Crashed):
                    owner.reopen(clean=False, disk=dying)
                    ended = True
                left = dying.after_crash(Loss.HOLES, Random(seed * 1000 + calls))
                owner.reopen(clean=False, disk=left)
                assert offsets(owner.log) == list(range(96)), (seed, calls)
            calls += 1

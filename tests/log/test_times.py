"""Offsets by time, in batches whose records have any times, against a list of the records."""

from collections.abc import Sequence
from random import Random

import pytest

from log.logs import new_log
from ottla.ids import Offset
from ottla.log.partition_log import PartitionLog
from ottla.log.rules import LogRules
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Compression
from ottla.records.validation import TopicRules, validate
from ottla.testing.disk import finish


def append_times(
    log: PartitionLog, times: Sequence[int], compression: Compression = Compression.NONE
) -> None:
    """A batch whose records have these timestamps."""
    builder = BatchBuilder(compression=compression)
    for timestamp in times:
        builder.append(timestamp, b"k", b"v" * 7)
    data = builder.build()
    rules = TopicRules(timestamp_after_max_ms=2**62)
    valid = validate(data, rules, now_ms=0, produce_version=11)
    log.append(valid, memoryview(data), leader_epoch=0, now_ms=0)


def test_the_largest_time_is_that_of_a_record_above_a_start_within_a_batch() -> None:
    log = new_log()
    append_times(log, [100, 5, 5, 20, 50])
    append_times(log, [10])
    log.advance_log_start(Offset(2))
    assert finish(log.find_latest_time()) == (4, 50, 0)
    log.advance_log_start(Offset(5))
    assert finish(log.find_latest_time()) == (5, 10, 0)


@pytest.mark.parametrize("seed", range(60))
def test_times_are_found_as_in_a_list(seed: int) -> None:
    random = Random(seed)
    segment_bytes = random.choice([400, 1000, 3000])
    log = new_log(rules=LogRules(segment_bytes=segment_bytes, index_interval_bytes=100))
    times: list[int] = []
    for _ in range(random.randint(1, 30)):
        count = random.randint(1, 5)
        batch = [random.choice([-1, random.randint(0, 50)]) for _ in range(count)]
        append_times(log, batch, random.choice(list(Compression)))
        times += batch
        if random.random() < 0.1:
            finish(log.flush())
    for start in sorted(random.sample(range(len(times) + 1), min(len(times), 6))):
        log.advance_log_start(Offset(start))
        kept = list(enumerate(times))[start:]
        for asked in range(52):
            found = finish(log.find_time(asked))
            expected = next(((offset, time) for offset, time in kept if time >= asked), None)
            assert (None if found is None else found[:2]) == expected
        largest = max((time for _, time in kept if time >= 0), default=None)
        first = next(((offset, time) for offset, time in kept if time == largest), None)
        found = finish(log.find_latest_time())
        assert (None if found is None else found[:2]) == first

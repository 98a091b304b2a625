"""The aborted transactions in a fetch: all that its bytes contain, and few others."""

from random import Random

import pytest

from log.logs import append, end, new_log
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import batches
from ottla.testing.disk import finish


def with_transactions(seed: int) -> PartitionLog:
    """A log of several segments with interleaved transactions, many of them aborted."""
    random = Random(seed)
    log = new_log(rules=LogConfig(segment_bytes=4096, index_interval_bytes=300))
    sequences = dict.fromkeys(range(1, 6), 0)
    opened: set[int] = set()
    for _ in range(150):
        producer = random.choice(list(sequences))
        if producer in opened and random.random() < 0.4:
            end(log, producer, commit=random.random() < 0.3)
            opened.discard(producer)
        elif random.random() < 0.2:
            append(log, b"plain")
        else:
            sequence = sequences[producer]
            append(
                log, b"x" * random.randrange(90), producer_id=producer, sequence=sequence,
                transactional=True,
            )  # fmt: skip
            sequences[producer] += 1
            opened.add(producer)
    for producer in opened:
        end(log, producer, commit=False)
    return log


@pytest.mark.parametrize("seed", range(2))
def test_fetch_has_every_aborted_transaction_of_its_bytes(seed: int) -> None:
    log = with_transactions(seed)
    assert len(log.segments) > 2
    stable = log.last_stable_offset(log.log_end_offset)
    every = log.aborted_transactions(0, stable)
    fewer = 0
    for offset in range(stable):
        for bytes_max in (0, 200, 1000, 10_000):
            found = finish(log.read(offset, stable, bytes_max))
            told = log.aborted_transactions(offset, found.upper_offset)
            needed = {
                one
                for batch in batches(finish(found.read()))
                for one in every
                if batch.header.producer_id == one.producer_id
                and batch.header.is_transactional
                and not batch.header.is_control
                and one.first_offset <= batch.header.base_offset < one.last_offset
                and batch.header.last_offset >= offset
            }
            assert needed <= set(told)
            fewer += len(told) < len(log.aborted_transactions(offset, stable))
    assert fewer > stable


def test_upper_bound_is_close_to_the_fetched_bytes() -> None:
    log = with_transactions(9)
    stable = log.last_stable_offset(log.log_end_offset)
    for offset in range(0, stable, 7):
        found = finish(log.read(offset, stable, 200))
        last = list(batches(finish(found.read())))[-1].header.last_offset
        # Batches have at most 160 bytes here, and there is an index entry for every 300 bytes.
        assert last < found.upper_offset <= stable
        assert found.upper_offset - last <= 10


def test_empty_fetch_has_no_aborted_transactions() -> None:
    log = with_transactions(3)
    found = finish(log.read(log.log_end_offset, log.log_end_offset, 1000))
    assert log.aborted_transactions(log.log_end_offset, found.upper_offset) == []

"""Compares a partition in our log with everything that a real Kafka answers about it."""

import asyncio
from collections.abc import Collection, Iterable

from log.kafka_answers import (
    EPOCHS,
    LATEST_TIME,
    AtTime,
    ConsumedRecord,
    KafkaAnswers,
    ProducerAnswer,
)
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import Batch, batches
from ottla.records.control import ControlType, read_control


def assert_agree(
    log: PartitionLog,
    answers: KafkaAnswers,
    *,
    aborted_lost: bool = False,
    times_wrong: bool = False,
) -> None:
    """Compare bytes, records, transactions, timestamps, epochs and producers.

    `aborted_lost`: our log needs to know only aborted transactions that still have records.
    `times_wrong`: Kafka does not find timestamps that exist.
    """
    start, end = log.log_start_offset, log.log_end_offset
    assert (start, end) == (answers.log_start, answers.high_watermark)
    data = raw(log, end)
    assert data == answers.raw
    assert _seen(data, start) == answers.seen
    stable = log.last_stable_offset(end)
    assert stable == answers.last_stable
    aborted = {
        (one.producer_id, one.first_offset) for one in log.aborted_transactions(start, stable)
    }
    if aborted_lost:
        assert aborted <= answers.aborted
        assert _with_records(data, aborted) == _with_records(data, answers.aborted)
    else:
        assert aborted == answers.aborted
    assert _committed(log, stable) == answers.committed
    times = asyncio.run(_at_times(log, answers.times))
    found = {time: (one.offset, one.timestamp) for time, one in times.items()}
    assert found == _by_time(data, start, answers.times)
    if not times_wrong:
        assert times == answers.times
    # An epoch without records is not recovered: the next leader begins one at the log end.
    written = max((batch.header.leader_epoch for batch in batches(data)), default=-1)
    assert {epoch: log.end_offset(epoch) for epoch in EPOCHS} == {
        epoch: answers.epoch_ends[epoch] if epoch <= written else None for epoch in EPOCHS
    }
    assert _producers(log) == answers.producers


def raw(log: PartitionLog, upper: int) -> bytes:
    """The batches of a log up to an offset, read in several fetches."""
    return asyncio.run(_read(log, upper))


async def _read(log: PartitionLog, upper: int) -> bytes:
    found, offset = b"", log.log_start_offset
    while offset < upper:
        piece = await (await log.read(offset, upper, 5_000)).read()
        if not piece:
            break  # compaction removed the last records
        found += piece
        offset = list(batches(piece))[-1].header.next_offset
    return found


def _seen(data: bytes, start: int) -> list[ConsumedRecord]:
    """The records that a consumer reads from the batches."""
    return [record for batch in batches(data) for record in _seen_in(batch, start)]


def _seen_in(batch: Batch, start: int) -> list[ConsumedRecord]:
    assert batch.crc_ok
    if batch.header.is_control:
        return []
    return [
        ConsumedRecord(r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
        for r in batch.records(from_offset=start)
    ]


def _committed(log: PartitionLog, stable: int) -> list[ConsumedRecord]:
    """The records that a read_committed consumer reads from the batches (KIP-98)."""
    start = log.log_start_offset
    begins = sorted(
        (one.first_offset, one.producer_id) for one in log.aborted_transactions(start, stable)
    )
    aborted: set[int] = set()
    found: list[ConsumedRecord] = []
    for batch in batches(raw(log, stable)):
        header = batch.header
        while begins and begins[0][0] <= header.last_offset:
            aborted.add(begins.pop(0)[1])
        if header.is_control:
            if _is_abort(batch):
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            found += _seen_in(batch, start)
    return found


def _is_abort(batch: Batch) -> bool:
    control = read_control(batch)  # None if compaction emptied the batch
    return control is not None and control.type == ControlType.ABORT


async def _at_times(log: PartitionLog, asked: Iterable[int]) -> dict[int, AtTime]:
    found: dict[int, AtTime] = {}
    for time in asked:
        at = await (log.find_max_timestamp() if time == LATEST_TIME else log.find_timestamp(time))
        found[time] = AtTime(-1, -1, -1) if at is None else AtTime(*at)
    return found


def _by_time(data: bytes, start: int, asked: Iterable[int]) -> dict[int, tuple[int, int]]:
    """The first records at or after each timestamp, found by a linear search; markers count too."""
    records = [
        (record.offset, record.timestamp)
        for batch in batches(data)
        for record in batch.records(from_offset=start)
    ]
    latest = max((time for _, time in records), default=0)
    late = {time: latest if time == LATEST_TIME else time for time in asked}
    return {
        time: next((record for record in records if record[1] >= least), (-1, -1))
        for time, least in late.items()
    }


def _with_records(data: bytes, aborted: Collection[tuple[int, int]]) -> set[tuple[int, int]]:
    """The aborted transactions of which compaction left more than the marker."""
    headers = [batch.header for batch in batches(data)]
    left: set[tuple[int, int]] = set()
    for producer_id, first_offset in aborted:
        own = [h for h in headers if h.producer_id == producer_id and h.last_offset >= first_offset]
        if own and not own[0].is_control:
            left.add((producer_id, first_offset))
    return left


def _producers(log: PartitionLog) -> list[ProducerAnswer]:
    return sorted(
        ProducerAnswer(
            one.producer_id,
            one.epoch,
            one.last_sequence,
            one.last_timestamp,
            -1 if one.transaction_first_offset is None else one.transaction_first_offset,
        )
        for one in log.producers
    )

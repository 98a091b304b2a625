"""A compacted log and a model of its expected content, made of lists and dicts.

The model does not know bytes, segments or hashes. A batch is a list of records, and a cleaning
works on all batches at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import NamedTuple

from log.logs import FOLDER, end, opened, raw
from ottla.ids import LeaderEpoch, Offset
from ottla.log.cleaner.cleaner_runners import Cleaner, LocalCleaner
from ottla.log.cleaner.compaction import CleaningDone, CleaningLimits
from ottla.log.log_config import LogConfig
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import Batch, TimestampType, batches
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Compression
from ottla.records.control import read_control
from ottla.records.validation import ValidationConfig, validate
from ottla.testing.disk import Loss, SimulatedDisk, finish

SECRET = bytes(range(16))
RULES = LogConfig(
    segment_bytes=900, index_interval_bytes=200, delete=False, compact=True, delete_retention_ms=50
)
Pair = tuple[bytes | None, bytes | None]


class ConsumedRecord(NamedTuple):
    """A record as a consumer reads it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int


@dataclass
class WrittenBatch:
    """A batch of the model."""

    base: int
    last: int
    records: list[ConsumedRecord]
    producer: int = -1
    epoch: int = -1
    sequence: int = -1
    transaction: int | None = None  # a marker has that of the transaction it ends
    marker: str | None = None
    horizon_ms: int | None = None

    def facts(self) -> tuple[object, ...]:
        """The content that must be read back."""
        return (
            self.base,
            self.last,
            self.records,
            self.producer,
            self.sequence,
            self.marker if self.records else None,
            self.marker is not None,
            self.horizon_ms if self.records else None,
        )


def read_facts(batch: Batch) -> tuple[object, ...]:
    """The same content of a batch of the log."""
    header = batch.header
    assert batch.crc_ok
    records = [ConsumedRecord(r.offset, r.key, r.value, r.timestamp) for r in batch.records()]
    marker = None
    if header.is_control and records:
        control = read_control(batch)
        assert control is not None
        marker = "commit" if control.type == 1 else "abort"
    return (
        header.base_offset,
        header.last_offset,
        records,
        header.producer_id,
        header.base_sequence,
        marker,
        header.is_control,
        header.delete_horizon_ms if records else None,
    )


@dataclass
class Model:
    """Every batch, the open transactions, and how the other transactions ended."""

    batches: list[WrittenBatch] = field(default_factory=list[WrittenBatch])
    outcomes: dict[int, str] = field(default_factory=dict[int, str])
    producers: dict[int, tuple[int, int | None]] = field(
        default_factory=dict[int, tuple[int, int | None]]
    )

    def copy(self) -> "Model":
        fresh = [replace(one, records=list(one.records)) for one in self.batches]
        return Model(fresh, dict(self.outcomes), dict(self.producers))

    def is_aborted(self, batch: WrittenBatch) -> bool:
        return self.outcomes.get(batch.transaction or 0) == "abort"

    def clean(
        self,
        *,
        first_dirty: int,
        mapped_until: int,
        visited_until: int,
        round_end: int,
        now_ms: int,
        retention_ms: int,
    ) -> None:
        last: dict[bytes, int] = {}
        for batch in self.batches:
            if batch.marker is None and not self.is_aborted(batch):
                for record in batch.records:
                    if record.key is not None and first_dirty <= record.offset < mapped_until:
                        last[record.key] = record.offset
        visited = [one for one in self.batches if one.base < visited_until]
        with_batches = {one.transaction for one in visited if one.marker is None}
        for batch in visited:
            over = batch.horizon_ms is not None and batch.horizon_ms <= now_ms
            if batch.marker is not None:
                if batch.transaction not in with_batches and batch.records:
                    if over:
                        batch.records = []
                    elif batch.horizon_ms is None:
                        batch.horizon_ms = now_ms + retention_ms
            elif self.is_aborted(batch):
                batch.records = []
            else:
                batch.records = [
                    one for one in batch.records if stays(one, last, mapped_until, over)
                ]
                if batch.horizon_ms is None and any(one.value is None for one in batch.records):
                    batch.horizon_ms = now_ms + retention_ms
        self.batches = [
            one
            for one in self.batches
            if one not in visited
            or one.records
            or one.last + 1 == round_end
            or self.tells_of_producer(one)
        ]

    def tells_of_producer(self, batch: WrittenBatch) -> bool:
        if batch.producer not in self.producers:
            return False
        epoch, last = self.producers[batch.producer]
        if last is not None:
            return batch.last == last
        return batch.marker is not None and batch.epoch == epoch

    def committed(self) -> dict[bytes, bytes | None]:
        """The table that a read_committed consumer builds from the records."""
        table: dict[bytes, bytes | None] = {}
        for batch in self.batches:
            if batch.marker is None and not self.is_aborted(batch):
                for record in batch.records:
                    if record.key is not None:
                        table[record.key] = record.value
        return {key: value for key, value in table.items() if value is not None}


def stays(record: ConsumedRecord, last: dict[bytes, int], mapped_until: int, over: bool) -> bool:
    if record.offset >= mapped_until:
        return True
    if record.key is None or (record.value is None and over):
        return False
    return last.get(record.key, -1) <= record.offset


class CompactedLog:
    """A log on a simulated disk with its model."""

    def __init__(
        self,
        rules: LogConfig = RULES,
        disk: SimulatedDisk | None = None,
        recovery_point: int = 0,
    ) -> None:
        self.rules = rules
        self.disk = disk or SimulatedDisk()
        self.model = Model()
        self.now_ms = 1000
        self.first_dirty_offset: int | None = None
        self.transactions = 0
        self.open: dict[int, int] = {}  # producer to transaction
        self.epochs: dict[int, int] = {}
        self.sequences: dict[int, int] = {}
        self.log = opened(self.disk, rules, recovery_point=recovery_point).log
        self.log.begin_epoch(LeaderEpoch(0))

    def append(
        self,
        pairs: Sequence[Pair],
        producer: int = -1,
        *,
        transactional: bool = False,
        compression: Compression = Compression.NONE,
        append_time: bool = False,
    ) -> None:
        epoch = self.epochs.get(producer, 0)
        sequence = self.sequences.get(producer, 0)
        builder = BatchBuilder(compression=compression)
        base = self.log.log_end_offset
        records: list[ConsumedRecord] = []
        for number, (key, value) in enumerate(pairs):
            timestamp = self.now_ms if append_time else self.now_ms + number % 3
            builder.append(timestamp, key, value, [("h", b"1")] * (number % 2))
            records.append(ConsumedRecord(base + number, key, value, timestamp))
        data = builder.build(
            producer_id=producer,
            producer_epoch=epoch if producer >= 0 else -1,
            base_sequence=sequence if producer >= 0 else -1,
            transactional=transactional,
        )
        kind = TimestampType.LOG_APPEND_TIME if append_time else TimestampType.CREATE_TIME
        valid = validate(
            data, ValidationConfig(timestamp_type=kind), now_ms=self.now_ms, produce_version=11
        )
        self.log.append(valid, memoryview(data), leader_epoch=0, now_ms=self.now_ms)
        transaction = None
        if transactional:
            if producer not in self.open:
                self.transactions += 1
                self.open[producer] = self.transactions
            transaction = self.open[producer]
        last = base + len(pairs) - 1
        self.model.batches.append(
            WrittenBatch(
                base,
                last,
                records,
                producer,
                epoch if producer >= 0 else -1,
                sequence if producer >= 0 else -1,
                transaction,
            )
        )
        if producer >= 0:
            self.sequences[producer] = sequence + len(pairs)
            self.model.producers[producer] = (epoch, last)

    def end(self, producer: int, *, commit: bool, raise_epoch: bool = False) -> None:
        epoch = self.epochs.get(producer, 0) + raise_epoch
        word = "commit" if commit else "abort"
        transaction = self.open.pop(producer, None)
        if transaction is None:
            self.transactions += 1
            transaction = self.transactions
        self.model.outcomes[transaction] = word
        offset = end(self.log, producer, commit=commit, epoch=epoch).base_offset
        (batch,) = batches(finish(finish(self.log.read(offset, offset + 1, 1)).read()))
        records = [ConsumedRecord(r.offset, r.key, r.value, r.timestamp) for r in batch.records()]
        self.model.batches.append(
            WrittenBatch(offset, offset, records, producer, epoch, -1, transaction, word)
        )
        if raise_epoch:
            self.epochs[producer] = epoch
            self.sequences[producer] = 0
            self.model.producers[producer] = (epoch, None)
        elif producer not in self.model.producers:
            self.model.producers[producer] = (epoch, None)

    def compact(
        self, cleaner: Cleaner | None = None, limits: CleaningLimits | None = None
    ) -> CleaningDone | None:
        """Clean the log, and apply the same cleaning to the model."""
        log = self.log
        first = log.log_start_offset if self.first_dirty_offset is None else self.first_dirty_offset
        bases = [segment.base_offset for segment in log.segments]
        dirt = finish(
            log.find_cleanable(
                self.first_dirty_offset, high_watermark=log.log_end_offset, now_ms=self.now_ms
            )
        )
        assert dirt.end_offset <= log.last_stable_offset(log.log_end_offset)
        done = finish(
            log.compact(
                cleaner or LocalCleaner(),
                self.first_dirty_offset,
                high_watermark=log.log_end_offset,
                secret=SECRET,
                clock_ms=lambda: self.now_ms,
                limits=limits,
            )
        )
        if done is not None:
            reached = done.first_dirty_offset
            self.model.clean(
                first_dirty=first,
                mapped_until=reached,
                visited_until=min(base for base in bases if base >= reached),
                round_end=dirt.end_offset,
                now_ms=self.now_ms,
                retention_ms=self.rules.delete_retention_ms,
            )
            self.first_dirty_offset = reached
        return done

    def facts(self) -> list[tuple[object, ...]]:
        return [read_facts(batch) for batch in batches(raw(self.log))]

    def check(self) -> None:
        """Check that the log and a copy opened by another broker match the model."""
        assert self.facts() == [batch.facts() for batch in self.model.batches]
        assert committed_table(self.log) == self.model.committed()
        follower = opened(SimulatedDisk(), self.rules).log
        if data := raw(self.log):
            follower.append_replicated(data, fetched_offset=0, now_ms=0)
        assert committed_table(follower) == self.model.committed()
        assert sequences(follower) == sequences(self.log)
        end = self.log.log_end_offset
        assert follower.last_stable_offset(end) == self.log.last_stable_offset(end)

    def twin(self) -> "CompactedLog":
        """A copy of the closed log and its model, on a copy of the disk."""
        copy = self.disk.after_crash(Loss.ALL, Random(0))
        other = CompactedLog(self.rules, copy, self.log.recovery_point)
        other.model = self.model.copy()
        other.now_ms, other.first_dirty_offset = self.now_ms, self.first_dirty_offset
        other.transactions, other.open = self.transactions, dict(self.open)
        other.epochs, other.sequences = dict(self.epochs), dict(self.sequences)
        return other

    def reopen(self, *, clean: bool = True, disk: SimulatedDisk | None = None) -> list[str]:
        if clean:
            finish(self.log.close())
        self.disk = disk or self.disk
        found = opened(
            self.disk,
            self.rules,
            clean=clean,
            recovery_point=self.log.recovery_point,
            log_start=self.log.log_start_offset,
        )
        self.log = found.log
        self.log.begin_epoch(LeaderEpoch(0))
        return found.notes


def sequences(log: PartitionLog) -> dict[int, tuple[object, ...]]:
    """The sequences by which the log detects duplicates, per producer that wrote in its epoch."""
    return {
        one.producer_id: (
            one.epoch,
            one.last_sequence,
            one.last_offset,
            one.transaction_first_offset,
        )
        for one in log.producers
        if one.last_offset is not None
    }


def committed_table(log: PartitionLog) -> dict[bytes, bytes | None]:
    """The table that a read_committed consumer builds from the log."""
    upper = log.log_end_offset
    aborted = log.aborted_transactions(log.log_start_offset, upper)
    table: dict[bytes, bytes | None] = {}
    for batch in batches(raw(log)):
        header = batch.header
        if header.is_control or (
            header.is_transactional
            and any(
                one.producer_id == header.producer_id
                and one.first_offset <= header.base_offset <= one.last_offset
                for one in aborted
            )
        ):
            continue
        for record in batch.records():
            if record.key is not None:
                table[record.key] = record.value
    return {key: value for key, value in table.items() if value is not None}


def write_randomly(owner: CompactedLog, random: Random, count: int) -> None:
    """Write repeated keys, tombstones, transactions of three producers, and all codecs."""
    for _ in range(count):
        owner.now_ms += random.randrange(8)
        producer = random.choice([-1, -1, 1, 2, 7, 8, 9])
        pairs = [
            (
                random.choice([None, b"", *(b"key-%d" % n for n in range(random.choice([4, 40])))]),
                random.choice([None, b"", b"%d" % random.getrandbits(200)]),
            )
            for _ in range(random.randrange(1, 6))
        ]
        transactional = producer >= 7
        owner.append(
            pairs,
            producer,
            transactional=transactional,
            compression=random.choice([Compression.NONE, *Compression]),
            append_time=random.random() < 0.2,
        )
        ending = random.choice([*owner.open, 7, None, None])
        if ending is not None:
            owner.end(ending, commit=random.random() < 0.5, raise_epoch=random.random() < 0.3)


def offsets(log: PartitionLog) -> list[int]:
    return [r.offset for b in batches(raw(log)) if not b.header.is_control for r in b.records()]


def files(disk: SimulatedDisk, suffix: str) -> list[str]:
    return [name for name in disk.names(FOLDER) if name.endswith(suffix)]


def at(offset: int) -> Offset:
    return Offset(offset)

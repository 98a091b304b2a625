"""The state of idempotent and transactional producers in a partition (rules D1 to D4, E4, E7).

Invariant: the state is a function of the log: replicas with the same batches have the same state. A
batch or a marker is checked first, which changes nothing, and applied after it was appended. The
last stable offset never passes an open transaction, nor one whose marker is not below the high
watermark.

A leader checks what clients and coordinators send. A follower checks nothing and applies what its
leader wrote, as does a broker that replays its log after a restart.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, NoReturn, TypeAlias

from ottla.errors import ErrorCode, RequestError
from ottla.ids import NO_SEQUENCE, Offset, ProducerEpoch, ProducerId, Sequence
from ottla.records.batch import CONTROL, NO_TIMESTAMP, TRANSACTIONAL, Batch, BatchHeader
from ottla.records.control import EndTxnMarker, read_control, read_end_txn_marker

CACHED_BATCHES: Final = 5
"""Batches kept per producer: as many as a producer may have in flight (Kafka's limit)."""

NO_COORDINATOR_EPOCH: Final = -1
_SEQUENCE_MASK: Final = 0x7FFFFFFF  # sequences wrap from 2**31 - 1 to 0
_EPOCH_MAX: Final = 0x7FFF

CachedBatch: TypeAlias = tuple[int, int, int, int, int]
"""First and last sequence, first and last offset, timestamp. A plain tuple for speed."""


class Duplicate(NamedTuple):
    """The offsets of a batch that was sent again (rule D1)."""

    base_offset: Offset
    last_offset: Offset
    timestamp: int


class CompletedTransaction(NamedTuple):
    """A transaction whose marker was applied, with the fields of its transaction index entry."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset  # of the marker
    aborted: bool
    last_stable_offset: Offset  # after this transaction, as if everything were replicated


class ProducerStateEntry:
    """The state of one producer in one partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "next_sequence",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: ProducerId, epoch: ProducerEpoch) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.last_timestamp = NO_TIMESTAMP
        self.transaction_first_offset: Offset | None = None  # None: no open transaction
        self.batches: list[CachedBatch] = []  # of this epoch, the latest last
        self.next_sequence = 0

    @property
    def last_sequence(self) -> Sequence:
        """The sequence of the last record; -1 if there is none in this epoch."""
        return Sequence(self.batches[-1][1]) if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> Offset | None:
        """The offset of the last record of this epoch."""
        return Offset(self.batches[-1][3]) if self.batches else None

    def start_epoch(self, epoch: ProducerEpoch) -> None:
        """Start another epoch, in which sequences start at 0."""
        self.epoch = epoch
        self.batches.clear()
        self.next_sequence = 0

    def duplicate_of(self, header: BatchHeader) -> Duplicate | None:
        """The cached batch with exactly these sequences."""
        first = header.base_sequence
        for cached in self.batches:
            if cached[0] == first and cached[1] == header.last_sequence:
                return Duplicate(Offset(cached[2]), Offset(cached[3]), cached[4])
        return None


class ProducerStateManager:
    """The producers of one partition, its open transactions, and those not replicated yet."""

    __slots__ = ("_open", "_producers", "_unreplicated")

    def __init__(self, producers: Iterable[ProducerStateEntry] = ()) -> None:
        self._producers = {producer.producer_id: producer for producer in producers}
        # First offsets of the open transactions in log order, so the first entry is the earliest.
        # A plain dict would be slow to find it after many removals.
        self._open: OrderedDict[ProducerId, Offset] = OrderedDict(
            sorted(self._opened(), key=lambda opened: opened[1])
        )
        # First and last offsets of completed transactions. Both increase: a transaction that ends
        # later and started earlier also covers the ones before it.
        self._unreplicated: deque[tuple[Offset, Offset]] = deque()

    def _opened(self) -> Iterator[tuple[ProducerId, Offset]]:
        for producer in self:
            if producer.transaction_first_offset is not None:
                yield producer.producer_id, producer.transaction_first_offset

    def __iter__(self) -> Iterator[ProducerStateEntry]:
        return iter(self._producers.values())

    def get(self, producer_id: ProducerId) -> ProducerStateEntry | None:
        """The state of a producer."""
        return self._producers.get(producer_id)

    @property
    def count(self) -> int:
        """The number of known producers."""
        return len(self._producers)

    @property
    def first_open_offset(self) -> Offset | None:
        """The first offset of the earliest open transaction; the cleaner stays below it."""
        return next(iter(self._open.values()), None)

    # Checks of a leader; they change nothing.

    def check(self, header: BatchHeader, *, from_client: bool) -> Duplicate | None:
        """Reject a batch, return the batch it duplicates, or return None: append it.

        A batch of an unknown producer is accepted (rule D2): its earlier records may have been
        deleted. Batches from a leader or from the log (`from_client` False) are accepted, too.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None or not from_client:
            return None
        if header.producer_epoch == producer.epoch:
            if duplicate := producer.duplicate_of(header):
                return duplicate
            if header.base_sequence != producer.next_sequence:
                _reject_sequence(header, producer)
        elif header.producer_epoch < producer.epoch:
            _reject_epoch(producer, header.producer_epoch)
        elif header.base_sequence:
            _reject_sequence(header, producer)
        if producer.transaction_first_offset is not None and not header.attributes & TRANSACTIONAL:
            _reject_outside(producer)
        return None

    def check_from_coordinator(self, header: BatchHeader) -> None:
        """Reject a coordinator's batch by its epoch; such batches have no sequences."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return
        if header.producer_epoch < producer.epoch:
            _reject_epoch(producer, header.producer_epoch)
        if producer.transaction_first_offset is not None and not header.is_transactional:
            _reject_outside(producer)

    def check_marker(
        self,
        marker: EndTxnMarker,
        *,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        transaction_version: int,
    ) -> None:
        """Reject the marker of a zombie producer or coordinator (rule E4).

        From transaction version 2 on, each transaction has its own epoch and its marker a higher
        one. A marker with an equal epoch belongs to an earlier transaction. It is accepted if no
        transaction is open, because then it is a retry, or if the epoch cannot increase any more
        (KIP-1228).
        """
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        if producer_epoch < producer.epoch or (
            transaction_version >= 2
            and producer_epoch == producer.epoch
            and producer.transaction_first_offset is not None
            and producer_epoch != _EPOCH_MAX
        ):
            _reject_epoch(producer, producer_epoch)
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise RequestError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"producer {producer_id}: coordinator epoch {marker.coordinator_epoch}, "
                f"current {producer.coordinator_epoch}",
            )

    # Changes, after the batch was appended.

    def append(self, header: BatchHeader, base_offset: Offset, timestamp: int) -> None:
        """Apply an appended batch with its base offset and largest timestamp."""
        producer_id = header.producer_id
        if producer_id < 0:
            return
        attributes = header.attributes
        assert not attributes & CONTROL, "a marker is not a batch of records"
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = ProducerStateEntry(producer_id, header.producer_epoch)
            self._producers[producer_id] = producer
        elif header.producer_epoch != producer.epoch:
            producer.start_epoch(header.producer_epoch)
        sequence = header.base_sequence
        delta = header.last_offset_delta
        last_sequence = (sequence + delta) & _SEQUENCE_MASK if sequence >= 0 else NO_SEQUENCE
        batches = producer.batches
        if len(batches) == CACHED_BATCHES:
            del batches[0]
        batches.append((sequence, last_sequence, base_offset, base_offset + delta, timestamp))
        producer.next_sequence = (last_sequence + 1) & _SEQUENCE_MASK
        producer.last_timestamp = timestamp
        if attributes & TRANSACTIONAL and producer.transaction_first_offset is None:
            producer.transaction_first_offset = base_offset
            self._open[producer_id] = base_offset

    def end_transaction(
        self,
        marker: EndTxnMarker,
        *,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        offset: Offset,
        timestamp: int,
    ) -> CompletedTransaction | None:
        """Apply a marker; None if the transaction has no records in this partition."""
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = ProducerStateEntry(
                producer_id, producer_epoch
            )
        elif producer_epoch != producer.epoch:
            producer.start_epoch(producer_epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = timestamp
        first_offset = producer.transaction_first_offset
        if first_offset is None:
            return None
        producer.transaction_first_offset = None
        del self._open[producer_id]
        while self._unreplicated and self._unreplicated[-1][0] >= first_offset:
            self._unreplicated.pop()
        self._unreplicated.append((first_offset, offset))
        stable = self.first_open_offset
        return CompletedTransaction(
            producer_id,
            first_offset,
            offset,
            not marker.commit,
            Offset(offset + 1) if stable is None else stable,
        )

    def replay(self, batch: Batch) -> CompletedTransaction | None:
        """Apply a batch or a marker of the log (rule D3)."""
        header = batch.header
        if not header.is_control:
            self.append(header, header.base_offset, header.max_timestamp)
            return None
        # A marker without a record was emptied by the cleaner after its transaction.
        if header.producer_id < 0 or (record := read_control(batch)) is None:
            return None
        if (marker := read_end_txn_marker(record)) is None:
            return None
        return self.end_transaction(
            marker,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            offset=header.base_offset,
            timestamp=record.timestamp,
        )

    def last_stable_offset(self, high_watermark: Offset, log_start: int = 0) -> Offset:
        """The offset below which every transaction is complete and its marker replicated (rule E7).

        Transactions that are below the high watermark are forgotten.
        """
        unreplicated = self._unreplicated
        while unreplicated and unreplicated[0][1] < high_watermark:
            unreplicated.popleft()
        stable = high_watermark
        if unreplicated and unreplicated[0][0] < stable:
            stable = unreplicated[0][0]
        if self._open:
            stable = min(stable, next(iter(self._open.values())))
        return Offset(max(stable, log_start))

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Expire inactive producers without an open transaction (rule D4); return their number."""
        expired = [
            producer.producer_id
            for producer in self
            if producer.transaction_first_offset is None
            and now_ms - producer.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        return len(expired)

    def clear(self) -> None:
        """Forget everything: after a truncation the state is rebuilt from the log."""
        self._producers.clear()
        self._open.clear()
        self._unreplicated.clear()


def _reject_sequence(header: BatchHeader, producer: ProducerStateEntry) -> NoReturn:
    expected = producer.next_sequence if header.producer_epoch == producer.epoch else 0
    raise RequestError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {producer.producer_id} in epoch {header.producer_epoch}: "
        f"sequence {header.base_sequence}, expected {expected}",
    )


def _reject_epoch(producer: ProducerStateEntry, epoch: ProducerEpoch) -> NoReturn:
    raise RequestError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer.producer_id}: epoch {epoch} is fenced by epoch {producer.epoch}",
    )


def _reject_outside(producer: ProducerStateEntry) -> NoReturn:
    raise RequestError(
        ErrorCode.INVALID_TXN_STATE,
        f"producer {producer.producer_id} has an open transaction since offset "
        f"{producer.transaction_first_offset}: a non-transactional batch is not allowed",
    )

"""The format of `.snapshot` files: the producer state of a partition.

Invariant: the checksum covers everything after it, and a file that does not match is ignored. A
read file gives the cached batches of every producer (rules D1 and D3). Kafka's format has only the
last batch of a producer. The earlier ones follow after the part that Kafka reads, and Kafka ignores
them. A file of Kafka does not have them. Completed transactions are not in the file.
"""

from collections.abc import Iterator, Sequence
from struct import Struct as Layout
from typing import Final

from fastcrc.crc32 import iscsi as crc32c

from ottla.errors import ProtocolViolation
from ottla.ids import Offset, ProducerEpoch, ProducerId
from ottla.log.errors import CorruptSnapshot
from ottla.log.producer_state_manager import (
    CACHED_BATCHES,
    CachedBatch,
    ProducerStateEntry,
    ProducerStateManager,
)
from ottla.protocol.message import Message
from ottla.protocol.primitives import Buffer
from ottla.protocol.schema import Struct, array, int16, int32, int64, uint32

_VERSION: Final = 1
_HEAD: Final = Layout(">hI")  # version and CRC; the message starts with the CRC
_MESSAGE_AT: Final = 2
_NONE: Final = -1
_SEQUENCE_MASK: Final = 0x7FFFFFFF

EARLIER_COUNT: Final = Layout(">i")
EARLIER_BATCH: Final = Layout(">qiqiq")
"""Producer id, last sequence, last offset, last offset minus first offset, timestamp."""


class ProducerEntry(Struct):
    """The state of one producer."""

    producer_id: int = int64("1")
    epoch: int = int16("1")
    last_sequence: int = int32("1")
    last_offset: int = int64("1")
    offset_delta: int = int32("1")
    timestamp: int = int64("1")
    coordinator_epoch: int = int32("1")
    current_txn_first_offset: int = int64("1")


class ProducerSnapshot(Message, versions="1"):
    """The file after its version."""

    crc: int = uint32("1")
    producer_entries: Sequence[ProducerEntry] = array(ProducerEntry, "1")


def write_snapshot(producers: ProducerStateManager) -> bytes:
    """The content of the file."""
    message = ProducerSnapshot(crc=0, producer_entries=[_entry(producer) for producer in producers])
    earlier = [EARLIER_BATCH.pack(*fields) for fields in _earlier_batches(producers)]
    covered = message.encode(_VERSION)[_HEAD.size - _MESSAGE_AT :]
    if earlier:
        covered += EARLIER_COUNT.pack(len(earlier)) + b"".join(earlier)
    return _HEAD.pack(_VERSION, crc32c(covered)) + covered


def read_snapshot(data: Buffer) -> ProducerStateManager:
    """The producers in a file, or CorruptSnapshot. The caller expires old producers."""
    data = bytes(data)
    if len(data) < _HEAD.size:
        raise CorruptSnapshot(f"{len(data)} bytes: too short")
    version, crc = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshot(f"unknown version {version}, expected {_VERSION}")
    if crc32c(data[_HEAD.size :]) != crc:
        raise CorruptSnapshot("wrong checksum")
    try:
        message, end = ProducerSnapshot.decode_prefix(
            data, _VERSION, position=_MESSAGE_AT, objects_max=len(data)
        )
    except ProtocolViolation as error:
        raise CorruptSnapshot(str(error)) from None
    producers = ProducerStateManager(map(_producer, message.producer_entries))
    if producers.count != len(message.producer_entries):
        raise CorruptSnapshot("duplicate producer id")
    if end < len(data):
        _read_earlier(data[end:], producers)
    return producers


def _earlier_batches(producers: ProducerStateManager) -> Iterator[tuple[int, int, int, int, int]]:
    for producer in producers:
        for _, last_sequence, base_offset, last_offset, timestamp in producer.batches[:-1]:
            delta = last_offset - base_offset
            yield producer.producer_id, last_sequence, last_offset, delta, timestamp


def _read_earlier(data: bytes, producers: ProducerStateManager) -> None:
    """Add the earlier batches, each producer's in the order of their offsets, to the producers."""
    found: dict[int, list[CachedBatch]] = {}
    size = len(data) - EARLIER_COUNT.size
    if size < 0 or EARLIER_COUNT.unpack_from(data)[0] * EARLIER_BATCH.size != size:
        raise CorruptSnapshot(f"{len(data)} bytes after the producers are not earlier batches")
    for producer_id, *fields in EARLIER_BATCH.iter_unpack(data[EARLIER_COUNT.size :]):
        found.setdefault(producer_id, []).append(_batch(*fields))
    for producer_id, batches in found.items():
        producer = producers.get(ProducerId(producer_id))
        if producer is None or not producer.batches or len(batches) >= CACHED_BATCHES:
            raise CorruptSnapshot(f"{len(batches)} earlier batches of producer {producer_id}")
        producer.batches[:0] = batches


def _entry(producer: ProducerStateEntry) -> ProducerEntry:
    last_offset = _NONE
    offset_delta = 0
    if producer.batches:
        _, _, base_offset, last_offset, _ = producer.batches[-1]
        offset_delta = last_offset - base_offset
    first_offset = producer.transaction_first_offset
    return ProducerEntry(
        producer_id=producer.producer_id,
        epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_offset=last_offset,
        offset_delta=offset_delta,
        timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_first_offset=_NONE if first_offset is None else first_offset,
    )


def _producer(entry: ProducerEntry) -> ProducerStateEntry:
    producer = ProducerStateEntry(ProducerId(entry.producer_id), ProducerEpoch(entry.epoch))
    producer.coordinator_epoch = entry.coordinator_epoch
    producer.last_timestamp = entry.timestamp
    if entry.current_txn_first_offset >= 0:
        producer.transaction_first_offset = Offset(entry.current_txn_first_offset)
    if entry.last_offset >= 0:
        producer.batches.append(
            _batch(entry.last_sequence, entry.last_offset, entry.offset_delta, entry.timestamp)
        )
        producer.next_sequence = (entry.last_sequence + 1) & _SEQUENCE_MASK
    return producer


def _batch(last_sequence: int, last_offset: int, delta: int, timestamp: int) -> CachedBatch:
    # Batches of coordinators have no sequences.
    first = (last_sequence - delta) & _SEQUENCE_MASK if last_sequence >= 0 else last_sequence
    return first, last_sequence, last_offset - delta, last_offset, timestamp

"""Corrupt record batches raise only the declared errors, and all readers agree.

There are three kinds of corruption: random bytes of a batch; the same with correct length and CRC,
as a faulty or hostile client would send it; and corrupt records in a valid batch.
"""

from random import Random
from struct import pack_into
from typing import Final

from fastcrc.crc32 import iscsi as crc32c

from cases import each_case
from fuzz_mutants import bounded_memory, explained, mutant, scaled, seeded
from ottla.errors import ErrorCode
from ottla.records._kernel import COMPILED, HEADER_SIZE, Record
from ottla.records.batch import Batch, batches, write_header
from ottla.records.builder import BatchBuilder
from ottla.records.columns import Columns, decode
from ottla.records.compression import Compression, compress
from ottla.records.control import EndTxnMarker, marker_batch, read_control, read_end_txn_marker
from ottla.records.errors import (
    ColumnsTooLarge,
    CorruptCompression,
    CorruptRecords,
    DecompressionLimitExceeded,
    InvalidRecords,
)
from ottla.records.validation import ValidationConfig, validate

NOW_MS: Final = 1_700_000_000_000
SECTION_BYTES_MAX: Final = 256 * 1024
RULES: Final = (
    ValidationConfig(decompressed_bytes_max=SECTION_BYTES_MAX),
    ValidationConfig(decompressed_bytes_max=SECTION_BYTES_MAX, compacted=True),
    ValidationConfig(decompressed_bytes_max=SECTION_BYTES_MAX, timestamp_before_max_ms=1_000),
    ValidationConfig(max_message_bytes=200),
)
# Error codes that may reject a produced batch.
CODES: Final = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
}

# The kernel in plain Python is a hundred times as slow.
SLOWER: Final = 1 if COMPILED else 10


def builder(random: Random, compression: Compression, records: int) -> BatchBuilder:
    made = BatchBuilder(compression=compression)
    for number in range(records):
        key = random.choice((None, b"", b"key-%d" % number))
        value = random.choice((None, b"", b"value" * random.randrange(9), random.randbytes(20)))
        headers = [(f"h{n}", random.choice((None, b"", b"x" * n))) for n in range(number % 4)]
        assert made.append(NOW_MS + random.randrange(-500, 500), key, value, headers)
    return made


def batch_corpus(random: Random) -> list[bytes]:
    made: list[bytes] = []
    for compression in Compression:
        made += [builder(random, compression, records).build() for records in (1, 2, 7, 40)]
        idempotent = builder(random, compression, 5)
        made.append(idempotent.build(producer_id=9, producer_epoch=1, base_sequence=2**31 - 3))
        made.append(
            idempotent.build(producer_id=9, producer_epoch=1, base_sequence=0, transactional=True)
        )
        made.append(idempotent.build(base_offset=2**40, leader_epoch=3) + made[0])
    marker = EndTxnMarker(commit=True, coordinator_epoch=4)
    made.append(marker_batch(marker, producer_id=9, producer_epoch=1, timestamp=NOW_MS))
    return made


def repaired(raw: bytes) -> bytes:
    """Return the bytes with a correct length and CRC of a single batch."""
    if len(raw) < HEADER_SIZE:
        return raw
    whole = bytearray(raw)
    pack_into(">i", whole, 8, len(whole) - 12)
    whole[16] = 2
    pack_into(">I", whole, 17, crc32c(bytes(whole[21:])))
    return bytes(whole)


def sections(random: Random) -> list[tuple[bytes, int]]:
    made = [(builder(random, Compression.NONE, count), count) for count in (1, 2, 7, 40)]
    return [(bytes(each.encoded()[HEADER_SIZE:]), count) for each, count in made]


def resealed(random: Random, section: bytes, count: int) -> bytes:
    """Return a valid batch around a corrupt section."""
    compression = random.choice([*Compression])
    buffer = bytearray(HEADER_SIZE) + compress(compression, section)
    write_header(
        buffer,
        record_count=count,
        last_offset_delta=max(count - 1, 0),
        base_timestamp=NOW_MS,
        max_timestamp=NOW_MS,
        attributes=compression.value,
    )
    return bytes(buffer)


def records_of(batch: Batch) -> list[Record] | None:
    try:
        return batch.records(decompressed_bytes_max=SECTION_BYTES_MAX).read_all()
    except (CorruptRecords, CorruptCompression, DecompressionLimitExceeded):
        return None


def one_by_one(batch: Batch) -> list[Record] | None:
    try:
        return list(batch.records(decompressed_bytes_max=SECTION_BYTES_MAX))
    except (CorruptRecords, CorruptCompression, DecompressionLimitExceeded):
        return None


def columns_of(raw: bytes, *, lenient: bool) -> Columns | None:
    try:
        return decode(
            raw, check_crc=False, lenient=lenient, decompressed_bytes_max=SECTION_BYTES_MAX
        )
    except (CorruptRecords, CorruptCompression, DecompressionLimitExceeded, ColumnsTooLarge):
        return None


def split(raw: bytes, *, lenient: bool) -> list[Batch] | None:
    try:
        return list(batches(raw, lenient=lenient))
    except CorruptRecords:
        return None


def read(raw: bytes, *, lenient: bool) -> bool:
    """Read with every reader; return whether there was anything to read."""
    found = split(raw, lenient=lenient)
    columns = columns_of(raw, lenient=lenient)
    if found is None:
        assert columns is None
        return False
    rows = 0
    readable = True
    for batch in found:
        records = records_of(batch)
        assert one_by_one(batch) == records
        if batch.header.is_control:
            _read_marker(batch)
        elif records is None:
            readable = False
        else:
            # Records cannot be before offset 0: all of them are among the rows.
            rows += len(records)
    assert (columns is not None) is readable
    if columns is not None:
        assert columns.rows == rows
        assert len(columns.timestamps) == 8 * rows
    return readable and rows > 0


def _read_marker(batch: Batch) -> None:
    try:
        record = read_control(batch)
        if record is not None:
            read_end_txn_marker(record)
    except (CorruptRecords, CorruptCompression, DecompressionLimitExceeded):
        pass


def produce(random: Random, raw: bytes) -> bool:
    """Produce as a broker does: rejected with one of its codes, or readable by all readers."""
    rules = random.choice(RULES)
    try:
        valid = validate(raw, rules, now_ms=NOW_MS, produce_version=random.choice((3, 7, 9)))
    except InvalidRecords as invalid:
        return _refused_with(invalid.code)
    records = Batch(raw).records(decompressed_bytes_max=rules.decompressed_bytes_max).read_all()
    assert [record.offset for record in records] == list(range(valid.record_count))
    assert valid.max_timestamp == max(-1, *(record.timestamp for record in records))
    assert not rules.compacted or all(record.key is not None for record in records)
    return True


def _refused_with(code: ErrorCode) -> bool:
    assert code in CODES
    return False


@each_case("shard", range(2))
def test_corrupt_batches(shard: int) -> None:
    random = seeded("batches", shard)
    corpus = batch_corpus(random)
    plain = sections(random)
    inputs = scaled("batches", 2) // SLOWER
    for raw in corpus:
        assert read(raw, lenient=False) or Batch(raw).header.is_control
    counts = {"read": 0, "produced": 0}
    done = 0
    with bounded_memory():
        while done < inputs:
            match random.randrange(4):
                case 0:
                    raw = mutant(random, corpus)
                case 1 | 2:
                    raw = repaired(mutant(random, corpus))
                case _:
                    section, count = random.choice(plain)
                    hurt = mutant(random, [section])
                    raw = resealed(random, hurt, count + random.choice((0, 0, 0, 0, 1, -1, 2**20)))
            with explained("batches", shard, done, raw=raw.hex()):
                counts["read"] += read(raw, lenient=random.randrange(2) == 0)
                counts["produced"] += produce(random, raw)
            done += 1
    assert done >= inputs
    assert all(inputs / 1000 < count < inputs for count in counts.values()), counts

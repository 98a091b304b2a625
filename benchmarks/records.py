"""Records per second that Ottla encodes, decodes and validates, compared with other Python clients.

Invariant: in a case all candidates use the same records: values of 100 bytes, no keys, no headers,
uncompressed, a thousand per batch. Decoding returns every key, value, offset and timestamp;
encoding builds a whole batch with its CRC.

The peers have no columns, so their figure there is for single records.
"""

from collections.abc import Iterator
from io import BytesIO
from typing import Any, cast

import kafka.record.default_records
import kio.records.readers
import kio.records.schema
import kio.records.writers
from aiokafka.record._crecords.default_records import (  # the compiled codec, never the fallback
    DefaultRecordBatch,
    DefaultRecordBatchBuilder,
)

from harness import Case, run
from ottla.records import BatchBuilder, ValidationConfig, batches, decode, encode, validate
from ottla.records.arrow import binary_column, to_arrow
from ottla.records.columns import partitions

RECORDS = 1000
BATCHES = 10  # about 1 MB, the size of a fetched partition
VALUE = b"0123456789" * 10
NOW_MS = 1_700_000_000_000
LIMIT_BYTES = 1_000_000

kafka_python = cast("Any", kafka.record.default_records)  # has no types


def our_batch(base_offset: int = 0) -> bytes:
    builder = BatchBuilder(LIMIT_BYTES)
    append = builder.append
    for number in range(RECORDS):
        append(NOW_MS + number, None, VALUE)
    return builder.build(base_offset=base_offset)


def aiokafka_batch() -> bytearray:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=LIMIT_BYTES,
    )
    append = builder.append
    for number in range(RECORDS):
        append(number, NOW_MS + number, None, VALUE, [])
    return builder.build()


def kafka_python_batch() -> object:
    builder = kafka_python.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=LIMIT_BYTES,
    )
    append = builder.append
    for number in range(RECORDS):
        append(number, NOW_MS + number, None, VALUE, [])
    return builder.build()


def kio_batch(prepared: kio.records.schema.RecordBatch) -> bytes:
    buffer = BytesIO()
    kio.records.writers.write_batch(buffer, prepared)
    return buffer.getvalue()


def read_ours(data: bytes) -> None:
    for batch in batches(data):
        for _ in batch.records():
            pass


def read_aiokafka(data: bytes) -> None:
    for _ in DefaultRecordBatch(data):
        pass


def read_kafka_python(data: bytes) -> None:
    for _ in kafka_python.DefaultRecordBatch(data):
        pass


def kept_by_aiokafka(data: bytes) -> list[object]:
    return list(DefaultRecordBatch(data))


def kept_by_us(data: bytes) -> list[object]:
    return [record for batch in batches(data) for record in batch.records().read_all()]


def cases() -> Iterator[Case]:
    one = our_batch()
    run_of_batches = b"".join(our_batch(number * RECORDS) for number in range(BATCHES))
    one_by_one = [one] * BATCHES
    columns = decode(run_of_batches)
    rules = ValidationConfig()
    kio_prepared, _ = kio.records.readers.read_batch(one, 0)
    keys = binary_column(to_arrow(columns).column("value"))
    in_batch = RECORDS / 1e6
    in_run = BATCHES * in_batch

    yield Case(
        "columns: decode a run",
        {
            "ottla": lambda: decode(run_of_batches),
            "aiokafka": lambda: [read_aiokafka(each) for each in one_by_one],
        },
        in_run,
        target_rate=20,
    )
    yield Case(
        "columns: encode into batches",
        {
            "ottla": lambda: encode(columns, limit=len(one)),
            "aiokafka": lambda: [aiokafka_batch() for _ in range(BATCHES)],
        },
        in_run,
        target_rate=10,
    )
    yield Case("columns: partitions of 100 B keys", {"ottla": lambda: partitions(keys, 12)}, in_run)
    yield Case(
        "validate a produced batch",
        {"ottla": lambda: validate(one, rules, now_ms=NOW_MS, produce_version=9)},
        in_batch,
        target_rate=20,
    )
    yield Case(
        "one at a time: decode",
        {
            "ottla": lambda: read_ours(one),
            "aiokafka": lambda: read_aiokafka(one),
            "kafka-python": lambda: read_kafka_python(one),
            "kio": lambda: kio.records.readers.read_batch(one, 0),
        },
        in_batch,
        target_ratio=1.5,
    )
    yield Case(
        "one at a time: decode and keep",
        {"ottla": lambda: kept_by_us(one), "aiokafka": lambda: kept_by_aiokafka(one)},
        in_batch,
        target_ratio=1.5,
    )
    yield Case(
        "one at a time: encode",
        {
            "ottla": our_batch,
            "aiokafka": aiokafka_batch,
            "kafka-python": kafka_python_batch,
            "kio": lambda: kio_batch(kio_prepared),
        },
        in_batch,
        target_ratio=1.5,
    )


if __name__ == "__main__":
    run(
        __file__,
        "Records encoded, decoded and checked a second",
        cases(),
        "million records",
        ("aiokafka", "kafka-python", "kio", "pyarrow"),
    )

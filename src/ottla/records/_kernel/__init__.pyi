"""The types of the kernel, for its callers; the modules beside this file have the code."""

from collections import deque
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar, final

from ottla.protocol.primitives import Buffer

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

COMPILED: Final[bool]
HEADER_SIZE: Final = 61
RECORD_OVERHEAD_MAX: Final = 26
NOT_PAIRS: Final[str]
REASONS: Final[tuple[str, ...]]

def read_varint(data: Buffer, pos: int = 0) -> tuple[int, int]: ...
def read_varlong(data: Buffer, pos: int = 0) -> tuple[int, int]: ...
def write_varint(value: int) -> bytes: ...
def write_varlong(value: int) -> bytes: ...
def count_records(data: Buffer) -> int: ...
def check_records(
    data: Buffer, count: int, base_timestamp: int, timestamp_min: int, timestamp_max: int
) -> tuple[int, int, int, int, int, int]: ...
def find_invalid_records(
    data: Buffer,
    count: int,
    base_timestamp: int,
    timestamp_min: int,
    timestamp_max: int,
    key_required: bool,
    limit: int,
) -> list[tuple[int, int | None]]: ...

@final
class Record:
    def __init__(
        self,
        offset: int,
        timestamp: int,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> None: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

_TupleT = TypeVar("_TupleT", bound=tuple[Any, ...])

@final
class RecordReader:
    def __init__(
        self,
        data: Buffer,
        count: int,
        last_delta: int,
        base_offset: int,
        base_timestamp: int,
        append_timestamp: int | None = None,
        from_offset: int = 0,
    ) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Record: ...
    def read_all(self) -> list[Record]: ...

def read_record_tuples(
    kind: type[_TupleT],
    topic: str,
    partition: int,
    timestamp_types: tuple[int, int],
    batches: Iterable[Any],
    from_offset: int,
    records_min: int,
    bytes_min: int,
    crc32c: Callable[[Buffer], int] | None,
    decompressed_bytes_max: int,
) -> tuple[list[_TupleT], int]: ...

@final
class ColumnBuilder:
    def __init__(self) -> None: ...
    def append_batch(
        self,
        data: Buffer,
        count: int,
        last_delta: int,
        base_offset: int,
        base_timestamp: int,
        append_timestamp: int | None = None,
        from_offset: int = 0,
        to_offset: int = ...,
    ) -> None: ...
    def append_batches(
        self,
        batches: list[Any],
        from_offset: int,
        to_offset: int,
        crc32c: Callable[[Buffer], int] | None,
        decompressed_bytes_max: int,
    ) -> list[tuple[int, int]]: ...
    def finish(self) -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def key_nulls(self) -> int: ...
    @property
    def value_nulls(self) -> int: ...
    @property
    def headers(self) -> int: ...
    @property
    def header_value_nulls(self) -> int: ...
    @property
    def offsets(self) -> bytearray: ...
    @property
    def timestamps(self) -> bytearray: ...
    @property
    def key_offsets(self) -> bytearray: ...
    @property
    def key_data(self) -> bytearray: ...
    @property
    def key_validity(self) -> bytearray: ...
    @property
    def value_offsets(self) -> bytearray: ...
    @property
    def value_data(self) -> bytearray: ...
    @property
    def value_validity(self) -> bytearray: ...
    @property
    def header_offsets(self) -> bytearray: ...
    @property
    def header_key_offsets(self) -> bytearray: ...
    @property
    def header_key_data(self) -> bytearray: ...
    @property
    def header_value_offsets(self) -> bytearray: ...
    @property
    def header_value_data(self) -> bytearray: ...
    @property
    def header_value_validity(self) -> bytearray: ...

@final
class BinaryColumn:
    def __init__(
        self,
        offsets: Buffer,
        data: Buffer,
        validity: Buffer | None,
        length: int,
        start: int = 0,
        large: bool = False,
    ) -> None: ...
    @property
    def length(self) -> int: ...

@final
class HeaderColumn:
    def __init__(
        self,
        offsets: Buffer,
        validity: Buffer | None,
        keys: BinaryColumn,
        values: BinaryColumn,
        length: int,
        start: int = 0,
        large: bool = False,
    ) -> None: ...
    @property
    def length(self) -> int: ...

@final
class TimestampColumn:
    def __init__(self, values: Buffer, length: int) -> None: ...
    @property
    def length(self) -> int: ...

def encode_rows(
    keys: BinaryColumn | None,
    values: BinaryColumn | None,
    headers: HeaderColumn | None,
    timestamps: TimestampColumn | None,
    timestamp: int,
    start: int,
    stop: int,
    limit: int,
) -> tuple[bytearray, int, int, int]: ...
def find_oversized_row(
    keys: BinaryColumn | None,
    values: BinaryColumn | None,
    headers: HeaderColumn | None,
    start: int,
    stop: int,
    limit: int,
) -> tuple[int, int]: ...

class RecordRef:
    __slots__ = ("_batch", "_index")
    _batch: Any
    _index: int
    def __init__(self, batch: object, index: int) -> None: ...

class RecordAppender:
    def __init__(self, limit: int, buffer: bytearray | None = None) -> None: ...
    def append(
        self,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Iterable[tuple[str, Buffer | None]] = (),
    ) -> bool: ...
    def extend(
        self, timestamp: int, key: Buffer | None, values: list[bytes | None], start: int = 0
    ) -> int: ...
    def append_rows(
        self,
        keys: BinaryColumn | None,
        values: BinaryColumn | None,
        headers: HeaderColumn | None,
        timestamps: TimestampColumn,
        start: int,
        stop: int,
    ) -> int: ...
    def encoded(self) -> bytearray: ...
    def seal_encoded(self) -> memoryview: ...
    def seal(self) -> None: ...
    def release(self) -> bytearray: ...
    @property
    def sealed(self) -> bool: ...
    @property
    def limit(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...

class QueuedRecord:
    _queue: Any
    _batch: Any
    _index: int
    def __init__(
        self,
        queue: object,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        headers: tuple[tuple[str, Buffer | None], ...],
        timestamp: int,
    ) -> None: ...
    def leave_queue(self, reference: RecordRef) -> None: ...
    def fail(self, failure: Exception) -> None: ...
    @property
    def failure(self) -> Exception | None: ...
    @property
    def topic(self) -> str: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def partition(self) -> int | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def is_queued(self) -> bool: ...

_QueuedT = TypeVar("_QueuedT", bound=QueuedRecord)

class RecordQueue(Generic[_QueuedT]):
    is_awake: bool
    is_open: bool
    taken_bytes: int
    def __init__(self, kind: type[_QueuedT], bytes_max: int) -> None: ...
    def add(self, record: QueuedRecord) -> None: ...
    def give_at_once(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        headers: Iterable[tuple[str, Buffer | None]] | None,
        timestamp: int,
    ) -> _QueuedT | None: ...
    @property
    def bytes_max(self) -> int: ...
    @property
    def given_bytes(self) -> int: ...
    @property
    def entries(self) -> deque[Any]: ...

_RefT = TypeVar("_RefT", bound=RecordRef)

@final
class OpenBatches(Generic[_RefT]):
    def __init__(self, reference: type[_RefT], by_key: bool) -> None: ...
    def add(
        self,
        topic: str,
        partition: int,
        count: int,
        appender: RecordAppender,
        batch: object,
        sticky: bool,
    ) -> None: ...
    def discard(self, topic: str, partition: int) -> None: ...
    def clear(self) -> None: ...
    def append(
        self,
        topic: str,
        timestamp: int,
        key: Buffer | None,
        value: Buffer | None,
        partition: int | None = None,
        headers: Iterable[tuple[str, Buffer | None]] | None = (),
    ) -> _RefT | None: ...
    def take(self, entries: deque[Any]) -> int: ...

def not_bytes_error(part: object) -> TypeError: ...
def murmur2(data: Buffer) -> int: ...
def partitions(keys: BinaryColumn, count: int) -> bytearray: ...

@final
class OffsetMap:
    def __init__(self, size: int, load_factor: float, secret: bytes) -> None: ...
    def add_batch(
        self, data: Buffer, count: int, last_delta: int, base_offset: int, from_offset: int
    ) -> int: ...
    def get(self, key: Buffer) -> int | None: ...
    def hash(self, key: Buffer) -> bytes: ...
    @property
    def slots(self) -> int: ...
    @property
    def limit(self) -> int: ...
    @property
    def count(self) -> int: ...

def mark_retained(
    offsets: OffsetMap,
    data: Buffer,
    count: int,
    last_delta: int,
    base_offset: int,
    base_timestamp: int,
    append_timestamp: int | None,
    map_end: int,
    keep_tombstones: bool,
) -> tuple[bytearray, int, int, int, int, int]: ...
def copy_retained(
    data: Buffer,
    marks: bytearray,
    base_timestamp: int,
    append_timestamp: int | None,
    new_base_timestamp: int,
) -> bytearray: ...

class JsonType(IntEnum):
    STRING = 1
    BOOLEAN = 2
    INT = 3
    LONG = 4
    DOUBLE = 5
    TIMESTAMP = 6
    DATE = 7

@final
class JsonField:
    def __init__(self, name: bytes, kind: int, required: bool = False) -> None: ...
    @property
    def buffers(self) -> tuple[bytearray, ...]: ...

def parse_json_objects(
    values: BinaryColumn, rows: int, fields: list[JsonField], skips_unknown: bool
) -> tuple[bytearray, int]: ...

_HeaderT = TypeVar("_HeaderT", bound=tuple[int, ...])

def scan_batch_headers(
    data: Buffer,
    at: int,
    expected: int,
    limit: int,
    header: type[_HeaderT],
    crc32c: Callable[[Buffer], int],
) -> tuple[list[_HeaderT], int]: ...

_BatchT = TypeVar("_BatchT")

def split_batches(
    data: Buffer, kind: type[_BatchT], header: type[tuple[int, ...]]
) -> tuple[list[_BatchT], int]: ...

"""Reads records as Python objects: those of one batch, or of all batches that a consumer needs."""

from __future__ import annotations

try:
    import cython
except ImportError:
    from ottla.records._kernel import cython_stub as cython

from ottla.records.errors import UNREADABLE, CorruptRecords

if not cython.compiled:
    from ottla.records._kernel.buffers import bytes_at, bytes_or_none
    from ottla.records._kernel.constants import (
        BAD_COUNT,
        BAD_OFFSET,
        BAD_TAIL,
        COMPRESSION_MASK,
        CRC_END,
        HEADER_SIZE,
        LOG_APPEND_TIME,
    )
    from ottla.records._kernel.integers import add64
    from ottla.records._kernel.parser import (
        RecordParser,
        count_is_possible,
        parse_header,
        parse_record,
        raise_corrupt,
    )

    def new_record_tuple(
        kind, topic, partition, offset, timestamp, timestamp_type, key, value, headers, leader_epoch
    ):
        """Create an instance of a subclass of tuple without its constructor."""
        return tuple.__new__(
            kind,
            (
                topic,
                partition,
                offset,
                timestamp,
                timestamp_type,
                key,
                value,
                headers,
                leader_epoch,
            ),
        )


@cython.final
@cython.no_gc
@cython.freelist(256)
@cython.cclass
class Record:
    """One record; immutable.

    The garbage collector does not track the compiled class. That is safe because the constructor
    accepts only bytes, and pairs of str and bytes, which cannot form a reference cycle.
    """

    __slots__ = ("headers", "key", "offset", "timestamp", "value")

    def __init__(self, offset, timestamp, key=None, value=None, headers=()):
        headers = tuple(headers)
        for part in (key, value):
            if part is not None and type(part) is not bytes:
                raise TypeError(
                    f"the key and the value of a record must be bytes or None, "
                    f"not {type(part).__name__}"
                )
        for header in headers:
            if (
                type(header) is not tuple
                or len(header) != 2
                or type(header[0]) is not str
                or (header[1] is not None and type(header[1]) is not bytes)
            ):
                raise TypeError(
                    f"a record header must be a tuple of str and bytes or None, not {header!r}"
                )
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers

    def __eq__(self, other):
        if type(other) is not Record:
            return NotImplemented
        return _fields(self) == _fields(other)

    def __hash__(self):
        return hash(_fields(self))

    def __reduce__(self):
        return Record, _fields(self)

    def __repr__(self):
        return (
            f"Record(offset={self.offset}, timestamp={self.timestamp}, key={self.key!r}, "
            f"value={self.value!r}, headers={self.headers!r})"
        )


@cython.cfunc
def _fields(record: Record) -> tuple:
    return record.offset, record.timestamp, record.key, record.value, record.headers


@cython.cfunc
def _headers(parser: RecordParser) -> tuple:
    """Return the headers of the record that was parsed last."""
    pos: cython.Py_ssize_t = parser.headers_at
    left: cython.longlong = parser.header_count
    raw: bytes
    value: bytes | None
    headers: list = []
    while left > 0:
        pos = parse_header(parser, pos, parser.pos)
        raw = bytes_at(parser.at, parser.header_key_at, parser.header_key_size)
        value = None
        if parser.header_value_size >= 0:
            value = bytes_at(parser.at, parser.header_value_at, parser.header_value_size)
        # As in Java: a header key that is not UTF-8 must not stop the consumers.
        headers.append((raw.decode("utf-8", "replace"), value))
        left -= 1
    return tuple(headers)


@cython.final
@cython.cclass
class RecordReader(RecordParser):
    """Iterates over the records of one batch, from an offset on.

    Offsets must increase and stay within the batch. Gaps are valid, because compaction leaves them.
    """

    def __init__(
        self,
        data,
        count: cython.longlong,
        last_delta: cython.longlong,
        base_offset: cython.longlong,
        base_timestamp: cython.longlong,
        append_timestamp=None,
        from_offset: cython.longlong = 0,
    ):
        RecordParser.__init__(self, data)
        self.count = count
        self.previous = -1
        self.last_delta = last_delta
        self.base_offset = base_offset
        self.base_timestamp = base_timestamp
        self.append_time = append_timestamp is not None
        self.append_timestamp = 0 if append_timestamp is None else append_timestamp
        self.from_offset = from_offset
        if not count_is_possible(self, count):
            _fail(self, BAD_COUNT, None)

    def __iter__(self):
        return self

    def __next__(self):
        record: Record | None = _next_record(self)
        if record is None:
            raise StopIteration
        return record

    def read_all(self):
        """Return the remaining records as a list."""
        records: list = []
        record: Record | None = _next_record(self)
        while record is not None:
            records.append(record)
            record = _next_record(self)
        return records


def read_record_tuples(
    kind: type,
    topic,
    partition,
    timestamp_types: tuple,
    batches,
    from_offset: cython.longlong,
    records_min: cython.longlong,
    bytes_min: cython.longlong,
    crc32c,
    decompressed_bytes_max: cython.longlong,
):
    """Return the records of batches from an offset on as a list of tuples, and the offset after it.

    `kind` is a subclass of tuple. The fields are topic, partition, offset, timestamp, timestamp
    type, key, value, headers and leader epoch. The list ends with the batch after which there are
    `records_min` records or `bytes_min` bytes, or before an unreadable batch. If the first batch is
    unreadable, its error is raised. The CRC is checked if `crc32c` is not None.
    """
    records: list = []
    until: cython.longlong = from_offset
    size: cython.longlong = 0
    if not issubclass(kind, tuple):
        raise TypeError(f"{kind.__name__} is not a subclass of tuple")
    for batch in batches:
        if size > 0 and (len(records) >= records_min or size >= bytes_min):
            break
        try:
            more = _read_batch(
                kind,
                topic,
                partition,
                timestamp_types,
                batch,
                from_offset,
                crc32c,
                decompressed_bytes_max,
            )
        except UNREADABLE:
            if size > 0:
                break
            raise
        records += more
        size += len(batch.data)
        until = add64(add64(batch.header[0], batch.header[6]), 1)
    return records, until


@cython.cfunc
def _read_batch(
    kind: type,
    topic,
    partition,
    timestamp_types: tuple,
    batch,
    from_offset: cython.longlong,
    crc32c,
    decompressed_bytes_max: cython.longlong,
) -> list:
    """Return the records of a batch from an offset on as tuples."""
    header = batch.header
    data = batch.data
    if crc32c is not None and crc32c(data[CRC_END:]) != header[4]:
        raise CorruptRecords(f"the batch at offset {header[0]} has a wrong CRC")
    attributes: cython.longlong = header[5]
    append_time: cython.bint = (attributes & LOG_APPEND_TIME) != 0
    timestamp_type = timestamp_types[1 if append_time else 0]
    leader_epoch = header[2]
    records: list = []
    reader: RecordReader = RecordReader(
        batch.record_bytes(decompressed_bytes_max)
        if attributes & COMPRESSION_MASK
        else data[HEADER_SIZE:],
        header[12],
        header[6],
        header[0],
        header[7],
        header[8] if append_time else None,
        from_offset,
    )
    while _find_record(reader):
        records.append(
            new_record_tuple(
                kind,
                topic,
                partition,
                _offset(reader),
                _timestamp(reader),
                timestamp_type,
                bytes_or_none(reader.at, reader.key_at, reader.key_size),
                bytes_or_none(reader.at, reader.value_at, reader.value_size),
                _headers(reader) if reader.header_count > 0 else (),
                leader_epoch,
            )
        )
    return records


@cython.cfunc
def _fail(reader: RecordReader, reason: cython.int, record):
    """Raise CorruptRecords; the iterator is exhausted afterwards."""
    reader.count = 0
    reader.pos = reader.end
    raise_corrupt(reason, record)


@cython.cfunc
def _next_record(reader: RecordReader) -> Record | None:
    """Return the next record from from_offset on; None after the last."""
    record: Record
    if not _find_record(reader):
        return None
    record = Record.__new__(Record)
    record.offset = _offset(reader)
    record.timestamp = _timestamp(reader)
    record.key = bytes_or_none(reader.at, reader.key_at, reader.key_size)
    record.value = bytes_or_none(reader.at, reader.value_at, reader.value_size)
    record.headers = _headers(reader) if reader.header_count > 0 else ()
    return record


@cython.cfunc
@cython.inline
def _offset(reader: RecordReader) -> cython.longlong:
    """Return the offset of the record that was parsed last."""
    return add64(reader.base_offset, reader.offset_delta)


@cython.cfunc
@cython.inline
def _timestamp(reader: RecordReader) -> cython.longlong:
    """Return the timestamp of the record that was parsed last."""
    if reader.append_time:
        return reader.append_timestamp
    return add64(reader.base_timestamp, reader.timestamp_delta)


@cython.cfunc
def _find_record(reader: RecordReader) -> cython.bint:
    """Parse the next record from from_offset on; return False after the last."""
    reason: cython.int
    while reader.index < reader.count:
        reason = parse_record(reader)
        if reason == 0 and not reader.previous < reader.offset_delta <= reader.last_delta:
            reason = BAD_OFFSET
            reader.index -= 1
        if reason != 0:
            _fail(reader, reason, reader.index)
        reader.previous = reader.offset_delta
        if _offset(reader) >= reader.from_offset:
            return True
    if reader.pos != reader.end:
        _fail(reader, BAD_TAIL, None)
    return False

# C declarations of compaction.py. Python can read the `readonly` fields only.

from ottla.records._kernel.buffers cimport (
    BufferView,
    copy_bytes,
    get64,
    pointer,
    put64,
    reserve,
    resize,
)
from ottla.records._kernel.constants cimport (
    BAD_COUNT,
    BAD_OFFSET,
    BAD_TAIL,
    HEADER_SIZE,
    INT32_MAX,
    NO_TIMESTAMP,
)
from ottla.records._kernel.parser cimport (
    RecordParser,
    count_is_possible,
    decode_varint,
    parse_record,
    raise_corrupt,
    varlong_size,
)
from ottla.records._kernel.integers cimport (
    add64,
    put_uvarint,
    subtract64,
    uvarint_size,
    zigzag,
)

cdef class OffsetMap:
    cdef readonly Py_ssize_t slots, limit, count
    cdef unsigned long long slots_unsigned
    cdef unsigned long long secret_low, secret_high, hash_low, hash_high
    cdef bytearray table

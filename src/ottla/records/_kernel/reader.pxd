# C declarations of reader.py. Python can read the fields of a Record, and no others.

from ottla.records._kernel.buffers cimport bytes_at
from ottla.records._kernel.constants cimport BAD_COUNT, BAD_OFFSET, BAD_TAIL
from ottla.records._kernel.parser cimport (
    RecordParser,
    count_is_possible,
    parse_header,
    parse_record,
    raise_corrupt,
)
from ottla.records._kernel.integers cimport add64

cdef class Record:
    cdef readonly long long offset
    cdef readonly long long timestamp
    cdef readonly bytes key
    cdef readonly bytes value
    cdef readonly tuple headers

cdef class RecordReader(RecordParser):
    cdef long long count, previous, last_delta
    cdef long long base_offset, base_timestamp, append_timestamp, from_offset
    cdef bint append_time

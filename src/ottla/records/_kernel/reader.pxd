# C declarations of reader.py. Python can read the fields of a Record, and no others.

from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM

from ottla.records._kernel.buffers cimport bytes_at, bytes_or_none
from ottla.records._kernel.constants cimport (
    BAD_COUNT,
    BAD_OFFSET,
    BAD_TAIL,
    COMPRESSION_MASK,
    CRC_END,
    HEADER_SIZE,
    LOG_APPEND_TIME,
)
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

cdef extern from "Python.h":
    object PyType_GenericAlloc(type kind, Py_ssize_t items)
    void PyObject_GC_UnTrack(void* item)

cdef inline void put_item(object record, Py_ssize_t index, object item):
    Py_INCREF(item)  # PyTuple_SET_ITEM takes over a reference
    PyTuple_SET_ITEM(record, index, item)

# Filled in place: `tuple.__new__` would copy the fields from another tuple. The garbage collector
# need not track the tuple, because bytes, numbers and headers cannot form a reference cycle.
cdef inline object new_record_tuple(
    type kind,
    object topic,
    object partition,
    object offset,
    object timestamp,
    object timestamp_type,
    object key,
    object value,
    object headers,
    object leader_epoch,
):
    cdef object record = PyType_GenericAlloc(kind, 9)
    put_item(record, 0, topic)
    put_item(record, 1, partition)
    put_item(record, 2, offset)
    put_item(record, 3, timestamp)
    put_item(record, 4, timestamp_type)
    put_item(record, 5, key)
    put_item(record, 6, value)
    put_item(record, 7, headers)
    put_item(record, 8, leader_epoch)
    PyObject_GC_UnTrack(<void*> record)
    return record

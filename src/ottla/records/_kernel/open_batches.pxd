# C declarations of open_batches.py, with the bodies of its small functions.

from cpython.object cimport PyObject, PyTypeObject

from ottla.records._kernel.buffers cimport as_bytes
from ottla.records._kernel.encode cimport (
    RecordAppender,
    RecordRef,
    append_record,
    header_pairs,
)
from ottla.records._kernel.hashing cimport partition_of

cdef enum:
    QUEUED_BYTES = 200  # about what a record takes in a queue besides its key and value

cdef class OpenBatch:
    cdef RecordAppender appender
    cdef object batch
    cdef Py_ssize_t partition

cdef class OpenTopic:
    cdef OpenBatch sticky
    cdef list by_partition

cdef class QueuedRecord:
    cdef readonly object _queue, topic, partition, timestamp, failure
    cdef readonly bytes key, value
    cdef readonly tuple headers
    cdef readonly Py_ssize_t size
    cdef readonly bint is_queued
    cdef readonly object _batch
    cdef readonly Py_ssize_t _index

cdef class RecordQueue:
    cdef type kind
    cdef readonly object entries
    cdef object add_entry
    cdef readonly Py_ssize_t bytes_max, given_bytes
    cdef public Py_ssize_t taken_bytes
    cdef public bint is_awake, is_open

cdef class OpenBatches:
    cdef type reference
    cdef bint by_key
    cdef dict by_topic

# Without the constructor, which takes half of the time: the class of RecordRef has no __cinit__, so
# that the object is complete when its fields are set.
cdef inline object new_reference(type kind, batch, Py_ssize_t index):
    cdef RecordRef reference = <RecordRef> (<PyTypeObject*> kind).tp_new(kind, NULL, NULL)
    reference._batch = batch
    reference._index = index
    return reference

cdef inline QueuedRecord new_queued(type kind):
    return <QueuedRecord> (<PyTypeObject*> kind).tp_new(kind, NULL, NULL)

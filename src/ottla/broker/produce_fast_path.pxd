# C declarations of produce_fast_path.py, with the bodies of its small functions.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

from ottla.records._kernel.batch_headers cimport big_endian, put_big_endian, unsigned32
from ottla.records._kernel.buffers cimport BufferView, is_utf8
from ottla.records._kernel.constants cimport HEADER_SIZE, LENGTH_END

cdef class OrdinaryBatch:
    cdef object partition, state, segment, producer
    cdef long long index, base_offset, last_offset, timestamp, sequence
    cdef Py_ssize_t start, stop, error_at

cdef class ProduceFastPath:
    cdef dict _partitions
    cdef object _metadata_cache, _now_ms, _elapsed_s, _counts
    cdef list _batches, _uncommitted, _topics
    cdef long long _acks, _timeout_ms
    cdef readonly list appended
    cdef bint _check(self, BufferView view, data, Py_ssize_t pos, int version)
    cdef OrdinaryBatch _ordinary(
        self,
        BufferView view,
        data,
        Py_ssize_t start,
        Py_ssize_t size,
        tuple name,
        int version,
        long long now_ms,
    )
    cdef bint _append(self, data)
    cdef _note_appended(self, OrdinaryBatch failed)
    cdef _response(self, BufferView view)
    cdef _pending(self, response, int version, began_s)

# Bytes that are filled before anything else sees them.

cdef inline bytes new_bytes(Py_ssize_t size):
    return PyBytes_FromStringAndSize(NULL, size)

cdef inline unsigned char* bytes_pointer(bytes data) noexcept:
    return <unsigned char*> PyBytes_AS_STRING(data)

# C declarations of hashing.py.

from ottla.records._kernel.buffers cimport BufferView, as_bytes, pointer, put32
from ottla.records._kernel.columns cimport BinaryColumn, cell_begin, cell_size
from ottla.records._kernel.constants cimport INT32_MAX

cdef Py_ssize_t partition_of(bytes key, Py_ssize_t count)

# C declarations of batch_headers.py.

from ottla.records._kernel.buffers cimport BufferView
from ottla.records._kernel.constants cimport HEADER_SIZE, LENGTH_END

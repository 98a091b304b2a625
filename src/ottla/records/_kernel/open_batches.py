# ruff: noqa: SLF001 - the classes of the kernel share their fields.
"""The open batches of a producer: a record without a key is appended with one call.

Invariant: a record is appended to an open batch only, and its reference has its index in the batch.
A call that returns None, or that stops early, has changed nothing for the record it stopped at.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from ottla.records._kernel import cython_stub as cython

if not cython.compiled:
    from ottla.records._kernel.buffers import as_bytes
    from ottla.records._kernel.encode import (
        RecordAppender,
        RecordRef,
        append_record,
        check_timestamp,
        header_pairs,
    )

    QUEUED_BYTES = 200

    def new_reference(kind, batch, index):
        """Create an instance of a subclass of RecordRef."""
        return kind(batch, index)


@cython.final
@cython.cclass
class OpenBatch:
    """A batch that accepts records, and its appender."""

    __slots__ = ("appender", "batch")

    def __init__(self, appender: RecordAppender, batch):
        self.appender = appender
        self.batch = batch


@cython.cclass
class QueuedRecord:
    """A record that waits in a queue to be appended, then its index in the batch that has it.

    The class is a base for what the blocking `send` returns. `size` is about what the record takes
    in the queue. `failure` is the error of a record that no batch has.
    """

    __slots__ = (
        "_batch",
        "_index",
        "_queue",
        "failure",
        "headers",
        "is_queued",
        "key",
        "partition",
        "size",
        "timestamp",
        "topic",
        "value",
    )

    def __init__(
        self,
        queue,
        topic,
        key: bytes | None,
        value: bytes | None,
        partition,
        headers: tuple,
        timestamp,
    ):
        self._queue = queue
        self.topic = topic
        self.key = key
        self.value = value
        self.partition = partition
        self.headers = headers
        self.timestamp = timestamp
        self.size = QUEUED_BYTES
        if key is not None:
            self.size += len(key)
        if value is not None:
            self.size += len(value)
        self.is_queued = True
        self.failure = None
        self._batch = None
        self._index = -1

    def leave_queue(self, reference: RecordRef):
        """Note which batch has the record; its content is released."""
        leave_queue(self, reference._batch, reference._index)

    def fail(self, failure):
        """Note that no batch has the record; its content is released."""
        self.failure = failure
        leave_queue(self, None, -1)


@cython.cfunc
@cython.inline
def leave_queue(record: QueuedRecord, batch, index: cython.Py_ssize_t):
    """Note which batch has the record; its content is released."""
    record._batch = batch
    record._index = index
    record.is_queued = False
    record.key = None
    record.value = None
    record.headers = ()


@cython.final
@cython.cclass
class OpenBatches:
    """The open batch for records without a key and a partition, per topic.

    `reference` is the subclass of RecordRef that `append` creates.
    """

    __slots__ = ("by_topic", "reference")

    def __init__(self, reference: type):
        if not issubclass(reference, RecordRef):
            raise TypeError(f"{reference.__name__} is not a subclass of RecordRef")
        self.reference = reference
        self.by_topic = {}

    def add(self, topic, appender: RecordAppender, batch):
        """Append the records of a topic to this batch from now on."""
        self.by_topic[topic] = OpenBatch(appender, batch)

    def discard(self, topic):
        """Forget the open batch of a topic."""
        self.by_topic.pop(topic, None)

    def append(self, topic, timestamp: cython.longlong, value, headers=()):
        """Append a record and return its reference; None if no open batch has room."""
        found: OpenBatch | None = self.by_topic.get(topic)
        if not cython.compiled:
            check_timestamp(timestamp)
        if found is None:
            return None
        pairs: list | None = header_pairs(headers) if headers else None
        if not append_record(found.appender, timestamp, None, as_bytes(value), pairs):
            return None
        return new_reference(self.reference, found.batch, found.appender.count - 1)

    def take(self, entries):
        """Append queued records from the left of a deque, and return the sum of their sizes.

        It stops before an entry that is not a QueuedRecord, before a record with a key, a partition
        or headers, before one that no open batch has room for, and before one that is not valid.
        """
        size: cython.Py_ssize_t = 0
        time: cython.longlong
        entry: QueuedRecord
        found: OpenBatch | None
        popleft = entries.popleft
        while entries:
            if not isinstance(entries[0], QueuedRecord):
                break
            entry = entries[0]
            if entry.key is not None or entry.partition is not None or entry.headers:
                break
            found = self.by_topic.get(entry.topic)
            if found is None:
                break
            try:
                time = entry.timestamp
                if not cython.compiled:
                    check_timestamp(time)
                if not append_record(found.appender, time, None, entry.value, None):
                    break
            except (OverflowError, TypeError, ValueError):
                break
            # The record is marked before it is removed, so that a close of the queue in between
            # still finds it.
            leave_queue(entry, found.batch, found.appender.count - 1)
            popleft()
            size += entry.size
        return size

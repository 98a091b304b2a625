# ruff: noqa: SLF001 - the classes of the kernel share their fields.
"""The open batches of a producer: one call chooses the partition of a record and appends it.

Invariant: a record is appended to an open batch only, and its reference has its index in the batch.
A call that returns None, or that stops early, has changed nothing for the record it stopped at.
"""

from __future__ import annotations

from collections import deque

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
    from ottla.records._kernel.hashing import partition_of

    QUEUED_BYTES = 200

    def new_reference(kind, batch, index):
        """Create an instance of a subclass of RecordRef."""
        return kind(batch, index)

    def new_queued(kind):
        """Create an instance of a subclass of QueuedRecord without its constructor."""
        return kind.__new__(kind)


@cython.final
@cython.cclass
class OpenBatch:
    """A batch that accepts records, and its appender."""

    __slots__ = ("appender", "batch", "partition")

    def __init__(self, appender: RecordAppender, batch, partition: cython.Py_ssize_t):
        self.appender = appender
        self.batch = batch
        self.partition = partition


@cython.final
@cython.cclass
class OpenTopic:
    """The open batches of a topic.

    `sticky` is the batch for records without a key and a partition. `by_partition` has a batch or
    None for each partition.
    """

    __slots__ = ("by_partition", "sticky")

    def __init__(self, count: cython.Py_ssize_t):
        self.sticky = None
        self.by_partition = [None] * count


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
        fill_record(self, queue, topic, key, value, partition, headers, timestamp)

    def leave_queue(self, reference: RecordRef):
        """Note which batch has the record; its content is released."""
        leave_queue(self, reference._batch, reference._index)

    def fail(self, failure):
        """Note that no batch has the record; its content is released."""
        self.failure = failure
        leave_queue(self, None, -1)


@cython.cfunc
def fill_record(
    record: QueuedRecord,
    queue,
    topic,
    key: bytes | None,
    value: bytes | None,
    partition,
    headers: tuple,
    timestamp,
):
    """Set the fields of a record that is about to be queued."""
    record._queue = queue
    record.topic = topic
    record.key = key
    record.value = value
    record.partition = partition
    record.headers = headers
    record.timestamp = timestamp
    record.size = QUEUED_BYTES
    if key is not None:
        record.size += len(key)
    if value is not None:
        record.size += len(value)
    record.is_queued = True
    record.failure = None
    record._batch = None
    record._index = -1


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


@cython.cclass
class RecordQueue:
    """The records on their way from sending threads to an event loop.

    `given_bytes` counts what was queued, `taken_bytes` what has left; the difference is queued.
    `kind` is the subclass of QueuedRecord that `give_at_once` creates.

    Invariant: an entry is added and counted in one step. Compiled code runs no Python code in
    between, so that no other thread runs. Uncompiled code needs a lock of the caller.
    """

    __slots__ = (
        "add_entry",
        "bytes_max",
        "entries",
        "given_bytes",
        "is_awake",
        "is_open",
        "kind",
        "taken_bytes",
    )

    def __init__(self, kind: type, bytes_max: cython.Py_ssize_t):
        if not issubclass(kind, QueuedRecord):
            raise TypeError(f"{kind.__name__} is not a subclass of QueuedRecord")
        self.kind = kind
        self.entries = deque()
        self.add_entry = self.entries.append
        self.bytes_max = bytes_max
        self.given_bytes = 0
        self.taken_bytes = 0
        self.is_awake = False
        self.is_open = True

    @classmethod
    def __class_getitem__(cls, _):
        return cls

    def add(self, record: QueuedRecord):
        """Add a record; the caller holds its lock and has checked that there is room."""
        self.add_entry(record)
        self.given_bytes += record.size

    def give_at_once(self, topic, key, value, partition, headers, timestamp):
        """Queue a record without a lock and return it.

        Return None, and queue nothing, if the queue is closed or full, if the loop has to be woken,
        if the key or the value is not bytes, and in uncompiled code.
        """
        record: QueuedRecord
        if not cython.compiled:
            return None
        if (key is not None and type(key) is not bytes) or (
            value is not None and type(value) is not bytes
        ):
            return None
        record = new_queued(self.kind)
        fill_record(
            record,
            self,
            topic,
            key,
            value,
            partition,
            tuple(headers) if headers else (),
            timestamp,
        )
        # No Python code may run from here on.
        if (
            not self.is_open
            or not self.is_awake
            or self.given_bytes - self.taken_bytes >= self.bytes_max
        ):
            return None
        self.add_entry(record)
        self.given_bytes += record.size
        return record


@cython.final
@cython.cclass
class OpenBatches:
    """The open batches of a producer, per topic and partition.

    `reference` is the subclass of RecordRef that `append` creates. With `by_key` a key determines
    the partition, by its murmur2 hash; otherwise records with a key are like those without one.
    """

    __slots__ = ("by_key", "by_topic", "reference")

    def __init__(self, reference: type, by_key: cython.bint):
        if not issubclass(reference, RecordRef):
            raise TypeError(f"{reference.__name__} is not a subclass of RecordRef")
        self.reference = reference
        self.by_key = by_key
        self.by_topic = {}

    def add(
        self,
        topic,
        partition: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
        appender: RecordAppender,
        batch,
        sticky: cython.bint,
    ):
        """Append the records of a partition to this batch from now on.

        The topic has `count` partitions. A sticky batch also gets the records for any partition.
        """
        known: OpenTopic | None = self.by_topic.get(topic)
        added: OpenBatch = OpenBatch(appender, batch, partition)
        if known is None or len(known.by_partition) != count:
            known = OpenTopic(count)
            self.by_topic[topic] = known
        if 0 <= partition < count:
            known.by_partition[partition] = added
        if sticky:
            known.sticky = added

    def discard(self, topic, partition: cython.Py_ssize_t):
        """Forget the open batch of a partition."""
        known: OpenTopic | None = self.by_topic.get(topic)
        if known is None:
            return
        if 0 <= partition < len(known.by_partition):
            known.by_partition[partition] = None
        if known.sticky is not None and known.sticky.partition == partition:
            known.sticky = None

    def clear(self):
        """Forget all open batches: the number of partitions of a topic may have changed."""
        self.by_topic = {}

    def append(self, topic, timestamp: cython.longlong, key, value, partition=None, headers=()):
        """Append a record and return its reference; None if no open batch has room."""
        if not cython.compiled:
            check_timestamp(timestamp)
        key_bytes: bytes | None = as_bytes(key)
        found: OpenBatch | None = find_open(self, topic, key_bytes, partition)
        if found is None:
            return None
        pairs: list | None = header_pairs(headers) if headers else None
        if not append_record(found.appender, timestamp, key_bytes, as_bytes(value), pairs):
            return None
        return new_reference(self.reference, found.batch, found.appender.count - 1)

    def take(self, entries):
        """Append queued records from the left of a deque, and return the sum of their sizes.

        It stops before an entry that is not a QueuedRecord, before a record that no open batch has
        room for, and before one that is not valid.
        """
        size: cython.Py_ssize_t = 0
        time: cython.longlong
        entry: QueuedRecord
        found: OpenBatch | None
        pairs: list | None
        popleft = entries.popleft
        while entries:
            if not isinstance(entries[0], QueuedRecord):
                break
            entry = entries[0]
            found = find_open(self, entry.topic, entry.key, entry.partition)
            if found is None:
                break
            # Headers can be objects that raise anything. `append` raises it to the sender.
            try:
                pairs = header_pairs(entry.headers) if entry.headers else None
                time = entry.timestamp
                if not cython.compiled:
                    check_timestamp(time)
                if not append_record(found.appender, time, entry.key, entry.value, pairs):
                    break
            except Exception:
                break
            # The record is marked before it is removed, so that a close of the queue in between
            # still finds it.
            leave_queue(entry, found.batch, found.appender.count - 1)
            popleft()
            size += entry.size
        return size


@cython.cfunc
def find_open(batches: OpenBatches, topic, key: bytes | None, partition) -> OpenBatch | None:
    """Return the open batch for a record; None if there is none."""
    known: OpenTopic | None = batches.by_topic.get(topic)
    at: cython.Py_ssize_t
    if known is None:
        return None
    if partition is not None:
        if type(partition) is not int or not 0 <= partition < len(known.by_partition):
            return None
        at = partition
    elif key is None or not batches.by_key:
        return known.sticky
    else:
        at = partition_of(key, len(known.by_partition))
    return known.by_partition[at]

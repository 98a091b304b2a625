"""Producer metrics with Kafka's names.

Invariant: a snapshot is immutable, and its totals never decrease. Counters are updated per batch,
never per record.
"""

from dataclasses import dataclass

from ottla.client.metrics.tally import NOT_YET, Tally


@dataclass(frozen=True, slots=True)
class ProducerMetrics:
    """A snapshot; names are Kafka's with _ for -. Names ending in _total count from the start."""

    record_send_total: int = 0
    """Acknowledged records; with acks=0, records written to a connection."""

    byte_total: int = 0
    """Bytes of these records in their batches, before compression."""

    record_error_total: int = 0
    """Records that failed."""

    record_retry_total: int = 0
    """Records sent again, once per retry."""

    batch_total: int = 0
    """Acknowledged batches; not in Kafka."""

    batch_split_total: int = 0
    """Batches split because they were too large for their topic."""

    request_total: int = 0
    """Produce requests that were answered or failed."""

    requests_in_flight: int = 0
    """Produce requests that wait for a response now."""

    batch_size_avg: float = NOT_YET
    """Bytes of an acknowledged batch before compression."""

    records_per_request_avg: float = NOT_YET
    record_queue_time_avg: float = NOT_YET
    """Milliseconds that a batch waited before it was first sent."""

    record_queue_time_max: float = NOT_YET
    request_latency_avg: float = NOT_YET
    """Milliseconds from a request to its response."""

    request_latency_max: float = NOT_YET
    buffer_total_bytes: int = 0
    """buffer.memory."""

    buffer_available_bytes: int = 0
    """Free bytes of buffer.memory."""

    waiting_threads: int = 0
    """Calls that wait for memory."""


class ProducerCounts:
    """Counters of the sender."""

    __slots__ = (
        "batch_bytes",
        "errors",
        "in_flight",
        "latency_ms",
        "queue_ms",
        "records",
        "request_records",
        "retries",
        "splits",
    )

    def __init__(self) -> None:
        self.records = 0
        self.errors = 0
        self.retries = 0
        self.splits = 0
        self.in_flight = 0
        self.batch_bytes = Tally()
        self.request_records = Tally()
        self.queue_ms = Tally()
        self.latency_ms = Tally()

    def snapshot(self, *, memory: int, memory_left: int, waiting: int) -> ProducerMetrics:
        """Return the metrics now, with the state of the record accumulator."""
        return ProducerMetrics(
            record_send_total=self.records,
            byte_total=int(self.batch_bytes.total),
            record_error_total=self.errors,
            record_retry_total=self.retries,
            batch_total=self.batch_bytes.count,
            batch_split_total=self.splits,
            request_total=self.latency_ms.count,
            requests_in_flight=self.in_flight,
            batch_size_avg=self.batch_bytes.average,
            records_per_request_avg=self.request_records.average,
            record_queue_time_avg=self.queue_ms.average,
            record_queue_time_max=self.queue_ms.largest,
            request_latency_avg=self.latency_ms.average,
            request_latency_max=self.latency_ms.largest,
            buffer_total_bytes=memory,
            buffer_available_bytes=memory_left,
            waiting_threads=waiting,
        )

# ruff: noqa: E501 - a row reads best with its facts on one line.
"""The producer's settings, one row each; what it shares with other clients is in connection.py.

Invariant: the defaults lose nothing and repeat nothing: acks=all with idempotence.
"""

from typing import Final

from ottla.settings import compression, connection, ignored, unsupported
from ottla.settings.config_def import ConfigDef, Setting, settings_in
from ottla.settings.config_types import BOOLEAN, INT, LONG, STRING
from ottla.settings.validators import NON_EMPTY, at_least, one_of

# fmt: off
# What a successful send means.
ACKS = Setting("acks", STRING, "all", one_of("all", "0", "1", aliases={"-1": "all"}),
    doc="Who must have a record before it counts as sent: all replicas in sync (-1 means the same), the "
        "leader alone (1), or nobody (0, and a lost record is never noticed).")
ENABLE_IDEMPOTENCE = Setting("enable.idempotence", BOOLEAN, True,
    doc="Whether the broker drops what a retry sends twice and keeps the order. It needs acks=all, retries "
        "and at most 5 requests in flight; if unset, other values of those turn it off.")
TRANSACTIONAL_ID = Setting("transactional.id", STRING, None, NON_EMPTY,
    doc="Turns transactions on. The same id after a restart ends what its predecessor left open, so it "
        "belongs to one running producer at a time.")
TRANSACTION_TIMEOUT_MS = Setting("transaction.timeout.ms", INT, 60_000, at_least(1),
    doc="Milliseconds after which the broker aborts a transaction that was neither committed nor aborted.")
TRANSACTION_TWO_PHASE_COMMIT_ENABLE = Setting("transaction.two.phase.commit.enable", BOOLEAN, False,
    doc="Whether a prepared transaction stays until it is ended by name, without a time limit. The broker "
        "has to allow it.")
DELIVERY_TIMEOUT_MS = Setting("delivery.timeout.ms", INT, 120_000, at_least(0),
    doc="Milliseconds from the call to the final word on a record, all retries included. At least "
        "linger.ms and request.timeout.ms together.")
MAX_BLOCK_MS = Setting("max.block.ms", LONG, 60_000, at_least(0),
    doc="Milliseconds that a call may wait for metadata or for room in the buffer before it fails.")
MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION = Setting("max.in.flight.requests.per.connection", INT, 5, at_least(1),
    doc="Requests to one broker that may wait for an answer at a time. More than one without idempotence "
        "may change the order when one is sent again.")
# Batching.
LINGER_MS = Setting("linger.ms", LONG, 5, at_least(0),
    doc="Milliseconds that a batch waits for more records before it is sent. More makes fewer, larger "
        "requests; a full batch never waits.")
BATCH_SIZE = Setting("batch.size", INT, 16_384, at_least(0),
    doc="Bytes at which a batch of one partition is full. Raise it for throughput; 0 sends every record alone.")
BUFFER_MEMORY = Setting("buffer.memory", LONG, 33_554_432, at_least(0),
    doc="Bytes of records that may wait to be sent. When they are used up, calls wait for max.block.ms.")
MAX_REQUEST_SIZE = Setting("max.request.size", INT, 1_048_576, at_least(0),
    doc="The largest request, and with it the largest record before compression. The topic has its own "
        "limit, max.message.bytes.")
COMPRESSION_TYPE = Setting("compression.type", STRING, "none", one_of("none", "gzip", "snappy", "lz4", "zstd"),
    doc="How batches are compressed. lz4 costs little, zstd makes the smallest; it works best on large batches.")
# Choosing a partition for records without a key.
PARTITIONER_ADAPTIVE_PARTITIONING_ENABLE = Setting("partitioner.adaptive.partitioning.enable", BOOLEAN, True,
    doc="Whether partitions on brokers that answer faster get more of the records that have no key.")
PARTITIONER_AVAILABILITY_TIMEOUT_MS = Setting("partitioner.availability.timeout.ms", LONG, 0, at_least(0),
    doc="Milliseconds without an answer after which a partition gets no more records without a key; 0 "
        "never passes one over.")
PARTITIONER_IGNORE_KEYS = Setting("partitioner.ignore.keys", BOOLEAN, False,
    doc="Whether records with a key are spread like those without. Records of one key then come in no order.")
METADATA_MAX_IDLE_MS = Setting("metadata.max.idle.ms", LONG, 300_000, at_least(5000),
    doc="Milliseconds after which the producer forgets a topic it has not written to.")
# fmt: on

PRODUCER: Final = ConfigDef(
    "producer",
    (
        *settings_in(globals()),
        *compression.LEVELS,
        *connection.ROWS,
        connection.RETRIES,
        # Answers to a producer are short.
        connection.RECEIVE_BUFFER_BYTES.but(32_768),
    ),
    ignored=ignored.PRODUCER,
    unsupported=unsupported.PRODUCER,
)

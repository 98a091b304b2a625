# ruff: noqa: E501 - one line per row
"""The producer settings; connection.py has the ones shared with other clients.

The defaults are acks=all with idempotence, as in Kafka.
"""

from typing import Final

from ottla.settings import compression, connection, ignored, unsupported
from ottla.settings.config_def import ConfigDef, Setting, settings_in
from ottla.settings.config_types import BOOLEAN, INT, LONG, STRING
from ottla.settings.validators import NON_EMPTY, at_least, one_of

# fmt: off
# Delivery guarantees and timeouts.
ACKS = Setting("acks", STRING, "all", one_of("all", "0", "1", aliases={"-1": "all"}),
    doc="Required acknowledgements: `all` in-sync replicas (same as -1), the leader (1), or none (0). With 0 the "
        "producer does not notice lost records.")
ENABLE_IDEMPOTENCE = Setting("enable.idempotence", BOOLEAN, True,
    doc="Let the broker discard duplicates of retries and preserve order. Requires acks=all, retries above 0 and "
        "at most 5 in-flight requests. If unset, conflicting values disable it.")
TRANSACTIONAL_ID = Setting("transactional.id", STRING, None, NON_EMPTY,
    doc="Enables transactions. A producer that starts with the same id fences its predecessor and ends its open "
        "transaction. Use one id per running producer.")
TRANSACTION_TIMEOUT_MS = Setting("transaction.timeout.ms", INT, 60_000, at_least(1),
    doc="Time in milliseconds after which the coordinator aborts an open transaction.")
TRANSACTION_TWO_PHASE_COMMIT_ENABLE = Setting("transaction.two.phase.commit.enable", BOOLEAN, False,
    doc="Keep a prepared transaction open without a timeout until it is ended explicitly. The broker must allow "
        "it.")
DELIVERY_TIMEOUT_MS = Setting("delivery.timeout.ms", INT, 120_000, at_least(0),
    doc="Maximum time in milliseconds from the send call to its result, including retries; at least linger.ms "
        "plus request.timeout.ms.")
MAX_BLOCK_MS = Setting("max.block.ms", LONG, 60_000, at_least(0),
    doc="Maximum time in milliseconds that a send call waits for metadata or buffer memory before it fails.")
MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION = Setting("max.in.flight.requests.per.connection", INT, 5, at_least(1),
    doc="Maximum number of unacknowledged requests per connection. With more than 1 and without idempotence, "
        "retries can reorder records.")
# Batching.
LINGER_MS = Setting("linger.ms", LONG, 5, at_least(0),
    doc="Time in milliseconds that a batch waits for more records before it is sent. A higher value makes fewer, "
        "larger requests. A full batch is sent at once.")
BATCH_SIZE = Setting("batch.size", INT, 16_384, at_least(0),
    doc="Maximum size of a batch per partition in bytes. Raise it for throughput; 0 disables batching.")
BUFFER_MEMORY = Setting("buffer.memory", LONG, 33_554_432, at_least(0),
    doc="Memory in bytes for records that wait to be sent. When it is exhausted, send calls block for up to "
        "max.block.ms.")
MAX_REQUEST_SIZE = Setting("max.request.size", INT, 1_048_576, at_least(0),
    doc="Maximum size of a request in bytes, and of a record before compression. The topic limits batches with "
        "max.message.bytes.")
COMPRESSION_TYPE = Setting("compression.type", STRING, "none", one_of("none", "gzip", "snappy", "lz4", "zstd"),
    doc="Compression codec of batches. lz4 uses little CPU; zstd compresses best. Larger batches compress "
        "better.")
# Partitioning of records without a key.
PARTITIONER_ADAPTIVE_PARTITIONING_ENABLE = Setting("partitioner.adaptive.partitioning.enable", BOOLEAN, True,
    doc="Send more of the records without a key to partitions on faster brokers.")
PARTITIONER_AVAILABILITY_TIMEOUT_MS = Setting("partitioner.availability.timeout.ms", LONG, 0, at_least(0),
    doc="Time in milliseconds without a response after which a partition receives no records without a key; 0 "
        "disables it.")
PARTITIONER_IGNORE_KEYS = Setting("partitioner.ignore.keys", BOOLEAN, False,
    doc="Ignore record keys when choosing a partition. Records of one key are then not ordered.")
METADATA_MAX_IDLE_MS = Setting("metadata.max.idle.ms", LONG, 300_000, at_least(5000),
    doc="Time in milliseconds after which the producer forgets the metadata of an idle topic.")
# fmt: on

PRODUCER: Final = ConfigDef(
    "producer",
    (
        *settings_in(globals()),
        *compression.LEVELS,
        *connection.ROWS,
        connection.RETRIES,
        # Responses to a producer are small.
        connection.RECEIVE_BUFFER_BYTES.but(32_768),
    ),
    ignored=ignored.PRODUCER,
    unsupported=unsupported.PRODUCER,
)

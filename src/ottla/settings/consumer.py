# ruff: noqa: E501 - one line per row
"""The consumer settings; connection.py has the ones shared with other clients.

Names and defaults are those of Kafka's consumer. Assignors have Kafka's short names; Java class
names are accepted as aliases.
"""

from typing import Final

from ottla.settings import connection, ignored, unsupported
from ottla.settings.config_def import ConfigDef, Setting, settings_in
from ottla.settings.config_types import BOOLEAN, INT, LIST, STRING
from ottla.settings.validators import NON_EMPTY, OFFSET_RESET, at_least, one_of, some_of

_JAVA: Final = "org.apache.kafka.clients.consumer."
ASSIGNORS: Final = {
    f"{_JAVA}RangeAssignor": "range",
    f"{_JAVA}RoundRobinAssignor": "roundrobin",
    f"{_JAVA}StickyAssignor": "sticky",
    f"{_JAVA}CooperativeStickyAssignor": "cooperative-sticky",
}

# fmt: off
# Group membership.
GROUP_ID = Setting("group.id", STRING, None,
    doc="Consumer group of this consumer. Its members share the partitions, and the group stores committed "
        "offsets. Required to subscribe or to commit.")
GROUP_INSTANCE_ID = Setting("group.instance.id", STRING, None, NON_EMPTY,
    doc="Static member id. A member that restarts within its session timeout gets its partitions back without a "
        "rebalance.")
GROUP_PROTOCOL = Setting("group.protocol", STRING, "classic", one_of("consumer", "classic", any_case=True),
    doc="Group protocol: with `classic` a member assigns the partitions; with `consumer` the broker does, and "
        "only the affected members stop (KIP-848).")
GROUP_REMOTE_ASSIGNOR = Setting("group.remote.assignor", STRING, None,
    doc="Server-side assignor for group.protocol=consumer; null means the first assignor of the broker.")
PARTITION_ASSIGNMENT_STRATEGY = Setting("partition.assignment.strategy", LIST, ("range", "cooperative-sticky"),
    some_of("range", "roundrobin", "sticky", "cooperative-sticky", empty_allowed=False, aliases=ASSIGNORS),
    doc="Assignors that this member supports for group.protocol=classic. The group uses one that all members "
        "support. Java class names are accepted; Ottla does not load them.")
SESSION_TIMEOUT_MS = Setting("session.timeout.ms", INT, 45_000, at_least(1),
    doc="Time in milliseconds without a heartbeat after which a classic group removes this member. The broker "
        "limits the value.")
HEARTBEAT_INTERVAL_MS = Setting("heartbeat.interval.ms", INT, 3000, at_least(1),
    doc="Heartbeat interval in a classic group in milliseconds; at most a third of session.timeout.ms.")
MAX_POLL_INTERVAL_MS = Setting("max.poll.interval.ms", INT, 300_000, at_least(1),
    doc="Maximum time in milliseconds between two polls. After it the member leaves the group and loses its "
        "partitions. Raise it if processing takes longer.")
MAX_POLL_RECORDS = Setting("max.poll.records", INT, 500, at_least(1),
    doc="Maximum number of records that one poll returns. It does not affect how much is fetched.")
CLIENT_RACK = Setting("client.rack", STRING, "",
    doc="Rack of this consumer, matching broker.rack, so that it can fetch from the closest replica.")
# Offsets.
AUTO_OFFSET_RESET = Setting("auto.offset.reset", STRING, "latest", OFFSET_RESET,
    doc="Start position if there is no committed offset, or if it is out of range: `latest`, `earliest`, `none` "
        "(error) or by_duration:PT1H (one hour ago).")
ENABLE_AUTO_COMMIT = Setting("enable.auto.commit", BOOLEAN, True,
    doc="Commit offsets of the records of earlier polls periodically. Disable it to commit only after "
        "processing.")
AUTO_COMMIT_INTERVAL_MS = Setting("auto.commit.interval.ms", INT, 5000, at_least(0),
    doc="Interval in milliseconds between automatic commits.")
ISOLATION_LEVEL = Setting("isolation.level", STRING, "read_uncommitted", one_of("read_committed", "read_uncommitted"),
    doc="Visibility of transactional records: read_uncommitted returns all records; read_committed returns "
        "committed ones only, up to the oldest open transaction.")
# Fetching.
FETCH_MIN_BYTES = Setting("fetch.min.bytes", INT, 1, at_least(0),
    doc="Minimum number of bytes for a fetch response. The broker waits for them up to fetch.max.wait.ms. A "
        "higher value reduces the number of requests.")
FETCH_MAX_WAIT_MS = Setting("fetch.max.wait.ms", INT, 500, at_least(0),
    doc="Maximum time in milliseconds that the broker waits for fetch.min.bytes.")
FETCH_MAX_BYTES = Setting("fetch.max.bytes", INT, 52_428_800, at_least(0),
    doc="Maximum number of bytes in a fetch response. A first batch that is larger is still returned.")
MAX_PARTITION_FETCH_BYTES = Setting("max.partition.fetch.bytes", INT, 1_048_576, at_least(0),
    doc="Maximum number of bytes per partition in a fetch response. A first batch that is larger is still "
        "returned.")
CHECK_CRCS = Setting("check.crcs", BOOLEAN, True,
    doc="Verify the CRC of every batch. Disabling it saves a little CPU, but corruption goes unnoticed.")
# Topics.
ALLOW_AUTO_CREATE_TOPICS = Setting("allow.auto.create.topics", BOOLEAN, True,
    doc="Let the broker create a topic on subscription, if auto.create.topics.enable allows it.")
EXCLUDE_INTERNAL_TOPICS = Setting("exclude.internal.topics", BOOLEAN, True,
    doc="Exclude internal topics such as __consumer_offsets from pattern subscriptions.")
# Share groups.
SHARE_ACKNOWLEDGEMENT_MODE = Setting("share.acknowledgement.mode", STRING, "implicit", one_of("implicit", "explicit"),
    doc="Acknowledgement of records in a share group: `implicit` with the next poll, or `explicit` by the "
        "application.")
SHARE_ACQUIRE_MODE = Setting("share.acquire.mode", STRING, "batch_optimized", one_of("batch_optimized", "record_limit", any_case=True),
    doc="Acquisition of records in a share group: batch_optimized acquires whole batches, record_limit never "
        "more than max.poll.records.")
# fmt: on

CONSUMER: Final = ConfigDef(
    "consumer",
    (*settings_in(globals()), *connection.ROWS, connection.DEFAULT_API_TIMEOUT_MS),
    ignored=ignored.CONSUMER,
    unsupported=unsupported.CONSUMER,
)

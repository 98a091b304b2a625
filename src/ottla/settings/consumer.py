# ruff: noqa: E501 - a row reads best with its facts on one line.
"""The consumer's settings, one row each; what it shares with other clients is in connection.py.

Invariant: names and defaults are those of Kafka's consumer, so that an application behaves the
same; assignors are known by Kafka's short names, and Java's class names are read as those.
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
# The group.
GROUP_ID = Setting("group.id", STRING, None,
    doc="The group that shares the partitions of its topics among its members and remembers how far it "
        "has read. Needed to subscribe or to commit.")
GROUP_INSTANCE_ID = Setting("group.instance.id", STRING, None, NON_EMPTY,
    doc="A lasting name of this member. After a short restart it gets its partitions back without a rebalance.")
GROUP_PROTOCOL = Setting("group.protocol", STRING, "classic", one_of("consumer", "classic", any_case=True),
    doc="Who assigns partitions: with `classic` a member of the group, with `consumer` the broker, which "
        "stops only the members that change (KIP-848).")
GROUP_REMOTE_ASSIGNOR = Setting("group.remote.assignor", STRING, None,
    doc="The broker's assignor to use under group.protocol=consumer; null takes the broker's first.")
PARTITION_ASSIGNMENT_STRATEGY = Setting("partition.assignment.strategy", LIST, ("range", "cooperative-sticky"),
    some_of("range", "roundrobin", "sticky", "cooperative-sticky", empty_allowed=False, aliases=ASSIGNORS),
    doc="The assignors this member offers under group.protocol=classic; the group takes one that all "
        "have. Java's class names are understood too, and none is loaded.")
SESSION_TIMEOUT_MS = Setting("session.timeout.ms", INT, 45_000, at_least(1),
    doc="Milliseconds without a heartbeat after which a classic group gives this member up. The broker "
        "has limits for it.")
HEARTBEAT_INTERVAL_MS = Setting("heartbeat.interval.ms", INT, 3000, at_least(1),
    doc="Milliseconds between heartbeats to a classic group; at most a third of session.timeout.ms.")
MAX_POLL_INTERVAL_MS = Setting("max.poll.interval.ms", INT, 300_000, at_least(1),
    doc="Milliseconds that may pass between two polls before the member counts as stuck and loses its "
        "partitions. Raise it when a batch takes longer to process.")
MAX_POLL_RECORDS = Setting("max.poll.records", INT, 500, at_least(1),
    doc="The most records that one poll returns. It does not change how much is fetched.")
CLIENT_RACK = Setting("client.rack", STRING, "",
    doc="Where this consumer stands, in the words of broker.rack, so that it can read from a replica nearby.")
# Offsets.
AUTO_OFFSET_RESET = Setting("auto.offset.reset", STRING, "latest", OFFSET_RESET,
    doc="Where to begin without a committed offset, or when it is gone: at the end, at the beginning, at "
        "what was written in the last hour with by_duration:PT1H, or with an error.")
ENABLE_AUTO_COMMIT = Setting("enable.auto.commit", BOOLEAN, True,
    doc="Whether offsets are committed by themselves, for what earlier polls returned. Turn it off to "
        "commit when the work is really done.")
AUTO_COMMIT_INTERVAL_MS = Setting("auto.commit.interval.ms", INT, 5000, at_least(0),
    doc="Milliseconds between two commits under enable.auto.commit.")
ISOLATION_LEVEL = Setting("isolation.level", STRING, "read_uncommitted", one_of("read_committed", "read_uncommitted"),
    doc="Whether records of open and aborted transactions are returned. read_committed waits for the "
        "oldest open transaction.")
# Fetching.
FETCH_MIN_BYTES = Setting("fetch.min.bytes", INT, 1, at_least(0),
    doc="Bytes that a broker waits for before it answers, up to fetch.max.wait.ms. More means fewer requests.")
FETCH_MAX_WAIT_MS = Setting("fetch.max.wait.ms", INT, 500, at_least(0),
    doc="Milliseconds that a broker may wait for fetch.min.bytes.")
FETCH_MAX_BYTES = Setting("fetch.max.bytes", INT, 52_428_800, at_least(0),
    doc="Bytes of all partitions that one fetch asks for. A first batch that is larger still comes through.")
MAX_PARTITION_FETCH_BYTES = Setting("max.partition.fetch.bytes", INT, 1_048_576, at_least(0),
    doc="Bytes of one partition that one fetch asks for. A first batch that is larger still comes through.")
CHECK_CRCS = Setting("check.crcs", BOOLEAN, True,
    doc="Whether the checksum of every batch is verified. Off saves a little CPU and lets damage through.")
# Topics.
ALLOW_AUTO_CREATE_TOPICS = Setting("allow.auto.create.topics", BOOLEAN, True,
    doc="Whether subscribing may create a topic, if the broker allows that too.")
EXCLUDE_INTERNAL_TOPICS = Setting("exclude.internal.topics", BOOLEAN, True,
    doc="Whether a pattern leaves out internal topics such as __consumer_offsets.")
# Share groups.
SHARE_ACKNOWLEDGEMENT_MODE = Setting("share.acknowledgement.mode", STRING, "implicit", one_of("implicit", "explicit"),
    doc="Whether the next poll settles all records of the last one, or the application settles each itself.")
SHARE_ACQUIRE_MODE = Setting("share.acquire.mode", STRING, "batch_optimized", one_of("batch_optimized", "record_limit", any_case=True),
    doc="Whether a share consumer takes whole batches, which is faster, or never more than max.poll.records.")
# fmt: on

CONSUMER: Final = ConfigDef(
    "consumer",
    (*settings_in(globals()), *connection.ROWS, connection.DEFAULT_API_TIMEOUT_MS),
    ignored=ignored.CONSUMER,
    unsupported=unsupported.CONSUMER,
)

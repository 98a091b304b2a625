"""The known differences between the responses of Ottla and of Kafka 4.3, with their reasons.

docs/reference/differences.md is generated from this table.

Invariant: the differential test fails for a difference without a row, and for a row without a
difference.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.settings.broker import BROKER
from ottla.settings.topic import TOPIC


def _always(ours: object, kafkas: object) -> bool:
    return True


class Known(NamedTuple):
    """One row: description and reason of a difference, and how to recognise it."""

    apis: str
    what: str
    reason: str
    scenario: str = ".*"
    path: str = ".*"
    so: Callable[[object, object], bool] = _always  # takes our value and Kafka's

    def covers(self, api: str, scenario: str, path: str, ours: object, kafkas: object) -> bool:
        """Whether this row describes a difference."""
        return (
            api in self.apis.split(", ")
            and re.fullmatch(self.scenario, scenario) is not None
            and re.fullmatch(self.path, path) is not None
            and self.so(ours, kafkas)
        )


def _settings(*names: str) -> str:
    """Return a pattern for the paths of settings in a response."""
    words = "|".join(re.escape(name).replace(r"\*", ".*") for name in names)
    return rf".*\.configs\[({words})\].*"


def _only_kafka_has_it(ours: object, kafkas: object) -> bool:
    return ours == "missing"


def _we_lack_it(ours: object, kafkas: object) -> bool:
    return ours in ("missing", -1)


def _ours_is_the_default(ours: object, kafkas: object) -> bool:
    return ours in ("missing", 5)  # the number of the source DEFAULT_CONFIG


def _ours_is_stripped(ours: object, kafkas: object) -> bool:
    return isinstance(kafkas, str) and ours == kafkas.strip()


def _only_ours_has_it(ours: object, kafkas: object) -> bool:
    return kafkas == "missing"


def _we_say_more(ours: object, kafkas: object) -> bool:
    return ours is True and kafkas is False


def _ends_with_a_part_of_a_batch(ours: object, kafkas: object) -> bool:
    return (
        isinstance(ours, bytes)
        and isinstance(kafkas, bytes)
        and kafkas.startswith(ours)
        and len(kafkas) > len(ours)
    )


_CONFIGS: Final = "DescribeConfigs, CreateTopics"
_NO_ANSWER: Final = "Kafka fails internally and returns UNKNOWN_SERVER_ERROR"
_LACKING: Final = sorted(row.name for table in (BROKER, TOPIC) for row in table.unsupported)
_ROWS_WITH_ANOTHER_DEFAULT: Final = sorted(
    row.name for row in BROKER.settings.values() if row.kafka_default is not None
)

KNOWN: Final = (
    Known(
        "ApiVersions",
        "Ottla advertises neither features nor APIs that it does not serve",
        "features are KRaft metadata levels; apis.md lists the APIs that Ottla serves",
        path=r"(api_keys|supported_features|finalized_features)\[.*|finalized_features_epoch",
        so=_we_lack_it,
    ),
    Known(
        "ApiVersions, AlterReplicaLogDirs",
        "Ottla does not serve AlterReplicaLogDirs, so replicas cannot be moved between the data "
        "directories of a broker. The Java admin client raises UnsupportedVersionException, and "
        "`kafka-reassign-partitions --execute` with log_dirs other than any ends with `Failed to "
        "alter dir`",
        "a broker with several directories places each new partition in the one with the fewest; "
        "to empty a directory, drain the broker with `ottla broker drain`",
        path=r"api_keys\[34\].*",
        so=_we_lack_it,
    ),
    Known(
        "SaslHandshake, SaslAuthenticate",
        "Ottla accepts logins of brokers (SCRAM-SHA-256) on a listener without SASL",
        "only a broker of the cluster may send the requests between brokers; see "
        "[security.md](../security.md)",
        scenario="login_as_a_broker",
    ),
    Known(
        "Fetch, ListOffsets, OffsetForLeaderEpoch",
        "Ottla rejects replica ids of clients (0 or higher) with TOPIC_AUTHORIZATION_FAILED",
        "on a listener without authentication, every client of Kafka can pose as a replica",
        scenario="pretended_replica",
    ),
    Known(
        "FindCoordinator, InitProducerId",
        "Ottla rejects transactional ids with TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "Ottla does not support transactions yet, and clients do not retry this error",
        scenario="transactions",
    ),
    Known(
        "CreatePartitions",
        "Ottla adds no partitions to __consumer_offsets and __transaction_state, and returns "
        "INVALID_PARTITIONS",
        "a group's partition depends on the partition count, so existing offsets would be lost",
        scenario="more_homes_of_groups",
    ),
    Known(
        "ConsumerGroupHeartbeat",
        "Ottla returns UNSUPPORTED_VERSION, with a message to set group.protocol=classic",
        "Ottla does not support KIP-848 groups yet; a Kafka broker with the protocol disabled "
        "returns the same error",
        scenario="new_protocol",
    ),
    Known(
        "CreatePartitions",
        "Ottla rejects a request for more than 10,000 new partitions with POLICY_VIOLATION",
        "Kafka limits only CreateTopics; a larger request would block other clients for too long",
        scenario="create_many_partitions",
    ),
    Known(
        _CONFIGS,
        "Ottla does not describe settings that it does not support",
        "settings-not-supported.md lists these settings with the reason",
        path=_settings(*_LACKING),
        so=_only_kafka_has_it,
    ),
    Known(
        "DescribeConfigs",
        "Ottla describes settings that Kafka 4.3 does not have",
        "these are ZooKeeper settings and Ottla's own settings; see settings-broker.md",
        path=_settings(*BROKER.settings),
        so=_only_ours_has_it,
    ),
    Known(
        "DescribeConfigs",
        "some defaults differ",
        "settings-broker.md lists both defaults",
        path=_settings(*_ROWS_WITH_ANOTHER_DEFAULT),
    ),
    Known(
        _CONFIGS,
        "the config source of min.insync.replicas is the default; in Kafka it is the dynamic "
        "cluster default",
        "Kafka sets a cluster default for eligible leader replicas, a KRaft feature",
        path=_settings("min.insync.replicas"),
        so=_ours_is_the_default,
    ),
    Known(
        "CreateTopics, AlterConfigs, IncrementalAlterConfigs",
        "Ottla creates internal topics with cleanup.policy=compact, their compression.type and the "
        "broker's segment.bytes for them, even if the request has other configs. It keeps these "
        "configs, and rejects other values with POLICY_VIOLATION. It also rejects "
        "max.message.bytes below 1048588, min.insync.replicas above the replication factor, and "
        "another number of partitions than offsets.topic.num.partitions or "
        "transaction.state.log.num.partitions",
        "with cleanup.policy=delete, retention would delete committed offsets; internal topics "
        "cannot be deleted, so a client could use up the partitions of a broker",
        path=r"topics\[__(consumer_offsets|transaction_state)\]\.configs\[.*",
    ),
    Known(
        "CreateTopics",
        "Ottla returns the value of a setting without surrounding spaces",
        "both brokers store and describe the value without spaces",
        path=_settings("retention.ms"),
        so=_ours_is_stripped,
    ),
    Known(
        "AlterPartitionReassignments, CreatePartitions, Produce",
        "Ottla returns an error message where Kafka returns only the error code",
        "the message helps users, and clients do not depend on its absence",
        path=r".*\.error_message",
        so=_we_say_more,
    ),
    Known(
        "IncrementalAlterConfigs",
        "Ottla rejects an unknown broker setting with INVALID_REQUEST",
        "Kafka stores the setting for plugins; Ottla has no plugins, so the name must be a mistake",
        scenario="change_to_unknown",
    ),
    Known(
        "IncrementalAlterConfigs",
        "Ottla rejects an unknown operation with INVALID_REQUEST",
        _NO_ANSWER,
        scenario="change_by_no_operation",
    ),
    Known(
        "Metadata",
        "Ottla rejects a topic without name and id with INVALID_TOPIC_EXCEPTION",
        _NO_ANSWER,
        scenario="metadata_of_neither_name_nor_id",
    ),
    Known(
        "Produce",
        "Ottla rejects a batch that has a producer id but no epoch or sequence number with "
        "INVALID_RECORD, before it checks the partition",
        "no producer sends such a batch, and the broker could not detect its duplicates",
        scenario="producer_without_a_number",
    ),
    Known(
        "Fetch",
        "Ottla's response ends with a complete batch",
        "Kafka truncates the last batch at the byte limit, and clients discard the truncated batch",
        scenario="fetch_up_to_the_middle_of_a_batch",
        path=r".*\.records",
        so=_ends_with_a_part_of_a_batch,
    ),
    Known(
        "Fetch",
        "Ottla treats a negative byte limit as 0 and returns the first batch",
        _NO_ANSWER,
        scenario="fetch_less_than_nothing",
    ),
    Known(
        "ListGroups",
        "Ottla does not create a group if it rejects the first member",
        "Kafka creates the group before it validates the member, and keeps the empty group",
        path=r"groups\[refused\]",
        so=_only_kafka_has_it,
    ),
)

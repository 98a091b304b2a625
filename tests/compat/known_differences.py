"""Where Ottla answers otherwise than Kafka 4.3, and why.

The page docs/reference/differences.md is made from this table.

Invariant: a row is the only way to be different. The differential test fails for a difference
without a row, and for a row without a difference.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.settings.broker import BROKER
from ottla.settings.topic import TOPIC


def _always(ours: object, kafkas: object) -> bool:
    return True


class Known(NamedTuple):
    """One row: what is different, for people, and how to recognise it."""

    apis: str
    what: str
    reason: str
    scenario: str = ".*"
    path: str = ".*"
    so: Callable[[object, object], bool] = _always  # takes our value and Kafka's

    def covers(self, api: str, scenario: str, path: str, ours: object, kafkas: object) -> bool:
        """Whether a difference is this one."""
        return (
            api in self.apis.split(", ")
            and re.fullmatch(self.scenario, scenario) is not None
            and re.fullmatch(self.path, path) is not None
            and self.so(ours, kafkas)
        )


def _settings(*names: str) -> str:
    """The paths of settings in an answer."""
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
_NO_ANSWER: Final = "Kafka's code fails on it and says UNKNOWN_SERVER_ERROR"
_LACKING: Final = sorted(
    row.name for table in (BROKER, TOPIC) for row in (*table.unsupported, *table.ignored)
)
_ROWS_WITH_ANOTHER_DEFAULT: Final = sorted(
    row.name for row in BROKER.settings.values() if row.kafka_default is not None
)

KNOWN: Final = (
    Known(
        "ApiVersions",
        "APIs that are not served are not advertised, and there are no features of a cluster",
        "features are levels of KRaft's metadata; the APIs are in apis.md",
        path=r"(api_keys|supported_features|finalized_features)\[.*|finalized_features_epoch",
        so=_we_lack_it,
    ),
    Known(
        "FindCoordinator, InitProducerId",
        "transactions are refused: TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "they are not built yet; it is an error that makes no client try for ever",
        scenario="transactions",
    ),
    Known(
        "CreatePartitions",
        "__consumer_offsets gets no more partitions than it was made with: INVALID_PARTITIONS",
        "their number says where a group's offsets are: with another one nobody finds those that "
        "are there",
        scenario="more_homes_of_groups",
    ),
    Known(
        "ConsumerGroupHeartbeat",
        "UNSUPPORTED_VERSION, and a text that says to set group.protocol=classic",
        "the groups of KIP-848 are not built yet; so answers a Kafka where they are switched off, "
        "and clients of every kind tell it as an error",
        scenario="new_protocol",
    ),
    Known(
        "CreatePartitions",
        "a request adds at most 10,000 partitions: POLICY_VIOLATION",
        "Kafka has this limit for CreateTopics alone; more would keep everybody else waiting",
        scenario="create_many_partitions",
    ),
    Known(
        _CONFIGS,
        "settings that Ottla does not have are not described",
        "each is in settings-not-supported.md with its reason",
        path=_settings(*_LACKING),
        so=_only_kafka_has_it,
    ),
    Known(
        "DescribeConfigs",
        "settings that Kafka does not have are described as well",
        "they belong to coordination, access and what Ottla adds; see settings-broker.md",
        path=_settings(*BROKER.settings),
        so=_only_ours_has_it,
    ),
    Known(
        "DescribeConfigs",
        "some defaults are others",
        "settings-broker.md tells Kafka's beside ours",
        path=_settings(*_ROWS_WITH_ANOTHER_DEFAULT),
    ),
    Known(
        _CONFIGS,
        "min.insync.replicas comes from the defaults, in Kafka from a dynamic default of the "
        "cluster",
        "Kafka writes it when it formats a cluster with eligible leader replicas, which need KRaft",
        path=_settings("min.insync.replicas"),
        so=_ours_is_the_default,
    ),
    Known(
        "CreateTopics",
        "the value of a setting is answered as it counts, without the spaces around it",
        "so it is stored and described, by Kafka too",
        path=_settings("retention.ms"),
        so=_ours_is_stripped,
    ),
    Known(
        "CreatePartitions, Produce",
        "an error comes with a text where Kafka gives the code alone",
        "a text helps whoever reads it, and no client depends on its absence",
        path=r".*\.error_message",
        so=_we_say_more,
    ),
    Known(
        "IncrementalAlterConfigs",
        "a broker's setting that does not exist is refused, with INVALID_REQUEST",
        "Kafka keeps it for plugins, of which Ottla has none; a typing error should not pass",
        scenario="change_to_unknown",
    ),
    Known(
        "IncrementalAlterConfigs",
        "an operation that does not exist is INVALID_REQUEST",
        _NO_ANSWER,
        scenario="change_by_no_operation",
    ),
    Known(
        "Metadata",
        "a topic with neither name nor id is INVALID_TOPIC_EXCEPTION",
        _NO_ANSWER,
        scenario="metadata_of_neither_name_nor_id",
    ),
    Known(
        "Produce",
        "a batch that has a producer's id without an epoch or a sequence is INVALID_RECORD before "
        "its partition is looked at",
        "no producer makes such a batch, and its repeats could not be recognised",
        scenario="producer_without_a_number",
    ),
    Known(
        "Fetch",
        "an answer ends with a whole batch",
        "Kafka cuts the last one at the limit of bytes, and clients throw that part away",
        scenario="fetch_up_to_the_middle_of_a_batch",
        path=r".*\.records",
        so=_ends_with_a_part_of_a_batch,
    ),
    Known(
        "Fetch",
        "a negative limit of bytes is taken as 0: the first batch is sent",
        _NO_ANSWER,
        scenario="fetch_less_than_nothing",
    ),
    Known(
        "ListGroups",
        "a group that nobody was admitted to does not exist",
        "Kafka makes it before it looks at who wants to join, and keeps it",
        path=r"groups\[refused\]",
        so=_only_kafka_has_it,
    ),
)

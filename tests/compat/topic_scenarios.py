"""Requests about topics and the cluster: create, reject, describe, change, delete."""

from compat.config_scenarios import BROKER, DELETE, SET, change
from compat.response_comparison import Asker
from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest

STRANGER = Uuid(bytes(range(16)))


def topic(
    name: str,
    partitions: int = -1,
    factor: int = -1,
    assignment: dict[int, list[int]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
            for index, brokers in (assignment or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ],
    )


def api_versions(ask: Asker) -> None:
    for version in range(5):
        ask(
            ApiVersionsRequest(client_software_name="judge", client_software_version="1"),
            version,
        )
    ask(ApiVersionsRequest(client_software_name="-judge-", client_software_version="1"), 3)
    ask(ApiVersionsRequest(client_software_name="judge", client_software_version=""), 3)


def login_without_sasl(ask: Asker) -> None:
    for mechanism in ("PLAIN", "SCRAM-SHA-512", "unknown"):
        ask.every(SaslHandshakeRequest(mechanism=mechanism))
    ask.every(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"))
    ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 0)


def login_as_a_broker(ask: Asker) -> None:
    ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"))
    ask(SaslAuthenticateRequest(auth_bytes=b"n,,n=ottla-broker,r=0123456789abcdef"))


def metadata(ask: Asker) -> None:
    known = ask.topic("metadata", partitions=3)
    ask.topic("metadata-second")
    names = [MetadataRequestTopic(name=one) for one in ("metadata", "absent", "metadata-second")]
    ask.every(MetadataRequest(topics=names))
    ask.every(
        MetadataRequest(
            topics=names,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        )
    )
    ask.every(MetadataRequest(topics=names, include_topic_authorized_operations=True))
    ask.every(MetadataRequest(topics=()))
    for version in (4, 9, 12, 13):
        for name in ("", ".", "..", "a/b", "a b", "ä", "x" * 249, "x" * 250, "metadata_x"):
            ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), version)
        twice = [MetadataRequestTopic(name="metadata")] * 2
        ask(MetadataRequest(topics=twice), version)
    for version in (12, 13):
        for topic_id in (known, STRANGER):
            by_id = MetadataRequestTopic(name=None, topic_id=topic_id)
            ask(MetadataRequest(topics=[by_id]), version)
            both = MetadataRequestTopic(name="metadata", topic_id=topic_id)
            ask(MetadataRequest(topics=[both]), version)
    for version in (10, 11):
        by_id = MetadataRequestTopic(name="metadata", topic_id=known)
        ask(MetadataRequest(topics=[by_id, MetadataRequestTopic(name="metadata")]), version)
        ask(MetadataRequest(topics=[MetadataRequestTopic(name=None)]), version)


def metadata_of_neither_name_nor_id(ask: Asker) -> None:
    for version in (12, 13):
        ask(MetadataRequest(topics=[MetadataRequestTopic(name=None)]), version)


def create_topics(ask: Asker) -> None:
    ask.every(CreateTopicsRequest(topics=[topic("defaults")], validate_only=True))
    ask.every(CreateTopicsRequest(topics=[topic("ones", 1, 1)], validate_only=True))
    made = ask(CreateTopicsRequest(topics=[topic("created", 2, 1)]), 6)
    ask(CreateTopicsRequest(topics=[topic("created.other", 2, 1)]), 6)
    assert made.topics[0].error_code == 0
    refused = [
        topic("created", 2, 1),
        topic("created_other", 1, 1),
        topic("zero-partitions", 0, 1),
        topic("minus-two-partitions", -2, 1),
        topic("zero-replicas", 1, 0),
        topic("minus-two-replicas", 1, -2),
        topic("two-replicas", 1, 2),
        topic("", 1, 1),
        topic(".", 1, 1),
        topic("..", 1, 1),
        topic("__cluster_metadata", 1, 1),
        topic("x" * 250, 1, 1),
        topic("a/b", 1, 1),
        topic("a b", 1, 1),
        topic("ä", 1, 1),
        topic("given", assignment={0: [1], 1: [1]}),
        topic("given-with-number", 1, assignment={0: [1]}),
        topic("given-with-factor", factor=1, assignment={0: [1]}),
        topic("given-gap", assignment={0: [1], 2: [1]}),
        topic("given-negative", assignment={-1: [1], 0: [1]}),
        topic("given-from-one", assignment={1: [1]}),
        topic("given-empty", assignment={0: []}),
        topic("given-stranger", assignment={0: [7]}),
        topic("given-negative-broker", assignment={0: [-1]}),
        topic("given-twice", assignment={0: [1, 1]}),
        topic("given-uneven", assignment={0: [1], 1: [1, 2]}),
        topic("no-such-setting", 1, 1, configs={"no.such": "1"}),
        topic("null-setting", 1, 1, configs={"retention.ms": None}),
        topic("bad-setting", 1, 1, configs={"retention.ms": "soon"}),
        topic("low-setting", 1, 1, configs={"segment.bytes": "1"}),
        topic("bad-policy", 1, 1, configs={"cleanup.policy": "burn"}),
        topic("broker-setting", 1, 1, configs={"log.retention.ms": "1"}),
        topic("min-isr-zero", 1, 1, configs={"min.insync.replicas": "0"}),
        topic("good-settings", 1, 1, configs={"retention.ms": "1000", "cleanup.policy": "compact"}),
        topic("spaces", 1, 1, configs={"retention.ms": " 1000 "}),
        topic("both-policies", 1, 1, configs={"cleanup.policy": "compact,delete"}),
        topic("no-policy", 1, 1, configs={"cleanup.policy": ""}),
        topic(
            "lag-crossed", 1, 1,
            configs={"min.compaction.lag.ms": "1000", "max.compaction.lag.ms": "10"},
        ),
        topic("remote", 1, 1, configs={"remote.storage.enable": "true"}),
    ]  # fmt: skip
    for one in refused:
        ask(CreateTopicsRequest(topics=[one], validate_only=True), 7)
    ask(CreateTopicsRequest(topics=[topic("twice", 1, 1), topic("twice", 2, 1)]), 7)
    twice = topic("given-same-twice", assignment={0: [1]})
    twice.assignments = [*twice.assignments, *twice.assignments]
    ask(CreateTopicsRequest(topics=[twice], validate_only=True), 7)
    settings = topic("settings-twice", 1, 1, configs={"retention.ms": "1"})
    settings.configs = [*settings.configs, CreatableTopicConfig(name="retention.ms", value="2")]
    ask(CreateTopicsRequest(topics=[settings], validate_only=True), 7)
    ask(CreateTopicsRequest(topics=[]), 7)
    for many in (
        [topic("many", 10_001, 1)],
        [topic("many", 2_000_000_000, 1), topic("created", 1, 1)],
        [topic("many", 9_999, 1), topic("default", -1, 1), topic("one-more", 1, 1)],
        [topic("many", 10_001, 1), topic("many", 1, 1)],
    ):
        ask(CreateTopicsRequest(topics=many, validate_only=True), 7)
    ask(CreateTopicsRequest(topics=[topic("mixed", 1, 1), topic("created", 1, 1)]), 5)
    ask(CreateTopicsRequest(topics=[topic("__consumer_offsets", 1, 1)], validate_only=True), 7)


def delete_topics(ask: Asker) -> None:
    for version in range(1, 6):
        ask.topic(f"deleted-{version}")
        ask(DeleteTopicsRequest(topic_names=[f"deleted-{version}"], timeout_ms=10_000), version)
    ask(DeleteTopicsRequest(topic_names=["absent"], timeout_ms=10_000), 1)
    ask(DeleteTopicsRequest(topic_names=["absent", "a/b", ""], timeout_ms=10_000), 5)
    ask(DeleteTopicsRequest(topic_names=["absent", "absent"], timeout_ms=10_000), 5)
    by_id = ask.topic("deleted-by-id")
    by_name = ask.topic("deleted-by-name")

    def delete(*asked: tuple[str | None, Uuid]) -> None:
        topics = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in asked]
        ask(DeleteTopicsRequest(topics=topics, timeout_ms=10_000), 6)

    delete(("deleted-by-name", by_name))
    delete(("deleted-by-name", ZERO_UUID), ("absent", ZERO_UUID))
    delete((None, STRANGER))
    delete((None, ZERO_UUID))
    delete((None, by_id), (None, by_id))
    delete((None, by_id))
    once = ask.topic("deleted-twice")
    delete(("deleted-twice", ZERO_UUID), ("deleted-twice", ZERO_UUID))
    again = ask.topic("deleted-both-ways")
    delete(("deleted-both-ways", ZERO_UUID), (None, again))
    assert once != again
    delete()


def create_partitions(ask: Asker) -> None:
    ask.topic("grown")

    def grow(
        name: str, count: int, *given: list[int], validate_only: bool = False, version: int = 3
    ) -> None:
        one = CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=[CreatePartitionsAssignment(broker_ids=row) for row in given] or None,
        )
        ask(
            CreatePartitionsRequest(topics=[one], timeout_ms=10_000, validate_only=validate_only),
            version,
        )

    for version in range(4):
        grow("grown", 2, validate_only=True, version=version)
    grow("grown", 3)
    grow("grown", 3)
    grow("grown", 2)
    grow("grown", 0)
    grow("grown", -1)
    grow("absent", 2)
    grow("", 2)
    grow("grown", 5, [1])
    grow("grown", 4, [1], [1])
    grow("grown", 4, [7])
    grow("grown", 4, [1, 1])
    grow("grown", 4, [1, 2])
    grow("grown", 4, [])
    grow("grown", 5, [1], [1], validate_only=True)
    grow("grown", 4, [1])
    one = CreatePartitionsTopic(name="grown", count=9, assignments=None)
    ask(CreatePartitionsRequest(topics=[one, one], timeout_ms=10_000, validate_only=False), 3)
    ask(CreatePartitionsRequest(topics=[], timeout_ms=10_000, validate_only=False), 3)


def create_many_partitions(ask: Asker) -> None:
    ask.topic("grown-much")
    much = CreatePartitionsTopic(name="grown-much", count=10_002, assignments=None)
    ask(CreatePartitionsRequest(topics=[much], timeout_ms=10_000, validate_only=True), 3)


def describe_topic_partitions(ask: Asker) -> None:
    ask.topic("paged-a", partitions=3)
    ask.topic("paged-b", partitions=3)
    names = ("paged-b", "absent", "paged-a", "a/b")
    topics = [TopicRequest(name=name) for name in names]

    def page(limit: int, cursor: tuple[str, int] | None = None, count: int = 4) -> None:
        at = None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1])
        ask(
            DescribeTopicPartitionsRequest(
                topics=topics[:count], response_partition_limit=limit, cursor=at
            )
        )

    page(2000)
    for limit in (1, 2, 3, 4, 5, 6):
        page(limit)
        page(limit, ("paged-a", 1))
        page(limit, ("paged-b", 2))
    page(2000, ("paged-b", 0))
    page(2000, ("paged-a", 3))
    page(2000, ("between", 0))
    page(2000, ("zzz", 0))
    page(2000, ("paged-a", -1))
    page(0)
    page(-1)
    page(2000, count=1)


def describe_cluster(ask: Asker) -> None:
    ask.every(DescribeClusterRequest(include_cluster_authorized_operations=False))
    ask.every(DescribeClusterRequest(include_cluster_authorized_operations=True))
    for endpoints in (0, 1, 2, 3):
        request = DescribeClusterRequest(
            include_cluster_authorized_operations=False, endpoint_type=endpoints
        )
        ask(request, 1)
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=False, include_fenced_brokers=True
    )
    ask(request, 2)


def describe_log_dirs(ask: Asker) -> None:
    ask.topic("in-a-directory", partitions=2)
    asked = [
        DescribableLogDirTopic(topic="in-a-directory", partitions=[0, 1, 5]),
        DescribableLogDirTopic(topic="absent", partitions=[0]),
    ]
    both = {0, 1}
    ask.until(
        lambda answer: (
            {one.partition_index for one in answer.results[0].topics[0].partitions} == both
        ),
        DescribeLogDirsRequest(topics=asked[:1]),
    )
    ask.every(DescribeLogDirsRequest(topics=asked))
    ask.every(DescribeLogDirsRequest(topics=[]))
    change(ask, BROKER, "1", ("cordoned.log.dirs", SET, "*"))
    ask.until(
        lambda answer: all(one.is_cordoned for one in answer.results),
        DescribeLogDirsRequest(topics=[]),
    )
    ask.every(DescribeLogDirsRequest(topics=[]))
    change(ask, BROKER, "1", ("cordoned.log.dirs", DELETE, None))
    ask.until(
        lambda answer: not any(one.is_cordoned for one in answer.results),
        DescribeLogDirsRequest(topics=[]),
    )


def elect_leaders(ask: Asker) -> None:
    ask.prepare(CreateTopicsRequest(topics=[topic("elected", 2)], timeout_ms=10_000))
    for version in range(3):
        for name, indexes in (("elected", (0, 1)), ("elected", (7,)), ("nowhere", (0,))):
            asked = TopicPartitions(topic=name, partitions=indexes)
            ask(ElectLeadersRequest(topic_partitions=[asked], timeout_ms=10_000), version)
    for election_type in (0, 1):
        ask(ElectLeadersRequest(election_type=election_type, topic_partitions=None))


def partition_reassignments(ask: Asker) -> None:
    ask.topic("reassigned", partitions=2)
    targets: list[list[int] | None] = [[1], None, [], [1, 1], [1, 9], [-1]]
    for name, index in (("reassigned", 0), ("reassigned", 7), ("nowhere", 0)):
        for target in targets:
            one = ReassignablePartition(partition_index=index, replicas=target)
            asked = [ReassignableTopic(name=name, partitions=[one])]
            ask.every(AlterPartitionReassignmentsRequest(topics=asked))
    for changes in (True, False):
        ones = [
            ReassignablePartition(partition_index=index, replicas=[1, 9] if index else [1])
            for index in (0, 1)
        ]
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name="reassigned", partitions=ones)],
            allow_replication_factor_change=changes,
        )
        ask(request)
    ask.every(AlterPartitionReassignmentsRequest(topics=[]))
    ask.every(ListPartitionReassignmentsRequest(topics=None))
    ask.every(ListPartitionReassignmentsRequest(topics=[]))
    listed = [
        ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 7])
        for name in ("reassigned", "nowhere")
    ]
    ask.every(ListPartitionReassignmentsRequest(topics=listed))


SCENARIOS = (
    api_versions,
    login_without_sasl,
    login_as_a_broker,
    metadata,
    metadata_of_neither_name_nor_id,
    create_topics,
    delete_topics,
    create_partitions,
    create_many_partitions,
    describe_topic_partitions,
    describe_cluster,
    describe_log_dirs,
    elect_leaders,
    partition_reassignments,
)

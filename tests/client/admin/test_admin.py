"""The admin client against Ottla's broker: every supported call, and errors for the others."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from aiokafka import AIOKafkaConsumer

from client.scenario_runner import run
from ottla.client.admin import (
    HIGH_WATERMARK,
    Acl,
    AclFilter,
    AclResource,
    Admin,
    CommittedOffset,
    ConfigAction,
    ConfigChange,
    ConfigResource,
    ConfigSource,
    ConfigType,
    GroupMember,
    NewPartitions,
    NewTopic,
    OffsetAt,
    Operation,
    ProducerDescription,
    QuotaEntity,
    Replica,
    Results,
    ScramPassword,
)
from ottla.client.producer.producer import Producer
from ottla.errors import ErrorCode, RequestError
from ottla.ids import Uuid
from ottla.settings.invalid_settings import InvalidSettings
from ottla.testing import Cluster
from ottla.transport.failures import Disconnected, NotSupported

FAST = {"retry.backoff.ms": 10, "reconnect.backoff.ms": 10, "default.api.timeout.ms": 20_000}
T0, T1 = ("t", 0), ("t", 1)


@asynccontextmanager
async def admin(**settings: object) -> AsyncGenerator[Admin]:
    """Start a broker and an admin client for it."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    async with (
        Cluster(settings={"auto.create.topics.enable": "false", **given}) as cluster,
        Admin(FAST, bootstrap_servers=cluster.bootstrap_servers) as ours,
    ):
        yield ours


@asynccontextmanager
async def filled() -> AsyncGenerator[Admin]:
    """The same, with topic t: ten records in its first partition, none in the second."""
    async with (
        Cluster(settings={"auto.create.topics.enable": "false"}) as cluster,
        Admin(FAST, bootstrap_servers=cluster.bootstrap_servers) as ours,
    ):
        await ours.create_topic("t", 2)
        async with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in range(10):
                await producer.send("t", b"v", partition=0, timestamp_ms=1000 + number)
        yield ours


def code(error: RequestError) -> ErrorCode:
    return error.code


def test_created_topics_have_their_own_results() -> None:
    async def scenario() -> None:
        async with admin(num_partitions=2) as ours:
            made = await ours.create_topics(
                [
                    NewTopic("t", 3, 1, {"retention.ms": "1000"}),
                    NewTopic("defaults"),
                    NewTopic("placed", replicas={0: [1], 1: [1]}),
                    NewTopic("no name!"),
                    NewTopic("far", 1, 3),
                ]
            )
            assert {*made.succeeded} == {"t", "defaults", "placed"}
            assert made["t"].partitions == 3
            assert made["t"].replication_factor == 1
            assert made["t"].config is not None
            assert made["t"].config["retention.ms"] == "1000"
            assert made["defaults"].partitions == 2
            assert made["placed"].partitions == 2
            assert code(made.failed["no name!"]) is ErrorCode.INVALID_TOPIC_EXCEPTION
            assert code(made.failed["far"]) is ErrorCode.INVALID_REPLICATION_FACTOR
            with pytest.raises(RequestError, match="no name!"):
                made.or_raise()
            with pytest.raises(RequestError, match=r"t: .*exists") as again:
                await ours.create_topic("t", 1)
            assert again.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
            listed = await ours.list_topics()
            assert [*listed] == ["defaults", "placed", "t"]
            assert listed["t"].partitions == 3
            assert listed["t"].id == made["t"].id

    run(scenario())


def test_validate_only_creates_nothing() -> None:
    async def scenario() -> None:
        async with admin() as ours:
            made = await ours.create_topics([NewTopic("t", 1)], validate_only=True)
            assert made["t"].partitions == 1
            assert await ours.list_topics() == {}
            await ours.create_topic("t", 1)
            await ours.create_partitions({"t": 4}, validate_only=True)
            assert len((await ours.describe_topic("t")).partitions) == 1

    run(scenario())


def test_topics_are_described_by_name_and_by_id() -> None:
    async def scenario() -> None:
        async with admin() as ours:
            made = await ours.create_topic("t", 2)
            assert made.id is not None
            stranger = Uuid(b"0123456789abcdef")
            result = await ours.describe_topics(["missing", "t", made.id, stranger])
            assert [*result] == ["missing", "t", made.id, stranger]
            assert result["t"].name == result[made.id].name == "t"
            assert result["t"].id == made.id
            first = result["t"].partitions[0]
            assert (first.index, first.leader, first.replicas, first.in_sync) == (0, 1, (1,), (1,))
            assert first.leader_epoch == 0
            assert code(result.failed["missing"]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert code(result.failed[stranger]) is ErrorCode.UNKNOWN_TOPIC_ID

    run(scenario())


def test_topics_are_deleted_by_name_and_by_id() -> None:
    async def scenario() -> None:
        async with admin() as ours:
            await ours.create_topic("t", 1)
            other = (await ours.create_topic("u", 1)).id
            assert other is not None
            result = await ours.delete_topics(["t", other, "missing"])
            assert {*result.succeeded} == {"t", other}
            assert code(result.failed["missing"]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert await ours.list_topics() == {}

    run(scenario())


def test_topics_get_more_partitions_and_never_fewer() -> None:
    async def scenario() -> None:
        async with admin() as ours:
            (await ours.create_topics([NewTopic("t", 2), NewTopic("u", 1)])).or_raise()
            result = await ours.create_partitions(
                {"t": 5, "u": NewPartitions(2, [[1]]), "missing": 3}
            )
            assert {*result.succeeded} == {"t", "u"}
            assert code(result.failed["missing"]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert len((await ours.describe_topic("t")).partitions) == 5
            with pytest.raises(RequestError) as fewer:
                (await ours.create_partitions({"t": 4})).or_raise()
            assert fewer.value.code is ErrorCode.INVALID_PARTITIONS

    run(scenario())


def test_settings_are_described_with_their_sources() -> None:
    async def scenario() -> None:
        topic, broker = ConfigResource.topic("t"), ConfigResource.broker(1)
        async with admin() as ours:
            await ours.create_topic("t", 1, config={"retention.ms": "1000"})
            result = await ours.describe_configs(
                [topic, broker, ConfigResource.topic("missing"), ConfigResource.broker(9)],
                include_synonyms=True,
                include_documentation=True,
            )
            entry = result[topic]["retention.ms"]
            assert entry.value == "1000"
            assert entry.source is ConfigSource.TOPIC
            assert entry.type is ConfigType.LONG
            assert entry.documentation
            assert entry.synonyms[0].name == "retention.ms"
            assert result[topic]["segment.bytes"].is_default
            assert result[broker]["node.id"].value == "1"
            assert result[broker]["node.id"].is_read_only
            failed = {one.name: code(error) for one, error in result.failed.items()}
            assert failed == {
                "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "9": ErrorCode.BROKER_NOT_AVAILABLE,
            }
            some = await ours.describe_configs(topic, names=["retention.ms"])
            assert [*some[topic]] == ["retention.ms"]

    run(scenario())


def test_settings_are_changed_incrementally_or_replaced() -> None:
    async def scenario() -> None:
        topic, brokers = ConfigResource.topic("t"), ConfigResource.broker(None)

        async def value(name: str) -> str | None:
            return (await ours.describe_configs(topic))[topic][name].value

        async with admin() as ours:
            await ours.create_topic("t", 1, config={"retention.ms": "1000"})
            result = await ours.alter_configs(
                {
                    topic: {"segment.bytes": "2097152"},
                    brokers: {"log.retention.ms": "7777"},
                    ConfigResource.topic("missing"): {"segment.bytes": "2097152"},
                }
            )
            assert {*result.succeeded} == {topic, brokers}
            assert await value("segment.bytes") == "2097152"
            assert await value("retention.ms") == "1000"
            await ours.alter_configs({topic: {"retention.ms": None}})
            assert await value("retention.ms") == "7777"
            change = ConfigChange("cleanup.policy", "compact", ConfigAction.APPEND)
            (await ours.alter_configs({topic: [change]})).or_raise()
            assert await value("cleanup.policy") == "delete,compact"
            with pytest.raises(RequestError) as wrong:
                (await ours.alter_configs({topic: {"segment.bytes": "no"}})).or_raise()
            assert wrong.value.code is ErrorCode.INVALID_CONFIG
            await ours.alter_configs({topic: {"segment.bytes": "3145728"}}, validate_only=True)
            assert await value("segment.bytes") == "2097152"
            (await ours.replace_configs({topic: {"segment.ms": "60000"}})).or_raise()
            assert await value("segment.ms") == "60000"
            assert await value("cleanup.policy") == "delete"

    run(scenario())


def test_broker_resource_needs_a_number() -> None:
    with pytest.raises(ValueError, match="use the broker id"):
        ConfigResource(ConfigResource.broker(1).kind, "first")


def test_committed_offsets_are_set_listed_and_deleted() -> None:
    async def scenario() -> None:
        async with admin() as ours:
            await ours.create_topic("t", 3)
            result = await ours.alter_group_offsets(
                "g", {T0: 5, T1: CommittedOffset(7, "a note", 0), ("t", 9): 1}
            )
            assert {*result.succeeded} == {T0, T1}
            assert code(result.failed["t", 9]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            offsets = await ours.list_group_offsets(["g", "nobody"])
            assert dict(offsets["g"]) == {
                T0: CommittedOffset(5),
                T1: CommittedOffset(7, "a note", 0),
            }
            assert dict(offsets["nobody"]) == {}
            some = await ours.list_group_offsets("g", [T1, ("t", 2)], require_stable=True)
            assert dict(some["g"]) == {T1: CommittedOffset(7, "a note", 0), ("t", 2): None}
            (await ours.delete_group_offsets("g", [T1])).or_raise()
            assert [*(await ours.list_group_offsets("g"))["g"]] == [T0]
            with pytest.raises(RequestError) as missing:
                await ours.delete_group_offsets("nobody", [T1])
            assert missing.value.code is ErrorCode.GROUP_ID_NOT_FOUND

    run(scenario())


def test_group_is_listed_described_emptied_and_deleted() -> None:
    async def scenario() -> None:
        async with (
            Cluster() as cluster,
            Admin(FAST, bootstrap_servers=cluster.bootstrap_servers) as ours,
        ):
            await ours.create_topic("t", 2)
            consumer: Any = AIOKafkaConsumer(
                "t",
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                client_id="reader",
            )
            await consumer.start()
            try:
                (listed,) = await ours.list_groups(states=["Stable"])
                assert (listed.id, listed.state, listed.type) == ("g", "Stable", "classic")
                assert [*await ours.list_groups(states=["Empty"])] == []
                group = await ours.describe_group("g")
                assert (group.state, group.protocol_type) == ("Stable", "consumer")
                assert group.assignor == "roundrobin"
                (member,) = group.members
                assert (member.client_id, member.topics) == ("reader", ("t",))
                assert member.assignment == (T0, T1)
                busy = await ours.delete_groups(["g"])
                assert code(busy.failed["g"]) is ErrorCode.NON_EMPTY_GROUP
                stranger = GroupMember("stranger")
                gone = await ours.remove_group_members("g", [stranger, GroupMember(member.id)])
                assert {*gone.succeeded} == {GroupMember(member.id)}
                assert code(gone.failed[stranger]) is ErrorCode.UNKNOWN_MEMBER_ID
            finally:
                await consumer.stop()
            assert not await ours.remove_group_members("g")
            (await ours.delete_groups("g")).or_raise()
            with pytest.raises(RequestError) as missing:
                await ours.describe_group("g")
            assert missing.value.code is ErrorCode.GROUP_ID_NOT_FOUND

    run(scenario())


def test_cluster_is_described() -> None:
    async def scenario() -> None:
        async with admin() as ours:
            cluster = await ours.describe_cluster()
            assert cluster.id
            assert cluster.controller == 1
            (broker,) = cluster.brokers
            assert (broker.id, broker.host, broker.rack) == (1, "127.0.0.1", None)

    run(scenario())


def test_offsets_are_listed_by_position_and_timestamp() -> None:
    async def scenario() -> None:
        async with filled() as ours:
            result = await ours.list_offsets(
                {T0: OffsetAt.LATEST, T1: OffsetAt.EARLIEST, ("t", 7): 0, ("u", 0): 0}
            )
            assert result[T0].offset == 10
            assert (result[T1].offset, result[T1].timestamp_ms) == (0, None)
            assert {*result.failed} == {("t", 7), ("u", 0)}
            for error in result.failed.values():
                assert code(error) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            by_time = await ours.list_offsets({T0: 1005, T1: 1}, read_committed=True)
            assert (by_time[T0].offset, by_time[T0].timestamp_ms) == (5, 1005)
            assert by_time[T1].offset is None
            latest = await ours.list_offsets({T0: OffsetAt.MAX_TIMESTAMP})
            assert (latest[T0].offset, latest[T0].timestamp_ms) == (9, 1009)

    run(scenario())


def test_records_are_deleted_below_an_offset() -> None:
    async def scenario() -> None:
        async with filled() as ours:
            result = await ours.delete_records({T0: 4, T1: 99, ("u", 0): 1})
            assert result[T0] == 4
            assert code(result.failed[T1]) is ErrorCode.OFFSET_OUT_OF_RANGE
            assert code(result.failed["u", 0]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (await ours.list_offsets({T0: OffsetAt.EARLIEST}))[T0].offset == 4
            assert (await ours.delete_records({T0: HIGH_WATERMARK}))[T0] == 10

    run(scenario())


def test_log_dirs_are_described_for_all_or_some_brokers() -> None:
    async def scenario() -> None:
        async with filled() as ours:
            ((number, result),) = (await ours.describe_log_dirs()).items()
            assert number == 1
            ((path, directory),) = result.items()
            assert directory.path == path
            assert directory.replicas[T0].size_bytes > 0
            assert not directory.replicas[T0].is_future
            assert directory.total_bytes
            some = await ours.describe_log_dirs([1, 9], [T1])
            assert [*some[1][path].replicas] == [T1]
            assert code(some.failed[9]) is ErrorCode.BROKER_NOT_AVAILABLE

    run(scenario())


def test_features_are_described() -> None:
    async def scenario() -> None:
        async with admin() as ours:
            features = await ours.describe_features(broker=1)
            assert features == await ours.describe_features()
            assert {*features.finalized} <= {*features.supported}

    run(scenario())


NOT_OFFERED: dict[str, Callable[[Admin], Coroutine[Any, Any, object]]] = {
    "list_config_resources": lambda ours: ours.list_config_resources(),
    "list_transactions": lambda ours: ours.list_transactions(),
    "describe_producers": lambda ours: ours.describe_producers([T0]),
    "abort_transaction": lambda ours: ours.abort_transaction(
        T0, ProducerDescription(1, 0, None, None, None, None)
    ),
    "alter_replica_log_dirs": lambda ours: ours.alter_replica_log_dirs({Replica("t", 0, 1): "/d"}),
    "describe_quotas": lambda ours: ours.describe_quotas(),
    "alter_quotas": lambda ours: ours.alter_quotas({QuotaEntity(user="u"): {"request_rate": 1}}),
    "create_acls": lambda ours: ours.create_acls(
        [Acl(AclResource.TOPIC, "t", "User:u", Operation.READ)]
    ),
    "describe_acls": lambda ours: ours.describe_acls(),
    "delete_acls": lambda ours: ours.delete_acls([AclFilter()]),
    "describe_scram_users": lambda ours: ours.describe_scram_users(),
    "alter_scram_users": lambda ours: ours.alter_scram_users([ScramPassword("u", "secret")]),
    "update_features": lambda ours: ours.update_features({"f": 1}),
    "describe_share_groups": lambda ours: ours.describe_share_groups("s"),
    "list_share_group_offsets": lambda ours: ours.list_share_group_offsets("s"),
    "alter_share_group_offsets": lambda ours: ours.alter_share_group_offsets("s", {T0: 1}),
    "delete_share_group_offsets": lambda ours: ours.delete_share_group_offsets("s", "t"),
}
"""The calls that the broker does not support now. A call that it comes to support gets its own
test."""


def test_unsupported_calls_raise_not_supported() -> None:
    async def scenario() -> None:
        async with filled() as ours:
            for name, call in NOT_OFFERED.items():
                with pytest.raises(NotSupported, match="not supported by the broker at"):
                    pytest.fail(f"{name} gave {all_of(await call(ours))}")
            for told in (await ours.describe_transactions("x"), await ours.fence_producers("x")):
                assert not told.failed["x"].retriable

    run(scenario())


def test_reassignment_to_the_present_replicas_changes_nothing() -> None:
    async def scenario() -> None:
        async with filled() as ours:
            missing = ("missing", 0)
            outcome = await ours.alter_reassignments({T0: [1], T1: [1, 9], missing: [1]})
            assert {*outcome.succeeded} == {T0}
            codes = {key: code(one) for key, one in outcome.failed.items()}
            assert codes == {
                T1: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                missing: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            }
            cancelled = await ours.alter_reassignments({T0: None}, allow_factor_change=False)
            assert code(cancelled.failed[T0]) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            assert await ours.list_reassignments() == {}
            assert await ours.list_reassignments([T0, missing]) == {}

    run(scenario())


def test_leaders_that_need_no_election_stay() -> None:
    async def scenario() -> None:
        async with filled() as ours:
            assert dict(await ours.elect_leaders()) == {}
            assert dict(await ours.elect_leaders(partitions=[T0])) == {T0: False}

    run(scenario())


def all_of(told: object) -> list[object]:
    """Return the values of results and listings; raise the first error."""
    if isinstance(told, Results):
        return [*cast("Results[object, object]", told).values()]
    return [*cast("Iterable[object]", told)]


def test_call_without_a_broker_times_out_with_a_hint() -> None:
    async def scenario() -> None:
        async with Cluster() as cluster:
            gone = cluster.bootstrap_servers
        async with Admin(FAST, bootstrap_servers=gone) as ours:
            with pytest.raises(Disconnected, match="ottla dev"):
                await ours.list_topics(timeout_s=0.2)
            with pytest.raises(Disconnected, match="ottla dev"):
                await ours.create_topic("t", timeout_s=0.2)
            result = await ours.delete_groups(["g", "h"], timeout_s=0.2)
            assert {*result.failed} == {"g", "h"}

    run(scenario())


def test_call_is_retried_when_the_broker_returns() -> None:
    async def scenario() -> None:
        async with (
            Cluster() as cluster,
            Admin(FAST, bootstrap_servers=cluster.bootstrap_servers) as ours,
        ):
            await ours.create_topic("t", 1)
            await cluster.brokers[0].stop()
            asked = asyncio.create_task(ours.create_topic("u", 1))
            await asyncio.sleep(0.1)
            assert not asked.done()
            await cluster.brokers[0].start()
            assert (await asked).name == "u"

    run(scenario())


def test_admin_that_was_not_started_raises() -> None:
    async def scenario() -> None:
        ours = Admin(bootstrap_servers="localhost")
        with pytest.raises(Disconnected, match="async with"):
            await ours.list_topics()

    run(scenario())


def test_admin_settings_are_validated() -> None:
    with pytest.raises(InvalidSettings, match=r"bootstrap\.servers"):
        Admin()

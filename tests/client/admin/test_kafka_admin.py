"""The admin client against Apache Kafka: every call once with its effect, and the common errors."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from ottla.client.admin import (
    Acl,
    AclFilter,
    AclPattern,
    AclResource,
    Admin,
    CommittedOffset,
    ConfigAction,
    ConfigChange,
    ConfigKind,
    ConfigResource,
    ConfigSource,
    Election,
    FeatureChange,
    FeatureUpdate,
    GroupMember,
    NewPartitions,
    NewTopic,
    OffsetAt,
    Operation,
    Permission,
    Quota,
    QuotaEntity,
    Replica,
    ScramCredential,
    ScramMechanism,
    ScramPassword,
    ScramRemoval,
    ShareOffset,
)
from ottla.client.producer.producer import Producer
from ottla.errors import ErrorCode, RequestError
from ottla.ids import Uuid
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.transport.failures import AuthenticationFailed
from shared_kafka import SharedKafka

FAST = {"retry.backoff.ms": 10, "default.api.timeout.ms": 20_000}


@pytest.fixture
def kafka(shared_kafka: SharedKafka) -> SharedKafka:
    return shared_kafka


def run(kafka: SharedKafka, scenario: Callable[[Admin], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with (
            asyncio.timeout(90),
            Admin(FAST, bootstrap_servers=kafka.bootstrap) as ours,
        ):
            await scenario(ours)

    asyncio.run(bounded())


async def until(check: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the brokers have applied what the controller decided; the test has its own
    deadline.
    """
    while not await check():
        await asyncio.sleep(0.02)


async def create(ours: Admin, topic: str, partitions: int) -> None:
    """Create a topic, and wait until the broker has it: Kafka answers when only the controller
    has it.
    """
    await ours.create_topic(topic, partitions)

    async def exists() -> bool:
        return topic in await ours.list_topics()

    await until(exists)


async def fill(kafka: SharedKafka, topic: str) -> None:
    """Produce ten records to the first partition."""
    async with Producer(bootstrap_servers=kafka.bootstrap) as producer:
        for number in range(10):
            await producer.send(topic, b"v", partition=0, timestamp_ms=1000 + number)


def code(error: RequestError) -> ErrorCode:
    return error.code


def test_topics(kafka: SharedKafka) -> None:
    async def scenario(ours: Admin) -> None:
        made = await ours.create_topics(
            [
                NewTopic("topics", 2, 1, {"retention.ms": "1000"}),
                NewTopic("topics.default"),
                NewTopic("topics.placed", replicas={0: [1], 1: [1]}),
                NewTopic("topics.far", 1, 3),
                NewTopic("no name!"),
            ]
        )
        assert {*made.succeeded} == {"topics", "topics.default", "topics.placed"}
        assert (made["topics"].partitions, made["topics"].replication_factor) == (2, 1)
        assert made["topics"].config is not None
        assert made["topics"].config["retention.ms"] == "1000"
        assert made["topics.default"].partitions == 3
        assert made["topics.placed"].partitions == 2
        assert code(made.failed["topics.far"]) is ErrorCode.INVALID_REPLICATION_FACTOR
        assert code(made.failed["no name!"]) is ErrorCode.INVALID_TOPIC_EXCEPTION
        with pytest.raises(RequestError) as again:
            await ours.create_topic("topics")
        assert again.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
        checked = await ours.create_topics([NewTopic("topics.checked", 1)], validate_only=True)
        assert checked["topics.checked"].name == "topics.checked"

        async def all_there() -> bool:
            return {*made.succeeded} <= {*await ours.list_topics()}

        await until(all_there)
        listed = await ours.list_topics(include_internal=True)
        assert "topics.checked" not in listed
        assert listed["topics"].id == made["topics"].id

        topic_id, stranger = made["topics"].id, Uuid(b"0123456789abcdef")
        assert topic_id is not None
        result = await ours.describe_topics(
            ["topics", topic_id, "missing", stranger], include_operations=True
        )
        assert result["topics"].id == topic_id
        assert result[topic_id].name == "topics"
        first = result["topics"].partitions[0]
        assert (first.index, first.leader, first.replicas, first.in_sync) == (0, 1, (1,), (1,))
        assert Operation.DELETE in (result["topics"].operations or ())
        assert code(result.failed["missing"]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert code(result.failed[stranger]) is ErrorCode.UNKNOWN_TOPIC_ID

        more = await ours.create_partitions(
            {"topics": 4, "topics.default": NewPartitions(2, [[1]]), "missing": 3}
        )
        assert code(more.failed["missing"]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(RequestError) as fewer:
            (await ours.create_partitions({"topics": 1})).or_raise()
        assert fewer.value.code is ErrorCode.INVALID_PARTITIONS

        async def grown() -> bool:
            return len((await ours.describe_topic("topics")).partitions) == 4

        await until(grown)

        gone = await ours.delete_topics([topic_id, "topics.default", "topics.placed", "missing"])
        assert code(gone.failed["missing"]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        async def all_gone() -> bool:
            return not {*made.succeeded} & {*await ours.list_topics()}

        await until(all_gone)

    run(kafka, scenario)


def test_configs(kafka: SharedKafka) -> None:
    async def scenario(ours: Admin) -> None:
        await create(ours, "configs", 1)
        topic = ConfigResource.topic("configs")
        broker, brokers = ConfigResource.broker(1), ConfigResource.broker(None)
        group, metrics = ConfigResource.group("configs"), ConfigResource.client_metrics("configs")
        logger = ConfigResource.broker_logger(1)
        result = await ours.alter_configs(
            {
                topic: {"segment.bytes": "2097152", "retention.ms": "5000"},
                broker: {"log.cleaner.threads": "2"},
                brokers: {"log.cleaner.backoff.ms": "7777"},
                group: {"consumer.session.timeout.ms": "50000"},
                metrics: {"interval.ms": "1000"},
                ConfigResource.topic("missing"): {"segment.bytes": "2097152"},
                ConfigResource.broker(9): {"log.cleaner.threads": "2"},
            }
        )
        assert {*result.succeeded} == {topic, broker, brokers, group, metrics}
        failed = {one.name: code(error) for one, error in result.failed.items()}
        assert failed == {
            "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "9": ErrorCode.BROKER_NOT_AVAILABLE,
        }

        async def value(resource: ConfigResource, name: str) -> str | None:
            return (await ours.describe_configs(resource))[resource][name].value

        async def arrived() -> bool:
            return (
                await value(topic, "retention.ms"),
                await value(broker, "log.cleaner.threads"),
                await value(group, "consumer.session.timeout.ms"),
                await value(metrics, "interval.ms"),
            ) == ("5000", "2", "50000", "1000")

        await until(arrived)
        described = await ours.describe_configs(
            [topic, broker, group, metrics, logger, ConfigResource.topic("missing")],
            include_synonyms=True,
            include_documentation=True,
        )
        entry = described[topic]["segment.bytes"]
        assert (entry.value, entry.source) == ("2097152", ConfigSource.TOPIC)
        assert entry.documentation
        assert entry.synonyms[0].source is ConfigSource.TOPIC
        assert described[broker]["log.cleaner.threads"].source is ConfigSource.BROKER
        assert described[group]["consumer.session.timeout.ms"].value == "50000"
        assert described[metrics]["interval.ms"].value == "1000"
        assert isinstance(described[logger], dict)
        assert {one.name for one in described.failed} == {"missing"}

        append = ConfigChange("cleanup.policy", "compact", ConfigAction.APPEND)
        (await ours.alter_configs({topic: [append]})).or_raise()
        wrong = await ours.alter_configs({topic: {"segment.bytes": "no"}})
        assert code(wrong.failed[topic]) is ErrorCode.INVALID_CONFIG

        async def appended() -> bool:
            return await value(topic, "cleanup.policy") == "delete,compact"

        await until(appended)
        (await ours.alter_configs({topic: {"segment.bytes": None}})).or_raise()

        async def unset() -> bool:
            return await value(topic, "segment.bytes") == "1073741824"

        await until(unset)
        (await ours.replace_configs({topic: {"segment.ms": "60000"}})).or_raise()

        async def replaced() -> bool:
            return await value(topic, "retention.ms") != "5000"

        await until(replaced)
        assert await value(topic, "segment.ms") == "60000"
        resources = await ours.list_config_resources()
        assert {topic, broker, group, metrics} <= {*resources}
        groups = await ours.list_config_resources([ConfigKind.GROUP])
        assert group in groups
        assert {one.kind for one in groups} == {ConfigKind.GROUP}
        undone = {broker: {"log.cleaner.threads": None}, brokers: {"log.cleaner.backoff.ms": None}}
        (await ours.alter_configs(undone)).or_raise()

    run(kafka, scenario)


def test_records(kafka: SharedKafka) -> None:
    async def scenario(ours: Admin) -> None:
        full, empty, missing = ("records", 0), ("records", 1), ("records", 7)
        await create(ours, "records", 2)
        await fill(kafka, "records")
        result = await ours.list_offsets({full: OffsetAt.LATEST, empty: 5, missing: 5})
        assert result[full].offset == 10
        assert result[empty].offset is None
        assert code(result.failed[missing]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        by_time = (await ours.list_offsets({full: 1005}, read_committed=True))[full]
        assert (by_time.offset, by_time.timestamp_ms, by_time.leader_epoch) == (5, 1005, 0)
        newest = (await ours.list_offsets({full: OffsetAt.MAX_TIMESTAMP}))[full]
        assert (newest.offset, newest.timestamp_ms) == (9, 1009)
        local = await ours.list_offsets(
            {full: OffsetAt.EARLIEST_LOCAL, empty: OffsetAt.LATEST_TIERED}
        )
        assert local[full].offset == 0
        assert local[empty].offset is None
        deleted = await ours.delete_records({full: 4, empty: 99, ("missing", 0): 1})
        assert deleted[full] == 4
        assert code(deleted.failed[empty]) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert code(deleted.failed["missing", 0]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await ours.list_offsets({full: OffsetAt.EARLIEST}))[full].offset == 4

    run(kafka, scenario)


def test_classic_groups(kafka: SharedKafka) -> None:
    async def scenario(ours: Admin) -> None:
        await create(ours, "classic", 2)
        consumer: Any = AIOKafkaConsumer(
            "classic",
            bootstrap_servers=kafka.bootstrap,
            group_id="classic",
            group_instance_id="static",
            client_id="reader",
        )
        await consumer.start()
        try:
            found = await ours.list_groups(states=["Stable"], types=["classic"])
            (listed,) = [one for one in found if one.id == "classic"]
            assert listed.protocol_type == "consumer"
            assert {(one.state, one.type) for one in found} == {("Stable", "classic")}
            group = await ours.describe_group("classic")
            assert (group.type, group.state, group.assignor) == ("classic", "Stable", "roundrobin")
            (member,) = group.members
            assert (member.instance_id, member.client_id) == ("static", "reader")
            assert member.topics == ("classic",)
            assert member.assignment == (("classic", 0), ("classic", 1))
            busy = await ours.delete_groups(["classic"])
            assert code(busy.failed["classic"]) is ErrorCode.NON_EMPTY_GROUP
            subscribed = await ours.delete_group_offsets("classic", [("classic", 0)])
            assert code(subscribed.failed["classic", 0]) is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            stranger = GroupMember(instance_id="stranger")
            result = await ours.remove_group_members("classic", [stranger])
            assert code(result.failed[stranger]) is ErrorCode.UNKNOWN_MEMBER_ID
            gone = await ours.remove_group_members("classic", reason="it is enough")
            assert {one.instance_id for one in gone.or_raise()} == {"static"}
        finally:
            await consumer.stop()
        (await ours.delete_groups("classic")).or_raise()
        with pytest.raises(RequestError) as missing:
            await ours.describe_group("classic")
        assert missing.value.code is ErrorCode.GROUP_ID_NOT_FOUND

    run(kafka, scenario)


def test_kip848_groups(kafka: SharedKafka) -> None:
    async def scenario(ours: Admin) -> None:
        await create(ours, "new", 2)
        with kafka.broker.wire() as wire:
            beat = ConsumerGroupHeartbeatRequest(
                group_id="new",
                member_id="one",
                member_epoch=0,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=["new"],
                topic_partitions=(),
            )

            async def joined() -> bool:
                assigned = wire.ask(beat, 1, ConsumerGroupHeartbeatResponse).assignment
                return assigned is not None and bool(assigned.topic_partitions)

            # FindCoordinator creates the topic that the coordinator needs.
            assert not (await ours.list_group_offsets("new"))["new"]
            await until(joined)
        found = await ours.list_groups(types=["consumer"])
        assert "new" in [one.id for one in found]
        assert {one.type for one in found} == {"consumer"}
        result = await ours.describe_groups(["new", "missing"], include_operations=True)
        group = result["new"]
        assert (group.type, group.protocol_type) == ("consumer", "consumer")
        assert group.assignor == "uniform"
        assert group.epoch
        assert Operation.READ in (group.operations or ())
        (member,) = group.members
        assert (member.id, member.topics) == ("one", ("new",))
        assert member.target_assignment == (("new", 0), ("new", 1))
        assert code(result.failed["missing"]) is ErrorCode.GROUP_ID_NOT_FOUND

    run(kafka, scenario)


def test_offsets_of_groups(kafka: SharedKafka) -> None:
    async def scenario(ours: Admin) -> None:
        await create(ours, "offsets", 2)
        first, second = ("offsets", 0), ("offsets", 1)
        result = await ours.alter_group_offsets(
            "offsets", {first: 5, second: CommittedOffset(7, "note", 0), ("missing", 0): 1}
        )
        assert {*result.succeeded} == {first, second}
        assert code(result.failed["missing", 0]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        listed = await ours.list_group_offsets(["offsets", "offsets.nobody"])
        assert dict(listed["offsets"]) == {
            first: CommittedOffset(5),
            second: CommittedOffset(7, "note", 0),
        }
        assert dict(listed["offsets.nobody"]) == {}
        some = await ours.list_group_offsets(
            "offsets", [first, ("offsets", 1)], require_stable=True
        )
        assert some["offsets"][first] == CommittedOffset(5)
        (await ours.delete_group_offsets("offsets", [first])).or_raise()
        again = await ours.list_group_offsets("offsets", [first])
        assert again["offsets"][first] is None
        with pytest.raises(RequestError) as missing:
            await ours.delete_group_offsets("offsets.nobody", [first])
        assert missing.value.code is ErrorCode.GROUP_ID_NOT_FOUND

    run(kafka, scenario)


def test_share_groups(kafka: SharedKafka) -> None:
    async def scenario(ours: Admin) -> None:
        await create(ours, "shared", 2)
        await fill(kafka, "shared")
        (await ours.alter_share_group_offsets("shared", {("shared", 0): 2})).or_raise()
        result = await ours.describe_share_groups(["shared", "missing"])
        assert (result["shared"].type, result["shared"].state) == ("share", "Empty")
        assert code(result.failed["missing"]) is ErrorCode.GROUP_ID_NOT_FOUND
        offsets = await ours.list_share_group_offsets("shared", [("shared", 0), ("shared", 1)])
        assert dict(offsets["shared"]) == {("shared", 0): ShareOffset(2, 0, 8), ("shared", 1): None}
        every = await ours.list_share_group_offsets(["shared"])
        assert [*every["shared"]] == [("shared", 0)]
        gone = await ours.delete_share_group_offsets("shared", ["shared", "missing"])
        assert {*gone.succeeded} == {"shared"}
        assert code(gone.failed["missing"]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(kafka, scenario)


def test_reassignments_and_elections(kafka: SharedKafka) -> None:
    async def scenario(ours: Admin) -> None:
        await create(ours, "moved", 2)
        first, second, missing = ("moved", 0), ("moved", 1), ("moved", 9)
        result = await ours.alter_reassignments({first: [1], second: [1, 2], missing: [1]})
        assert {*result.succeeded} == {first}
        assert code(result.failed[second]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert code(result.failed[missing]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        ended = await ours.alter_reassignments({first: None}, allow_factor_change=False)
        assert code(ended.failed[first]) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        assert await ours.list_reassignments() == {}
        assert await ours.list_reassignments([first]) == {}
        elected = await ours.elect_leaders(partitions=[first, missing])
        assert elected[first] is False
        assert code(elected.failed[missing]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not await ours.elect_leaders()
        assert (await ours.elect_leaders(Election.UNCLEAN, [first]))[first] is False

    run(kafka, scenario)


def test_transactions(kafka: SharedKafka) -> None:
    async def scenario(ours: Admin) -> None:
        await create(ours, "written", 1)
        where = ("written", 0)
        producer: Any = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id="tx")
        await producer.start()
        try:
            await producer.begin_transaction()
            await producer.send_and_wait("written", b"v", partition=0)
            (listed,) = await ours.list_transactions(states=["Ongoing"], id_pattern="t.")
            assert (listed.id, listed.state) == ("tx", "Ongoing")
            assert not [*await ours.list_transactions(longer_than_ms=3_600_000)]
            result = await ours.describe_transactions(["tx", "missing"])
            assert result["tx"].state == "Ongoing"
            assert result["tx"].partitions == (where,)
            assert result["tx"].started_ms
            assert result["tx"].producer_id == listed.producer_id
            assert code(result.failed["missing"]) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND

            async def end_s() -> tuple[int | None, int | None]:
                both = [
                    await ours.list_offsets({where: OffsetAt.LATEST}, read_committed=committed)
                    for committed in (True, False)
                ]
                return both[0][where].offset, both[1][where].offset

            assert await end_s() == (0, 1)
            producers = await ours.describe_producers([where, ("written", 9)])
            (one,) = producers[where]
            assert (one.id, one.transaction_start_offset) == (listed.producer_id, 0)
            assert code(producers.failed["written", 9]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            same = await ours.describe_producers([where], broker=1)
            assert same[where] == (one,)
            await ours.abort_transaction(where, one)
            assert await end_s() == (2, 2)  # the record and the transaction marker
            fenced = (await ours.fence_producers("tx"))["tx"]
            assert fenced.producer_epoch > one.epoch

            async def ended() -> bool:
                return (await ours.describe_transactions("tx"))["tx"].state != "Ongoing"

            await until(ended)
        finally:
            await asyncio.wait([asyncio.ensure_future(producer.stop())], timeout=20)
        wrong = await ours.list_transactions(states=["Nonsense"])
        with pytest.raises(RequestError, match="Nonsense"):
            list(wrong)

    run(kafka, scenario)


def test_log_dirs(kafka: SharedKafka) -> None:
    async def scenario(ours: Admin) -> None:
        await create(ours, "kept", 1)
        await fill(kafka, "kept")
        where = ("kept", 0)

        async def path() -> str:
            result = (await ours.describe_log_dirs([1], [where]))[1]
            assert {*result} == {*kafka.directories}
            (found,) = [one.path for one in result.values() if where in one.replicas]
            return found

        before = await path()
        (all_of_it,) = (await ours.describe_log_dirs()).values()
        replica = all_of_it[before].replicas[where]
        assert (replica.offset_lag, replica.is_future) == (0, False)
        assert replica.size_bytes > 0
        assert all_of_it[before].usable_bytes
        other = next(one for one in kafka.directories if one != before)
        moved = await ours.alter_replica_log_dirs(
            {
                Replica("kept", 0, 1): other,
                Replica("missing", 0, 1): other,
                Replica("kept", 0, 9): other,
            }
        )
        assert {*moved.succeeded} == {Replica("kept", 0, 1)}
        assert {code(error) for error in moved.failed.values()} == {
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.BROKER_NOT_AVAILABLE,
        }

        async def arrived() -> bool:
            result = (await ours.describe_log_dirs([1], [where]))[1]
            holding = [one for one in result.values() if where in one.replicas]
            # Kafka lists the old directory until it has deleted the log there.
            return [(one.path, one.replicas[where].is_future) for one in holding] == [
                (other, False)
            ]

        await until(arrived)
        assert await path() == other
        nowhere = await ours.alter_replica_log_dirs({Replica("kept", 0, 1): "/nowhere"})
        assert code(nowhere.failed[Replica("kept", 0, 1)]) is ErrorCode.LOG_DIR_NOT_FOUND

    run(kafka, scenario)


def test_quotas(kafka: SharedKafka) -> None:
    async def scenario(ours: Admin) -> None:
        oscar, pair = QuotaEntity(user="oscar"), QuotaEntity(user=Quota.DEFAULT, client_id="c")
        address, wrong = QuotaEntity(ip="10.0.0.1"), QuotaEntity(user="wrong")
        result = await ours.alter_quotas(
            {
                oscar: {"producer_byte_rate": 1e6, "consumer_byte_rate": 2e6},
                pair: {"consumer_byte_rate": 5.0},
                address: {"connection_creation_rate": 3},
                wrong: {"nonsense": 1},
            }
        )
        assert {*result.succeeded} == {oscar, pair, address}
        assert code(result.failed[wrong]) is ErrorCode.INVALID_REQUEST

        async def all_there() -> bool:
            return {*await ours.describe_quotas()} >= {oscar, pair, address}

        await until(all_there)
        every = await ours.describe_quotas(QuotaEntity(user=Quota.ANY), strict=True)
        assert every[oscar] == {"producer_byte_rate": 1e6, "consumer_byte_rate": 2e6}
        assert pair not in every
        assert {*await ours.describe_quotas(QuotaEntity(user=Quota.DEFAULT))} == {pair}
        await ours.alter_quotas({oscar: {"producer_byte_rate": None}}, validate_only=True)
        (await ours.alter_quotas({oscar: {"consumer_byte_rate": None}})).or_raise()

        async def taken() -> bool:
            return (await ours.describe_quotas(oscar))[oscar] == {"producer_byte_rate": 1e6}

        await until(taken)

    run(kafka, scenario)


def test_acls(kafka: SharedKafka) -> None:
    async def scenario(ours: Admin) -> None:
        read = Acl(AclResource.TOPIC, "orders", "User:oscar", Operation.READ)
        deny = Acl(
            AclResource.GROUP,
            "team-",
            "User:olga",
            Operation.ALL,
            Permission.DENY,
            AclPattern.PREFIXED,
            "10.0.0.1",
        )
        wrong = Acl(AclResource.TOPIC, "", "User:eve", Operation.READ)
        made = await ours.create_acls([read, wrong, deny])
        assert {*made.succeeded} == {read, deny}
        assert code(made.failed[wrong]) is ErrorCode.INVALID_REQUEST

        async def all_there() -> bool:
            return {*await ours.describe_acls()} >= {read, deny}

        await until(all_there)
        assert await ours.describe_acls(AclFilter(principal="User:oscar")) == (read,)
        match = AclFilter(AclResource.GROUP, "team-one", pattern=AclPattern.MATCH)
        assert await ours.describe_acls(match) == (deny,)
        oscar, nothing = AclFilter(principal="User:oscar"), AclFilter(name="nothing")
        gone = await ours.delete_acls([nothing, oscar])
        assert [*gone[oscar]] == [read]
        assert not gone[nothing]

        async def taken() -> bool:
            found = await ours.describe_acls()
            return deny in found and read not in found

        await until(taken)
        await ours.delete_acls([AclFilter(principal="User:olga")])

    run(kafka, scenario)


def test_scram_users(kafka: SharedKafka) -> None:
    async def scenario(ours: Admin) -> None:
        both = [
            ScramPassword("oscar", "secret"),
            ScramPassword("oscar", "secret", ScramMechanism.SHA_256, 4096),
        ]
        result = await ours.alter_scram_users(
            [
                *both,
                ScramPassword("weak", "secret", iterations=1),
                ScramRemoval("nobody", ScramMechanism.SHA_256),
            ]
        )
        assert {*result.succeeded} == {"oscar"}
        assert code(result.failed["weak"]) is ErrorCode.UNACCEPTABLE_CREDENTIAL
        assert code(result.failed["nobody"]) is ErrorCode.RESOURCE_NOT_FOUND

        async def there() -> bool:
            return len((await ours.describe_scram_users())["oscar"]) == 2

        async def known() -> bool:
            return "oscar" in await ours.describe_scram_users()

        await until(known)
        await until(there)
        users = await ours.describe_scram_users(["nobody", "oscar"])
        assert {*users["oscar"]} == {
            ScramCredential(ScramMechanism.SHA_256, 4096),
            ScramCredential(ScramMechanism.SHA_512, 8192),
        }
        assert code(users.failed["nobody"]) is ErrorCode.RESOURCE_NOT_FOUND
        (await ours.alter_scram_users([ScramRemoval("oscar", ScramMechanism.SHA_512)])).or_raise()

        async def taken() -> bool:
            left = (await ours.describe_scram_users("oscar"))["oscar"]
            return left == (ScramCredential(ScramMechanism.SHA_256, 4096),)

        await until(taken)

    run(kafka, scenario)


def test_user_with_a_new_password_logs_in(kafka: SharedKafka) -> None:
    async def scenario(ours: Admin) -> None:
        (await ours.alter_scram_users([ScramPassword("carol", "a secret")])).or_raise()

        def carol(password: str) -> Admin:
            return Admin(
                FAST,
                bootstrap_servers=f"127.0.0.1:{kafka.broker.ports['SASL']}",
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="SCRAM-SHA-512",
                sasl_username="carol",
                sasl_password=password,
            )

        async def logs_in() -> bool:
            try:
                async with carol("a secret") as hers:
                    return bool((await hers.describe_cluster()).brokers)
            except AuthenticationFailed:
                return False

        await until(logs_in)
        async with carol("no secret") as hers:
            with pytest.raises(AuthenticationFailed):
                await hers.describe_cluster()
            with pytest.raises(AuthenticationFailed):
                await hers.create_topic("hers", 1)
            with pytest.raises(AuthenticationFailed):
                await hers.describe_group("hers")

    run(kafka, scenario)


def test_features_and_cluster(kafka: SharedKafka) -> None:
    async def scenario(ours: Admin) -> None:
        features = await ours.describe_features()
        assert features.supported["transaction.version"].high >= 2
        assert features.finalized["transaction.version"].high == 2
        assert features.epoch
        assert (await ours.describe_features(broker=1)).supported == features.supported
        down = FeatureUpdate(1, FeatureChange.SAFE_DOWNGRADE)
        (await ours.update_features({"transaction.version": down}, validate_only=True)).or_raise()
        wrong = await ours.update_features({"transaction.version": 1, "no.such": 1})
        assert {code(error) for error in wrong.failed.values()} == {
            ErrorCode.INVALID_UPDATE_VERSION
        }
        assert len(wrong.failed) == 2
        (await ours.update_features({"transaction.version": down})).or_raise()

        async def level() -> int:
            return (await ours.describe_features()).finalized["transaction.version"].high

        async def lower() -> bool:
            return await level() == 1

        await until(lower)
        (await ours.update_features({"transaction.version": 2})).or_raise()

        async def raised() -> bool:
            return await level() == 2

        await until(raised)
        cluster = await ours.describe_cluster(include_operations=True, include_fenced=True)
        (broker,) = cluster.brokers
        assert (broker.id, broker.port, broker.is_fenced) == (1, kafka.broker.port, False)
        assert cluster.id
        assert cluster.controller == 1
        assert Operation.ALTER in (cluster.operations or ())

    run(kafka, scenario)

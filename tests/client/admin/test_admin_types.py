"""Types of the admin client; `make check` verifies this file with pyright strict.

Every call is here once as a user writes it, async and sync. A line that must be rejected has an
ignore comment; pyright reports an ignore comment that is not needed.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

import inspect
from collections.abc import Callable, Mapping
from typing import Any, assert_type

import pytest

import ottla.sync
from ottla import Admin, NewPartitions, NewTopic, Record, TopicPartition
from ottla.client.admin import (
    Acl,
    AclFilter,
    AclResource,
    ClusterDescription,
    CommittedOffset,
    ConfigAction,
    ConfigChange,
    ConfigEntry,
    ConfigKind,
    ConfigResource,
    CreatedTopic,
    Election,
    FeatureChange,
    Features,
    FeatureUpdate,
    FencedProducer,
    FoundOffset,
    GroupDescription,
    GroupMember,
    GroupOffsets,
    ListedGroup,
    ListedTopic,
    ListedTransaction,
    Listing,
    LogDirs,
    OffsetAt,
    Operation,
    Partition,
    Permission,
    ProducerDescription,
    Quota,
    QuotaEntity,
    Reassignment,
    Replica,
    Results,
    ScramCredential,
    ScramMechanism,
    ScramPassword,
    ScramRemoval,
    ShareOffsets,
    TopicDescription,
    TransactionDescription,
)
from ottla.ids import Uuid

TOPIC = ConfigResource.topic("t")


async def async_calls(admin: Admin, record: Record[bytes, bytes], id_: Uuid) -> None:
    """Never run; only the type checker reads it."""
    places = [record.topic_partition, ("t", 1)]
    assert_type(await admin.create_topic("t", 3, config={"retention.ms": "1"}), CreatedTopic)
    made = await admin.create_topics([NewTopic("t", 3), NewTopic("u", replicas={0: [1, 2]})])
    assert_type(made, Results[str, CreatedTopic])
    assert_type(made["t"].partitions, int | None)
    assert_type(await admin.delete_topics("t"), Results[str | Uuid, None])
    await admin.delete_topics(id_)
    await admin.delete_topics(["t", id_])
    assert_type(await admin.list_topics(include_internal=True), dict[str, ListedTopic])
    result = await admin.describe_topics(["t"], include_operations=True)
    assert_type(result, Results[str | Uuid, TopicDescription])
    assert_type(await admin.describe_topic("t", timeout_s=5), TopicDescription)
    assert_type(await admin.create_partitions({"t": 5}), Results[str, None])
    await admin.create_partitions({"t": NewPartitions(5, [[1], [2]])}, validate_only=True)
    await admin.create_partitions({"t": 5, "u": NewPartitions(5)})

    found = await admin.list_offsets({("t", 0): OffsetAt.LATEST, record.topic_partition: 5})
    assert_type(found, Results[Partition, FoundOffset])
    assert_type(found[record.topic_partition].offset, int | None)
    await admin.list_offsets({TopicPartition("t", 0): 0}, read_committed=True)
    assert_type(await admin.delete_records({record.topic_partition: 5}), Results[Partition, int])

    settings = await admin.describe_configs(TOPIC, names=["retention.ms"])
    assert_type(settings, Results[ConfigResource, Mapping[str, ConfigEntry]])
    assert_type(settings[TOPIC]["retention.ms"].value, str | None)
    await admin.describe_configs([TOPIC, ConfigResource.broker(1)], include_synonyms=True)
    changed = await admin.alter_configs({TOPIC: {"retention.ms": "1", "segment.ms": None}})
    assert_type(changed, Results[ConfigResource, None])
    change = ConfigChange("cleanup.policy", "compact", ConfigAction.APPEND)
    await admin.alter_configs({TOPIC: [change]})
    texts = {"retention.ms": "1"}
    await admin.alter_configs({TOPIC: texts})
    replaced = await admin.replace_configs({TOPIC: texts})
    assert_type(replaced, Results[ConfigResource, None])
    listed = await admin.list_config_resources([ConfigKind.TOPIC])
    assert_type(listed, tuple[ConfigResource, ...])

    groups = await admin.list_groups(states=["Stable"], types=["consumer"])
    assert_type(groups, Listing[ListedGroup])
    assert_type([*groups], list[ListedGroup])
    assert_type(
        (len(groups), groups[0], groups[:2]), tuple[int, ListedGroup, tuple[ListedGroup, ...]]
    )
    assert_type(await admin.describe_groups(["g"]), Results[str, GroupDescription])
    group = await admin.describe_group("g")
    assert_type(group, GroupDescription)
    assert_type(await admin.delete_groups("g"), Results[str, None])
    leaving = [GroupMember(one.id) for one in group.members]
    gone = await admin.remove_group_members("g", leaving, reason="stuck")
    assert_type(gone, Results[GroupMember, None])

    kept = await admin.list_group_offsets("g", places, require_stable=True)
    assert_type(kept, Results[str, GroupOffsets])
    assert_type(kept["g"][record.topic_partition], CommittedOffset | None)
    altered = await admin.alter_group_offsets("g", {record.topic_partition: 5})
    assert_type(altered, Results[Partition, None])
    await admin.alter_group_offsets("g", {("t", 0): CommittedOffset(5, "a note"), ("t", 1): 5})
    assert_type(await admin.delete_group_offsets("g", places), Results[Partition, None])

    assert_type(await admin.describe_share_groups("s"), Results[str, GroupDescription])
    assert_type(await admin.list_share_group_offsets("s", places), Results[str, ShareOffsets])
    shared = await admin.alter_share_group_offsets("s", {record.topic_partition: 5})
    assert_type(shared, Results[Partition, None])
    assert_type(await admin.delete_share_group_offsets("s", ["t"]), Results[str, None])

    open_ones = await admin.list_transactions(states=["Ongoing"], producer_ids=[5])
    assert_type(open_ones, Listing[ListedTransaction])
    ids = await admin.describe_transactions([one.id for one in open_ones])
    assert_type(ids, Results[str, TransactionDescription])
    producers = await admin.describe_producers(places, broker=1)
    assert_type(producers, Results[Partition, tuple[ProducerDescription, ...]])
    assert_type(
        await admin.abort_transaction(record.topic_partition, producers[record.topic_partition][0]),
        None,
    )
    assert_type(await admin.fence_producers("id"), Results[str, FencedProducer])

    moved = await admin.alter_reassignments({record.topic_partition: [1, 2], ("t", 1): None})
    assert_type(moved, Results[Partition, None])
    assert_type(await admin.list_reassignments(places), dict[Partition, Reassignment])
    elected = await admin.elect_leaders(Election.PREFERRED, places)
    assert_type(elected, Results[Partition, bool])

    dirs = await admin.describe_log_dirs([1], places)
    assert_type(dirs, Results[int, LogDirs])
    assert_type(dirs[1]["/data"].replicas[record.topic_partition].size_bytes, int)
    there = await admin.alter_replica_log_dirs({Replica("t", 0, 1): "/other"})
    assert_type(there, Results[Replica, None])

    quotas = await admin.describe_quotas(QuotaEntity(user=Quota.ANY), strict=True)
    assert_type(quotas, dict[QuotaEntity, Mapping[str, float]])
    rates = {"producer_byte_rate": 1e6}
    limited = await admin.alter_quotas({QuotaEntity(user="ann"): rates})
    assert_type(limited, Results[QuotaEntity, None])
    await admin.alter_quotas({QuotaEntity(client_id="c"): {"consumer_byte_rate": None}})

    rule = Acl(AclResource.TOPIC, "t", "User:ann", Operation.READ, Permission.ALLOW)
    assert_type(await admin.create_acls([rule]), Results[Acl, None])
    assert_type(await admin.describe_acls(AclFilter(name="t")), tuple[Acl, ...])
    removed = await admin.delete_acls([AclFilter(principal="User:ann")])
    assert_type(removed, Results[AclFilter, Results[Acl, None]])

    users = await admin.describe_scram_users(["ann"])
    assert_type(users, Results[str, tuple[ScramCredential, ...]])
    removal = ScramRemoval("bob", ScramMechanism.SHA_256)
    given = await admin.alter_scram_users([ScramPassword("ann", "secret"), removal])
    assert_type(given, Results[str, None])

    assert_type(await admin.describe_features(broker=1), Features)
    level = FeatureUpdate(1, FeatureChange.SAFE_DOWNGRADE)
    assert_type(await admin.update_features({"group.version": level}), Results[str, None])
    await admin.update_features({"group.version": 1, "other": level})
    assert_type(await admin.describe_cluster(include_fenced=True), ClusterDescription)
    assert_type(await admin.close(), None)
    async with admin as entered:
        assert_type(entered, Admin)


def sync_calls(admin: ottla.sync.Admin, record: Record[bytes, bytes], id_: Uuid) -> None:
    """Never run; only the type checker reads it."""
    places = [record.topic_partition, ("t", 1)]
    assert_type(admin.create_topic("t", 3, config={"retention.ms": "1"}), CreatedTopic)
    assert_type(admin.create_topics([NewTopic("t")]), Results[str, CreatedTopic])
    assert_type(admin.delete_topics(["t", id_]), Results[str | Uuid, None])
    assert_type(admin.list_topics(), dict[str, ListedTopic])
    assert_type(admin.describe_topics("t"), Results[str | Uuid, TopicDescription])
    assert_type(admin.describe_topic("t", timeout_s=5), TopicDescription)
    assert_type(admin.create_partitions({"t": 5}), Results[str, None])
    found = admin.list_offsets({record.topic_partition: OffsetAt.LATEST})
    assert_type(found, Results[Partition, FoundOffset])
    assert_type(admin.delete_records({record.topic_partition: 5}), Results[Partition, int])
    settings = admin.describe_configs(TOPIC)
    assert_type(settings, Results[ConfigResource, Mapping[str, ConfigEntry]])
    texts = {"retention.ms": "1"}
    assert_type(admin.alter_configs({TOPIC: texts}), Results[ConfigResource, None])
    assert_type(admin.replace_configs({TOPIC: texts}), Results[ConfigResource, None])
    assert_type(admin.list_config_resources(), tuple[ConfigResource, ...])
    assert_type(admin.list_groups(), Listing[ListedGroup])
    assert_type(admin.describe_groups("g"), Results[str, GroupDescription])
    assert_type(admin.describe_group("g"), GroupDescription)
    assert_type(admin.delete_groups(["g"]), Results[str, None])
    gone = admin.remove_group_members("g", [GroupMember("m")])
    assert_type(gone, Results[GroupMember, None])
    assert_type(admin.list_group_offsets("g", places), Results[str, GroupOffsets])
    altered = admin.alter_group_offsets("g", {record.topic_partition: CommittedOffset(5)})
    assert_type(altered, Results[Partition, None])
    assert_type(admin.delete_group_offsets("g", places), Results[Partition, None])
    assert_type(admin.describe_share_groups("s"), Results[str, GroupDescription])
    assert_type(admin.list_share_group_offsets("s"), Results[str, ShareOffsets])
    shared = admin.alter_share_group_offsets("s", {record.topic_partition: 5})
    assert_type(shared, Results[Partition, None])
    assert_type(admin.delete_share_group_offsets("s", "t"), Results[str, None])
    assert_type(admin.list_transactions(), Listing[ListedTransaction])
    assert_type(admin.describe_transactions("id"), Results[str, TransactionDescription])
    producers = admin.describe_producers(places)
    assert_type(producers, Results[Partition, tuple[ProducerDescription, ...]])
    assert_type(
        admin.abort_transaction(record.topic_partition, producers[record.topic_partition][0]), None
    )
    assert_type(admin.fence_producers("id"), Results[str, FencedProducer])
    assert_type(admin.alter_reassignments({record.topic_partition: [1]}), Results[Partition, None])
    assert_type(admin.list_reassignments(), dict[Partition, Reassignment])
    assert_type(admin.elect_leaders(), Results[Partition, bool])
    assert_type(admin.describe_log_dirs(), Results[int, LogDirs])
    there = admin.alter_replica_log_dirs({Replica("t", 0, 1): "/other"})
    assert_type(there, Results[Replica, None])
    assert_type(admin.describe_quotas(), dict[QuotaEntity, Mapping[str, float]])
    limited = admin.alter_quotas({QuotaEntity(user="ann"): {"producer_byte_rate": 1e6}})
    assert_type(limited, Results[QuotaEntity, None])
    rule = Acl(AclResource.TOPIC, "t", "User:ann", Operation.READ)
    assert_type(admin.create_acls([rule]), Results[Acl, None])
    assert_type(admin.describe_acls(), tuple[Acl, ...])
    assert_type(admin.delete_acls([AclFilter()]), Results[AclFilter, Results[Acl, None]])
    assert_type(admin.describe_scram_users(), Results[str, tuple[ScramCredential, ...]])
    assert_type(admin.alter_scram_users([ScramPassword("a", "s")]), Results[str, None])
    assert_type(admin.describe_features(), Features)
    assert_type(admin.update_features({"group.version": 1}), Results[str, None])
    assert_type(admin.describe_cluster(), ClusterDescription)
    assert_type(admin.close(), None)
    with admin as entered:
        assert_type(entered, ottla.sync.Admin)


async def rejected_calls(admin: Admin) -> None:
    """Calls that the type checker rejects; at runtime they raise, see test_wrong_forms.py."""
    await admin.create_topics("t")  # pyright: ignore[reportArgumentType]
    await admin.describe_configs("t")  # pyright: ignore[reportArgumentType]
    await admin.list_offsets([("t", 0)])  # pyright: ignore[reportArgumentType]
    await admin.describe_producers(("t", 0))  # pyright: ignore[reportArgumentType]
    await admin.create_topic("t", config={"retention.ms": 1})  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("kind", "uses"), [(Admin, async_calls), (ottla.sync.Admin, sync_calls)], ids=["async", "sync"]
)
def test_every_admin_call_is_type_checked(kind: type[Any], uses: Callable[..., object]) -> None:
    source = inspect.getsource(uses)
    calls = {name for name in dir(kind) if not name.startswith("_")}
    assert {name for name in calls if f"admin.{name}(" not in source} == set()

"""Admin arguments of the wrong form are refused by the call; the error shows the right form.

No broker listens at the address, so a refused call has sent nothing.
"""

from collections.abc import Callable
from typing import Any

import pytest

import ottla
import ottla.sync
from cases import each_case
from client.scenario_runner import run
from ottla import Admin
from ottla.client.admin import (
    AclFilter,
    ConfigResource,
    GroupMember,
    QuotaEntity,
    Replica,
    ScramPassword,
)
from ottla.ids import Uuid
from ottla.testing import Cluster

TOPIC = ConfigResource.topic("t")
PARTITIONS = r'a list of partitions such as \[\("orders", 0\)\]'
OF_PARTITIONS = r'a mapping of partitions such as \{\("orders", 0\): …\}'
NAMES = "a name, or a list of names"

NewTopic: Any = ottla.NewTopic

WRONG: list[tuple[str, Callable[[Any], Any], str]] = [
    (
        "create_topics",
        lambda do: do("abc"),
        r'such as \[NewTopic\("orders", 3\)\], not \'abc\' \(str\)',
    ),
    ("create_topics", lambda do: do(["abc"]), r"but it contains 'abc' \(str\)"),
    ("create_topics", lambda do: do(NewTopic("t")), "a list of topics"),
    ("create_topics", lambda do: do([NewTopic(5)]), "the name of a topic must be a str"),
    (
        "create_topics",
        lambda do: do([NewTopic("t", config={"retention.ms": 5})]),
        r'setting retention\.ms: the value must be "5", not 5 \(int\)',
    ),
    ("create_topic", lambda do: do(["t"]), "the name of a topic must be a str, not"),
    ("create_topic", lambda do: do("t", config=["a"]), "a mapping of settings such as"),
    ("describe_topic", lambda do: do(["t"]), "the name of a topic must be a str"),
    ("delete_topics", lambda do: do(5), "the name or the id of a topic, or a list of them"),
    ("delete_topics", lambda do: do([5]), "the name or the id of a topic, or a list of them"),
    ("create_partitions", lambda do: do("t"), r'a mapping of topics such as \{"orders": 6\}'),
    ("create_partitions", lambda do: do([("t", 5)]), "a mapping of topics"),
    ("list_offsets", lambda do: do([("t", 0)]), OF_PARTITIONS),
    ("list_offsets", lambda do: do({"t": 0}), OF_PARTITIONS),
    ("delete_records", lambda do: do(("t", 0)), OF_PARTITIONS),
    ("list_topics", lambda do: do(timeout_s="3"), "timeout_s must be a number of seconds, not '3'"),
    ("describe_configs", lambda do: do("t"), r'as ConfigResource\.topic\("orders"\), or a list'),
    ("describe_configs", lambda do: do(["t"]), r"ConfigResource\.topic"),
    ("describe_configs", lambda do: do(TOPIC, names="retention.ms"), "a list of setting names"),
    ("alter_configs", lambda do: do("t"), "a mapping of resources"),
    ("alter_configs", lambda do: do({"t": {"retention.ms": "1"}}), r"ConfigResource\.topic"),
    ("alter_configs", lambda do: do({TOPIC: "retention.ms"}), "or a list of ConfigChange"),
    (
        "alter_configs",
        lambda do: do({TOPIC: {"retention.ms": 5}}),
        r"setting retention\.ms: the value must be",
    ),
    ("replace_configs", lambda do: do({TOPIC: {"retention.ms": b"5"}}), r"must be a str, not b'5'"),
    ("replace_configs", lambda do: do({"t": {"retention.ms": "1"}}), r"ConfigResource\.topic"),
    ("list_config_resources", lambda do: do("topic"), r"as \[ConfigKind\.TOPIC\]"),
    ("list_groups", lambda do: do(states="Stable"), r'a list of states such as \["Stable"\]'),
    ("list_groups", lambda do: do(types="consumer"), r'a list of types such as \["consumer"\]'),
    ("describe_groups", lambda do: do(5), NAMES),
    ("describe_groups", lambda do: do([b"g"]), NAMES),
    ("describe_group", lambda do: do(["g"]), "the name of a group must be a str"),
    ("alter_group_offsets", lambda do: do(5, {}), "the name of a group must be a str"),
    ("delete_group_offsets", lambda do: do(["g"], []), "the name of a group must be a str"),
    ("delete_groups", lambda do: do(b"g"), NAMES),
    ("remove_group_members", lambda do: do("g", "m"), r'as \[GroupMember\("id"\)\]'),
    ("remove_group_members", lambda do: do("g", GroupMember("m")), "a list of members"),
    ("list_group_offsets", lambda do: do("g", "t"), PARTITIONS),
    ("list_group_offsets", lambda do: do("g", ("t", 0)), PARTITIONS),
    ("alter_group_offsets", lambda do: do("g", [("t", 0)]), OF_PARTITIONS),
    ("alter_group_offsets", lambda do: do("g", {("t", 0): "5"}), "an offset must be an integer"),
    ("delete_group_offsets", lambda do: do("g", ("t", 0)), PARTITIONS),
    ("describe_share_groups", lambda do: do(5), NAMES),
    ("list_share_group_offsets", lambda do: do("s", "t"), PARTITIONS),
    ("alter_share_group_offsets", lambda do: do("s", "t"), OF_PARTITIONS),
    ("delete_share_group_offsets", lambda do: do("s", 5), NAMES),
    ("list_transactions", lambda do: do(states="Ongoing"), r'as \["Ongoing"\]'),
    ("list_transactions", lambda do: do(producer_ids=5), r"as \[1000, 1001\]"),
    ("describe_transactions", lambda do: do(5), NAMES),
    ("describe_producers", lambda do: do("t"), PARTITIONS),
    ("describe_producers", lambda do: do([["t", 0]]), PARTITIONS),
    ("describe_producers", lambda do: do([("t", "0")]), "a partition number must be an integer"),
    ("fence_producers", lambda do: do(5), NAMES),
    ("alter_reassignments", lambda do: do([("t", 0)]), OF_PARTITIONS),
    ("list_reassignments", lambda do: do("t"), PARTITIONS),
    ("elect_leaders", lambda do: do(partitions="t"), PARTITIONS),
    ("describe_log_dirs", lambda do: do(1), r"a list of broker ids such as \[0, 1\]"),
    ("describe_log_dirs", lambda do: do("1"), "a list of broker ids"),
    ("describe_log_dirs", lambda do: do([1], "t"), PARTITIONS),
    ("alter_replica_log_dirs", lambda do: do({("t", 0, 1): "/d"}), r"as \{Replica\("),
    ("alter_replica_log_dirs", lambda do: do([Replica("t", 0, 1)]), "a mapping of replicas"),
    ("alter_quotas", lambda do: do({"ann": {}}), r'as \{QuotaEntity\(user="ann"\)'),
    ("alter_quotas", lambda do: do([QuotaEntity(user="ann")]), "a mapping of entities"),
    ("create_acls", lambda do: do("allow"), r"a list of ACLs such as \[Acl\("),
    ("delete_acls", lambda do: do(AclFilter()), r"a list of filters such as \[AclFilter\("),
    ("describe_scram_users", lambda do: do(5), NAMES),
    ("alter_scram_users", lambda do: do("ann"), r"a list of changes such as \[ScramPassword\("),
    ("alter_scram_users", lambda do: do(ScramPassword("a", "b")), "a list of changes"),
    ("update_features", lambda do: do("group.version"), r'as \{"group.version": 1\}'),
]


@each_case(("name", "use", "says"), WRONG)
def test_wrong_argument_form_names_the_right_one(
    name: str, use: Callable[[Any], Any], says: str
) -> None:
    async def scenario() -> None:
        async with Admin(bootstrap_servers="127.0.0.1:1") as admin:
            with pytest.raises(TypeError, match=says):
                await use(getattr(admin, name))

    run(scenario())


def test_sync_admin_refuses_the_same_arguments() -> None:
    with ottla.sync.Admin(bootstrap_servers="127.0.0.1:1") as admin:
        for name, use, says in WRONG:
            with pytest.raises(TypeError, match=says):
                use(getattr(admin, name))


def test_results_are_accepted_as_arguments() -> None:
    """For example listed topics, which are a mapping by name."""

    async def scenario() -> None:
        async with (
            Cluster() as cluster,
            Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
        ):
            await admin.create_topics(NewTopic(name) for name in ("t", "u"))
            listed = await admin.list_topics()
            assert [*(await admin.describe_topics(listed)).or_raise()] == ["t", "u"]
            described = await admin.describe_configs({ConfigResource.topic(one) for one in listed})
            assert {resource.name for resource in described.or_raise()} == {"t", "u"}
            assert [
                *(await admin.describe_groups(one.id for one in await admin.list_groups()))
            ] == []
            assert [*(await admin.delete_topics(listed)).or_raise()] == ["t", "u"]

    run(scenario())


def test_single_topic_id_is_accepted_as_a_list() -> None:
    """A Uuid is iterable as bytes; its bytes were once taken for ids."""

    async def scenario() -> None:
        async with Admin(bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=200) as admin:
            one = Uuid(bytes(range(16)))
            assert [*(await admin.delete_topics(one))] == [one]
            assert [*(await admin.describe_topics([one, one]))] == [one]

    run(scenario())

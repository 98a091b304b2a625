"""The administrator, and the values that its calls take and return.

Names are imported on first use: listing topics needs nothing of groups.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.client.admin.acls import (
        CLUSTER_NAME,
        Acl,
        AclFilter,
        AclPattern,
        AclResource,
        Permission,
    )
    from ottla.client.admin.administrator import Admin
    from ottla.client.admin.cluster import BrokerDescription, ClusterDescription
    from ottla.client.admin.configs import (
        ConfigAction,
        ConfigChange,
        ConfigEntry,
        ConfigKind,
        ConfigResource,
        ConfigSource,
        ConfigSynonym,
        ConfigType,
    )
    from ottla.client.admin.features import FeatureChange, Features, FeatureUpdate, Levels
    from ottla.client.admin.group_descriptions import GroupDescription, MemberDescription
    from ottla.client.admin.group_offsets import CommittedOffset, GroupOffsets
    from ottla.client.admin.groups import GroupMember, ListedGroup
    from ottla.client.admin.log_dirs import LogDirDescription, LogDirs, Replica, ReplicaSize
    from ottla.client.admin.operations import Operation
    from ottla.client.admin.quotas import Quota, QuotaEntity
    from ottla.client.admin.reassignments import Election, Reassignment
    from ottla.client.admin.records import HIGH_WATERMARK, FoundOffset, OffsetAt
    from ottla.client.admin.scram_users import (
        ScramCredential,
        ScramMechanism,
        ScramPassword,
        ScramRemoval,
    )
    from ottla.client.admin.share_groups import ShareOffset, ShareOffsets
    from ottla.client.admin.topic_descriptions import (
        PartitionDescription,
        TopicDescription,
    )
    from ottla.client.admin.topic_list import ListedTopic
    from ottla.client.admin.topics import CreatedTopic, NewPartitions, NewTopic
    from ottla.client.admin.transactions import (
        FencedProducer,
        ListedTransaction,
        ProducerDescription,
        TransactionDescription,
    )
    from ottla.client.calls.results import Listing, Results
    from ottla.client.partitions import Partition

__all__ = [
    "CLUSTER_NAME",
    "HIGH_WATERMARK",
    "Acl",
    "AclFilter",
    "AclPattern",
    "AclResource",
    "Admin",
    "BrokerDescription",
    "ClusterDescription",
    "CommittedOffset",
    "ConfigAction",
    "ConfigChange",
    "ConfigEntry",
    "ConfigKind",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "CreatedTopic",
    "Election",
    "FeatureChange",
    "FeatureUpdate",
    "Features",
    "FencedProducer",
    "FoundOffset",
    "GroupDescription",
    "GroupMember",
    "GroupOffsets",
    "Levels",
    "ListedGroup",
    "ListedTopic",
    "ListedTransaction",
    "Listing",
    "LogDirDescription",
    "LogDirs",
    "MemberDescription",
    "NewPartitions",
    "NewTopic",
    "OffsetAt",
    "Operation",
    "Partition",
    "PartitionDescription",
    "Permission",
    "ProducerDescription",
    "Quota",
    "QuotaEntity",
    "Reassignment",
    "Replica",
    "ReplicaSize",
    "Results",
    "ScramCredential",
    "ScramMechanism",
    "ScramPassword",
    "ScramRemoval",
    "ShareOffset",
    "ShareOffsets",
    "TopicDescription",
    "TransactionDescription",
]

_MODULES: Final = {
    "CLUSTER_NAME": "ottla.client.admin.acls",
    "HIGH_WATERMARK": "ottla.client.admin.records",
    "Acl": "ottla.client.admin.acls",
    "AclFilter": "ottla.client.admin.acls",
    "AclPattern": "ottla.client.admin.acls",
    "AclResource": "ottla.client.admin.acls",
    "Admin": "ottla.client.admin.administrator",
    "BrokerDescription": "ottla.client.admin.cluster",
    "ClusterDescription": "ottla.client.admin.cluster",
    "CommittedOffset": "ottla.client.admin.group_offsets",
    "ConfigAction": "ottla.client.admin.configs",
    "ConfigChange": "ottla.client.admin.configs",
    "ConfigEntry": "ottla.client.admin.configs",
    "ConfigKind": "ottla.client.admin.configs",
    "ConfigResource": "ottla.client.admin.configs",
    "ConfigSource": "ottla.client.admin.configs",
    "ConfigSynonym": "ottla.client.admin.configs",
    "ConfigType": "ottla.client.admin.configs",
    "CreatedTopic": "ottla.client.admin.topics",
    "Election": "ottla.client.admin.reassignments",
    "FeatureChange": "ottla.client.admin.features",
    "FeatureUpdate": "ottla.client.admin.features",
    "Features": "ottla.client.admin.features",
    "FencedProducer": "ottla.client.admin.transactions",
    "FoundOffset": "ottla.client.admin.records",
    "GroupDescription": "ottla.client.admin.group_descriptions",
    "GroupMember": "ottla.client.admin.groups",
    "GroupOffsets": "ottla.client.admin.group_offsets",
    "Levels": "ottla.client.admin.features",
    "ListedGroup": "ottla.client.admin.groups",
    "ListedTopic": "ottla.client.admin.topic_list",
    "ListedTransaction": "ottla.client.admin.transactions",
    "Listing": "ottla.client.calls.results",
    "LogDirDescription": "ottla.client.admin.log_dirs",
    "LogDirs": "ottla.client.admin.log_dirs",
    "MemberDescription": "ottla.client.admin.group_descriptions",
    "NewPartitions": "ottla.client.admin.topics",
    "NewTopic": "ottla.client.admin.topics",
    "OffsetAt": "ottla.client.admin.records",
    "Operation": "ottla.client.admin.operations",
    "Results": "ottla.client.calls.results",
    "Partition": "ottla.client.partitions",
    "PartitionDescription": "ottla.client.admin.topic_descriptions",
    "Permission": "ottla.client.admin.acls",
    "ProducerDescription": "ottla.client.admin.transactions",
    "Quota": "ottla.client.admin.quotas",
    "QuotaEntity": "ottla.client.admin.quotas",
    "Reassignment": "ottla.client.admin.reassignments",
    "Replica": "ottla.client.admin.log_dirs",
    "ReplicaSize": "ottla.client.admin.log_dirs",
    "ScramCredential": "ottla.client.admin.scram_users",
    "ScramMechanism": "ottla.client.admin.scram_users",
    "ScramPassword": "ottla.client.admin.scram_users",
    "ScramRemoval": "ottla.client.admin.scram_users",
    "ShareOffset": "ottla.client.admin.share_groups",
    "ShareOffsets": "ottla.client.admin.share_groups",
    "TopicDescription": "ottla.client.admin.topic_descriptions",
    "TransactionDescription": "ottla.client.admin.transactions",
}


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module 'ottla.client.admin' has no attribute {name!r}")
        from importlib import import_module

        found = globals()[name] = getattr(import_module(module), name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})

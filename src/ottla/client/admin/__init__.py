"""The administrator, and the values that its calls take and give."""

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
    ListedTopic,
    PartitionDescription,
    TopicDescription,
)
from ottla.client.admin.topics import CreatedTopic, NewPartitions, NewTopic
from ottla.client.admin.transactions import (
    FencedProducer,
    ListedTransaction,
    ProducerDescription,
    TransactionDescription,
)
from ottla.client.asking.outcomes import Listing, Outcomes
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
    "Outcomes",
    "Partition",
    "PartitionDescription",
    "Permission",
    "ProducerDescription",
    "Quota",
    "QuotaEntity",
    "Reassignment",
    "Replica",
    "ReplicaSize",
    "ScramCredential",
    "ScramMechanism",
    "ScramPassword",
    "ScramRemoval",
    "ShareOffset",
    "ShareOffsets",
    "TopicDescription",
    "TransactionDescription",
]

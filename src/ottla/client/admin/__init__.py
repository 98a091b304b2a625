"""The administrator, and the values that its calls take and give."""

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
from ottla.client.admin.group_descriptions import GroupDescription, MemberDescription
from ottla.client.admin.group_offsets import CommittedOffset, GroupOffsets
from ottla.client.admin.groups import GroupMember, ListedGroup
from ottla.client.admin.operations import Operation
from ottla.client.admin.outcomes import Listing, Outcomes
from ottla.client.admin.partitions import Partition
from ottla.client.admin.topic_descriptions import (
    ListedTopic,
    PartitionDescription,
    TopicDescription,
)
from ottla.client.admin.topics import CreatedTopic, NewPartitions, NewTopic

__all__ = [
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
    "GroupDescription",
    "GroupMember",
    "GroupOffsets",
    "ListedGroup",
    "ListedTopic",
    "Listing",
    "MemberDescription",
    "NewPartitions",
    "NewTopic",
    "Operation",
    "Outcomes",
    "Partition",
    "PartitionDescription",
    "TopicDescription",
]

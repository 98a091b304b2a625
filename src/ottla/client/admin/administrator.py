"""The administrator: describes and changes a cluster.

Invariant: a call ends within its timeout (`default.api.timeout.ms` by default) with its result or a
RequestError. A call about one thing raises its error; a call about many returns a result for each.
An API that the broker does not offer raises NotSupported. Leaving the context leaves nothing open.

A call becomes an ApiCall (in the module of its noun), which is routed to brokers
(`calls/targets.py`) and repeated until it has a result (`calls/caller.py`).
"""

from ottla.client.admin.acls import AclCalls
from ottla.client.admin.administration import Administration
from ottla.client.admin.cluster import ClusterCalls
from ottla.client.admin.configs import ConfigCalls
from ottla.client.admin.features import FeatureCalls
from ottla.client.admin.group_offsets import GroupOffsetCalls
from ottla.client.admin.groups import GroupCalls
from ottla.client.admin.log_dirs import LogDirCalls
from ottla.client.admin.quotas import QuotaCalls
from ottla.client.admin.reassignments import ReassignmentCalls
from ottla.client.admin.records import RecordCalls
from ottla.client.admin.scram_users import ScramUserCalls
from ottla.client.admin.share_groups import ShareGroupCalls
from ottla.client.admin.topics import TopicCalls
from ottla.client.admin.transactions import TransactionCalls


class Admin(
    Administration,
    TopicCalls,
    RecordCalls,
    ConfigCalls,
    GroupCalls,
    GroupOffsetCalls,
    ShareGroupCalls,
    TransactionCalls,
    ReassignmentCalls,
    LogDirCalls,
    QuotaCalls,
    AclCalls,
    ScramUserCalls,
    FeatureCalls,
    ClusterCalls,
):
    """Administers a cluster; `async with` starts and closes it."""

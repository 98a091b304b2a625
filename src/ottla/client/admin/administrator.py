"""The administrator: asks and changes what a cluster is made of.

Invariant: a call ends within its timeout, `default.api.timeout.ms` if it names none, with what it
was made for or with a RequestError. A call about one thing raises its error; one about many
returns what became of each. What a broker does not offer is NotSupported. Leaving the
administrator's context leaves nothing behind.

The path of a call: it becomes a question (the module of its noun), which is led to the brokers that
can answer (`asking/routes.py`) and asked until they have (`asking/asking.py`).
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
    """Administers a cluster; `async with` starts it and ends it."""

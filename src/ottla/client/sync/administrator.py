"""The synchronous administrator.

Invariant: it has every call of the asynchronous one with the same parameters and types; a test
compares them.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress

from ottla.client.admin.administrator import Admin as AsyncAdmin
from ottla.client.network.tokens import TokenFunction
from ottla.client.sync.sync_facade import SyncFacade, waits
from ottla.clock import Clock
from ottla.transport.failures import NotRunning
from ottla.transport.network import Connector


class Admin(SyncFacade[AsyncAdmin]):
    """Administers a cluster; `with` starts and closes it. Thread-safe."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        /,
        *,
        network: Connector | None = None,
        clock: Clock | None = None,
        random: Callable[[], float] | None = None,
        random_bytes: Callable[[int], bytes] | None = None,
        token: TokenFunction | None = None,
        **arguments: object,
    ) -> None:
        """Take settings by Kafka's names, as `{"client.id": "me"}` or as `client_id="me"`.

        `token` returns OAUTHBEARER tokens.
        """
        behind = AsyncAdmin(
            settings,
            network=network,
            clock=clock,
            random=random,
            random_bytes=random_bytes,
            token=token,
            **arguments,
        )
        super().__init__(behind)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close; calls in progress fail."""
        with suppress(NotRunning):  # another thread has closed it
            self._shut(self._behind.close)

    # Topics.

    create_topics = waits(AsyncAdmin.create_topics)
    create_topic = waits(AsyncAdmin.create_topic)
    delete_topics = waits(AsyncAdmin.delete_topics)
    list_topics = waits(AsyncAdmin.list_topics)
    describe_topics = waits(AsyncAdmin.describe_topics)
    describe_topic = waits(AsyncAdmin.describe_topic)
    create_partitions = waits(AsyncAdmin.create_partitions)

    # Records.

    list_offsets = waits(AsyncAdmin.list_offsets)
    delete_records = waits(AsyncAdmin.delete_records)

    # Settings.

    describe_configs = waits(AsyncAdmin.describe_configs)
    alter_configs = waits(AsyncAdmin.alter_configs)
    replace_configs = waits(AsyncAdmin.replace_configs)
    list_config_resources = waits(AsyncAdmin.list_config_resources)

    # Groups.

    list_groups = waits(AsyncAdmin.list_groups)
    describe_groups = waits(AsyncAdmin.describe_groups)
    describe_group = waits(AsyncAdmin.describe_group)
    delete_groups = waits(AsyncAdmin.delete_groups)
    remove_group_members = waits(AsyncAdmin.remove_group_members)

    # Offsets of groups.

    list_group_offsets = waits(AsyncAdmin.list_group_offsets)
    alter_group_offsets = waits(AsyncAdmin.alter_group_offsets)
    delete_group_offsets = waits(AsyncAdmin.delete_group_offsets)

    # Share groups.

    describe_share_groups = waits(AsyncAdmin.describe_share_groups)
    list_share_group_offsets = waits(AsyncAdmin.list_share_group_offsets)
    alter_share_group_offsets = waits(AsyncAdmin.alter_share_group_offsets)
    delete_share_group_offsets = waits(AsyncAdmin.delete_share_group_offsets)

    # Transactions.

    list_transactions = waits(AsyncAdmin.list_transactions)
    describe_transactions = waits(AsyncAdmin.describe_transactions)
    describe_producers = waits(AsyncAdmin.describe_producers)
    abort_transaction = waits(AsyncAdmin.abort_transaction)
    fence_producers = waits(AsyncAdmin.fence_producers)

    # Replicas and leaders.

    alter_reassignments = waits(AsyncAdmin.alter_reassignments)
    list_reassignments = waits(AsyncAdmin.list_reassignments)
    elect_leaders = waits(AsyncAdmin.elect_leaders)

    # Directories.

    describe_log_dirs = waits(AsyncAdmin.describe_log_dirs)
    alter_replica_log_dirs = waits(AsyncAdmin.alter_replica_log_dirs)

    # Quotas.

    describe_quotas = waits(AsyncAdmin.describe_quotas)
    alter_quotas = waits(AsyncAdmin.alter_quotas)

    # Access.

    create_acls = waits(AsyncAdmin.create_acls)
    describe_acls = waits(AsyncAdmin.describe_acls)
    delete_acls = waits(AsyncAdmin.delete_acls)

    # Users.

    describe_scram_users = waits(AsyncAdmin.describe_scram_users)
    alter_scram_users = waits(AsyncAdmin.alter_scram_users)

    # Features.

    describe_features = waits(AsyncAdmin.describe_features)
    update_features = waits(AsyncAdmin.update_features)

    # The cluster.

    describe_cluster = waits(AsyncAdmin.describe_cluster)

"""Entry points of Kafka's tools.

Invariant: a tool is imported only when its script runs, and Ctrl-C is handled before that.
"""

from ottla.cli.startup_sigint import StartupSigint, end_silently

end_silently()

from importlib import import_module  # noqa: E402 - an interrupt may come while any is imported
from typing import Final, NamedTuple  # noqa: E402

from ottla.cli import gc_freeze  # noqa: E402


class Script(NamedTuple):
    """Runs the tool of a module."""

    module: str

    def __call__(self) -> None:
        """Run the tool with the arguments of this process."""
        StartupSigint().install()
        gc_freeze.hold()
        import_module(self.module).run()


broker_api_versions: Final = Script("ottla.cli.kafka.broker_api_versions")
cluster: Final = Script("ottla.cli.kafka.cluster")
configs: Final = Script("ottla.cli.kafka.configs.tool")
console_consumer: Final = Script("ottla.cli.kafka.console.consumer")
console_producer: Final = Script("ottla.cli.kafka.console.producer")
consumer_groups: Final = Script("ottla.cli.kafka.groups.tool")
consumer_perf_test: Final = Script("ottla.cli.kafka.perf.consumer")
delete_records: Final = Script("ottla.cli.kafka.delete_records")
dump_log: Final = Script("ottla.cli.kafka.dump.tool")
get_offsets: Final = Script("ottla.cli.kafka.offsets.tool")
leader_election: Final = Script("ottla.cli.kafka.leader_election")
log_dirs: Final = Script("ottla.cli.kafka.log_dirs")
producer_perf_test: Final = Script("ottla.cli.kafka.perf.producer")
reassign_partitions: Final = Script("ottla.cli.kafka.reassign.tool")
replica_verification: Final = Script("ottla.cli.kafka.replicas.tool")
server_start: Final = Script("ottla.cli.kafka.server.start")
server_stop: Final = Script("ottla.cli.kafka.server.stop")
topics: Final = Script("ottla.cli.kafka.topics.tool")
verifiable_consumer: Final = Script("ottla.cli.kafka.verifiable.consumer")
verifiable_producer: Final = Script("ottla.cli.kafka.verifiable.producer")
zookeeper_server_start: Final = Script("ottla.cli.kafka.zookeeper.start")
zookeeper_server_stop: Final = Script("ottla.cli.kafka.zookeeper.stop")
zookeeper_shell: Final = Script("ottla.cli.kafka.zookeeper.shell")

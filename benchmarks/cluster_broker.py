"""One broker of a cluster, as a process: the broker of `ottla broker`, coordinated by ZooKeeper.

`python cluster_broker.py NODE_ID PORT DIRECTORY ZOOKEEPER [NAME=VALUE ...]` serves until SIGTERM,
and prints one line when it has started. `ottla broker` itself does not use ZooKeeper yet.
"""

import asyncio
import os
import random
import signal
import sys

import uvloop

from ottla.broker.gc_freeze import GcFreeze
from ottla.broker.node import Environment, Node
from ottla.broker.process_limits import raise_open_file_limit
from ottla.clock import SystemClock
from ottla.coordination.zookeeper import ZooKeeper
from ottla.ids import BrokerId, Uuid
from ottla.log.cleaner.child_processes import OsProcesses
from ottla.log.cleaner.cleaner_runners import ChildCleaner
from ottla.log.files import OsDisk
from ottla.settings.config_parser import broker_config
from ottla.transport.network import TcpNetwork


async def serve(node_id: int, port: int, directory: str, connect: str, *settings: str) -> None:
    """Run a broker until SIGTERM."""
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    config = broker_config(
        overrides=(
            f"node.id={node_id}",
            f"listeners=PLAINTEXT://127.0.0.1:{port}",
            f"log.dirs={directory}",
            *settings,
        )
    )
    disk = OsDisk()
    environment = Environment(
        clock=SystemClock(),
        disk=disk,
        network=TcpNetwork(),
        coordination=ZooKeeper(connect, session_timeout_ms=9000, connection_timeout_ms=30_000),
        cleaner=ChildCleaner(OsProcesses()),
        random=random.SystemRandom().random,
        new_id=lambda: Uuid(os.urandom(16)),
        random_bytes=os.urandom,
    )
    async with Node(config, BrokerId(node_id), environment, stopping.set):
        print("started", flush=True)
        await stopping.wait()
    disk.close()


def main() -> None:
    """Serve with the arguments of the command line."""
    node_id, port, directory, connect, *settings = sys.argv[1:]
    raise_open_file_limit()
    with GcFreeze(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(int(node_id), int(port), directory, connect, *settings))


if __name__ == "__main__":
    main()

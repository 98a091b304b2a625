"""`ottla cluster adopt`: moves the cluster of a single broker into ZooKeeper.

Invariant: the file of the embedded store keeps its name until ZooKeeper has everything. Nothing
else in the data directory is changed.
"""

import asyncio
import os
import shlex
from pathlib import Path
from typing import Final

from ottla.broker.service import COORDINATION_FILE
from ottla.cli.failures import Failed
from ottla.cli.result import Result
from ottla.clock import SystemClock
from ottla.controller.transfer import Transfer, copy_cluster
from ottla.coordination.embedded import EmbeddedStore
from ottla.coordination.zookeeper import ZooKeeper
from ottla.log.files import OsDisk

MOVED_SUFFIX: Final = ".moved"
REPLICAS: Final = 3
"""The replication factor that the command recommends: a cluster survives the loss of a broker."""


def adopted(directory: Path, connect: str) -> Result:
    """Move a cluster and return what was moved."""
    folder = directory.absolute()
    file = folder / COORDINATION_FILE
    if not file.exists():
        raise Failed(
            f"{folder} has no {COORDINATION_FILE}: name the first directory of log.dirs of a "
            "broker that ran without ZooKeeper"
        )
    moved = asyncio.run(_copy(file, connect))
    os.replace(file, file.with_name(COORDINATION_FILE + MOVED_SUFFIX))
    command = (
        f"ottla broker --override zookeeper.connect={shlex.quote(connect)} "
        f"--override log.dirs={shlex.quote(str(folder))}"
    )
    few = sorted(name for name, count in moved.replication_factors.items() if count < REPLICAS)
    raising = f"ottla partition move {shlex.join(few)} -r {REPLICAS} --execute" if few else None
    topics = len(moved.replication_factors)
    lines = [
        f"Moved cluster {moved.cluster_id} with {topics} topics to {connect}.",
        f"Start its broker with: {command}",
    ]
    if raising is not None:
        lines.append(
            f"Topics with fewer than {REPLICAS} replicas: {len(few)}. When {REPLICAS} brokers run, "
            f"raise the replication factor with: {raising}"
        )
    return Result(
        {
            "cluster": moved.cluster_id,
            "topics": topics,
            "zookeeper_connect": connect,
            "data": str(folder),
            "start": command,
            "topics_with_few_replicas": [
                {"topic": name, "replication_factor": moved.replication_factors[name]}
                for name in few
            ],
            "raise_replication_factor": raising,
        },
        lines,
    )


async def _copy(file: Path, connect: str) -> Transfer:
    disk = OsDisk()
    try:
        store = EmbeddedStore.open(disk, str(file), SystemClock())
        try:
            source = await store.connect(lambda state: None)
            target = await ZooKeeper(connect).connect(lambda state: None)
            try:
                return await copy_cluster(source, target)
            finally:
                await target.close()
        finally:
            await store.close()
    finally:
        disk.close()

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
    return Result(
        {
            "cluster": moved.cluster_id,
            "topics": moved.topics,
            "zookeeper_connect": connect,
            "data": str(folder),
        },
        [
            f"Moved cluster {moved.cluster_id} with {moved.topics} topics to {connect}.",
            f"Start its broker with: {command}",
        ],
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

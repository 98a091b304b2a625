"""Adopt the data of a stopped Kafka broker as a cluster with one broker.

Invariant: the logs are not changed. The only file written is the journal of the embedded store,
which appears as a whole or not at all; without it the directories are as before.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from ottla.clock import Clock
from ottla.cluster.adoption import (
    AdoptedTopic,
    Adoption,
    AdoptionRefused,
    FoundPartition,
    KraftMetadata,
    plan,
)
from ottla.cluster.znodes import (
    CLUSTER_ID,
    PERSISTENT_PATHS,
    PRODUCER_ID_BLOCK,
    ProducerIdBlock,
    StateNode,
    TopicNode,
    format_cluster_id,
    state_path,
)
from ottla.controller.lease import ControllerLease, elect_controller, ensure
from ottla.controller.store import ClusterStore
from ottla.coordination.embedded import LOCK_SUFFIX, EmbeddedStore
from ottla.coordination.operations import Create, Operation
from ottla.ids import BrokerId, LeaderEpoch
from ottla.log.directory import DirectoryRefused
from ottla.log.disk import Disk
from ottla.log.kafka_directories import KafkaDirectories, KafkaPartition, hold, read_directories
from ottla.protocol.metadata_topic import decode

_UNFINISHED: Final = ".adopting"


async def adopt(
    disk: Disk,
    clock: Clock,
    directories: Sequence[str],
    journal_name: str,
    *,
    node_id: BrokerId | None = None,
    check_only: bool = False,
) -> Adoption:
    """Adopt directories, or only report what adoption would do.

    Raises AdoptionRefused or DirectoryRefused with the reasons.
    """
    journal = f"{directories[0]}/{journal_name}"
    with ExitStack() as held:
        hold(disk, directories, held)
        for path in directories:
            if disk.exists(f"{path}/{journal_name}"):
                raise DirectoryRefused(f"{path} already belongs to Ottla: start a broker on it")
        found = read_directories(disk, directories)
        adoption = _planned(found, node_id)
        if not check_only:
            await _write(disk, clock, f"{journal}{_UNFINISHED}", adoption)
            disk.rename(f"{journal}{_UNFINISHED}", journal)
            if disk.exists(f"{journal}{_UNFINISHED}{LOCK_SUFFIX}"):
                disk.remove(f"{journal}{_UNFINISHED}{LOCK_SUFFIX}")
            disk.sync_directory(directories[0])
    return adoption


def _planned(found: KafkaDirectories, node_id: BrokerId | None) -> Adoption:
    meta = found.meta
    assert meta.cluster_id is not None
    assert meta.node_id is not None
    if node_id not in (None, meta.node_id):
        raise AdoptionRefused(
            [f"the data belongs to broker {meta.node_id}, not to broker {node_id}"]
        )
    metadata: KraftMetadata | None = None
    if found.metadata is not None:
        metadata = KraftMetadata()
        for value in found.metadata:
            record = decode(value)
            if record is not None:
                metadata.note(record)
    adoption = plan(meta.cluster_id, meta.node_id, map(_found, found.partitions), metadata)
    left = tuple(f"{path}: not adopted" for path in found.left_alone)
    return adoption._replace(notes=(*adoption.notes, *left))


def _found(one: KafkaPartition) -> FoundPartition:
    producers = list(one.producers)
    begun = [
        producer.transaction_first_offset
        for producer in producers
        if producer.transaction_first_offset is not None
    ]
    return FoundPartition(
        one.partition,
        one.topic_id,
        one.leader_epoch,
        one.size,
        max((producer.producer_id for producer in producers), default=-1),
        min(begun, default=None),
    )


async def _write(disk: Disk, clock: Clock, path: str, adoption: Adoption) -> None:
    """Write the adopted metadata into the journal that a broker will open."""
    if disk.exists(path):
        disk.remove(path)  # left by an attempt that did not finish
    store = EmbeddedStore.open(disk, path, clock)
    try:
        session = await store.connect(lambda state: None)
        await ensure(session, PERSISTENT_PATHS)
        await session.create(CLUSTER_ID, format_cluster_id(adoption.cluster_id))
        lease = await elect_controller(session, adoption.node_id, clock.now_ms())
        assert lease is not None, "only this call uses the file"
        for topic in adoption.topics:
            await _write_topic(lease, adoption.node_id, topic)
        if adoption.next_producer_id:
            block = ProducerIdBlock(adoption.node_id, 0, adoption.next_producer_id - 1)
            await session.create(PRODUCER_ID_BLOCK, block.format())
    finally:
        await store.close()


async def _write_topic(lease: ControllerLease, node_id: BrokerId, topic: AdoptedTopic) -> None:
    replicas = ((node_id,),) * len(topic.leader_epochs)
    await ClusterStore(lease).create_topic(
        topic.name, TopicNode(topic.id, replicas), topic.settings
    )
    operations: list[Operation] = []
    for index, epoch in enumerate(topic.leader_epochs):
        if epoch >= 0:  # the next epoch is higher, as in the log
            path = state_path(topic.name, index)
            state = StateNode(node_id, LeaderEpoch(epoch), (node_id,), lease.epoch)
            operations += (Create(path.rpartition("/")[0]), Create(path, state.format()))
    await lease.change_all(operations)

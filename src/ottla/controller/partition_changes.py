"""Stores the controller's decisions about partitions, in guarded transactions.

Invariant: a change is stored only at the version that it was decided on (rule B5), while this
broker is the controller (rule B3), and while the brokers that join the ISR have not registered
again (rule A10). The assignment and the state of a partition change in one transaction. A change
that conflicts does not stop the others. After a ConnectionLoss the nodes tell what was stored
(rule B6).
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ottla.cluster.image import PartitionChange, PartitionState
from ottla.cluster.znodes import (
    Replicas,
    StateNode,
    TopicNode,
    counter_path,
    state_path,
    topic_path,
)
from ottla.controller.lease import (
    BATCH_BYTES_MAX,
    ControllerLease,
    Resigned,
    batches,
    operations_bytes,
    read_again,
)
from ottla.controller.loading import NodeMemory
from ottla.coordination.errors import ConnectionLoss, NodeError
from ottla.coordination.operations import REQUEST_BYTES_MAX, Check, Create, Operation, SetData
from ottla.ids import BrokerId

BATCHES_IN_FLIGHT: Final = 4
_REFUSALS_MAX: Final = 10  # of one batch; each is followed by a read that finds all conflicts


class Stored(Struct, frozen=True):
    """A change that is stored."""

    change: PartitionChange
    state: PartitionState  # with the version of its node


class Conflict(Struct, frozen=True):
    """A change that is not stored: the partition, or a broker that joins its ISR, had changed."""

    change: PartitionChange
    state: PartitionState | None  # as read again; None: the partition does not exist


Outcome = Stored | Conflict


@dataclass(slots=True)
class _Write:
    """A change, and the operations on its state node."""

    number: int
    change: PartitionChange
    path: str
    operations: tuple[Operation, ...]
    size: int  # of the operations
    joining: Replicas  # brokers that join the ISR
    is_moving: bool  # whether the assignment changes, too


async def store_changes(
    changes: Sequence[PartitionChange],
    lease: ControllerLease,
    memory: NodeMemory,
    counter_versions: Mapping[BrokerId, int],
) -> list[Outcome]:
    """Store changes of different partitions; return the outcome of each.

    Raises Resigned if another broker has been elected controller.
    """
    return await _Writer(lease, memory, counter_versions).store(changes)


class _Writer:
    """Stores the changes of one call."""

    def __init__(
        self, lease: ControllerLease, memory: NodeMemory, counter_versions: Mapping[BrokerId, int]
    ) -> None:
        self._lease = lease
        self._memory = memory
        self._counter_versions = counter_versions
        self._outcomes: dict[int, Outcome] = {}

    async def store(self, changes: Sequence[PartitionChange]) -> list[Outcome]:
        assert len({(one.topic, one.index) for one in changes}) == len(changes)
        others: list[_Write] = []
        moving: dict[str, list[_Write]] = defaultdict(list)  # with a new assignment, by topic
        for write in self._writes(changes):
            (moving[write.change.topic] if write.is_moving else others).append(write)
        await self._read_topics(name for name in moving if name not in self._memory.topics)
        places = asyncio.Semaphore(BATCHES_IN_FLIGHT)

        async def store_in_order(lane: Iterable[list[_Write]]) -> None:
            for batch in lane:
                async with places:
                    await self._store_batch(batch)

        # Batches that write the same topic node have an order; all others do not.
        lanes = [[batch] for batch in batches(others, lambda one: one.size)]
        lanes += [self._split_moving(name, writes) for name, writes in moving.items()]
        ended = await asyncio.gather(*map(store_in_order, lanes), return_exceptions=True)
        failures = [one for one in ended if one is not None]
        for failure in sorted(failures, key=lambda one: not isinstance(one, Resigned)):
            raise failure
        return [self._outcomes[number] for number in range(len(changes))]

    def _writes(self, changes: Sequence[PartitionChange]) -> Iterator[_Write]:
        formatted: dict[tuple[object, ...], bytes] = {}  # most partitions have the same state
        for number, change in enumerate(changes):
            before, after = change.before, change.after
            fields = after.leader, after.leader_epoch, after.in_sync
            more = after.elr, after.last_known_elr
            other = self._memory.other(change.topic, change.index)
            data = None if other else formatted.get((*fields, *more))
            if data is None:
                data = StateNode(*fields, self._lease.epoch, *more, other).format()
                if not other:
                    formatted[*fields, *more] = data
            path = state_path(change.topic, change.index)
            joining: Replicas = ()
            if before.version < 0:
                operations = Create(path.rpartition("/")[0]), Create(path, data)
            else:
                operations = (SetData(path, data, before.version),)
                if before.in_sync != after.in_sync:
                    joining = tuple(one for one in after.in_sync if one not in before.in_sync)
            size = operations_bytes(operations)
            is_moving = _assignment(before) != _assignment(after)
            yield _Write(number, change, path, operations, size, joining, is_moving)

    def _split_moving(self, name: str, writes: Sequence[_Write]) -> list[list[_Write]]:
        known = self._memory.topics.get(name)
        if known is None:  # it is being deleted; each change is a conflict
            return [list(writes)]
        topic_bytes = len(_moved(known[0], writes).format())
        room = min(BATCH_BYTES_MAX, REQUEST_BYTES_MAX * 9 // 10 - topic_bytes)
        return list(batches(writes, lambda one: one.size, room))

    # One batch.

    async def _store_batch(self, writes: list[_Write]) -> None:
        refusals = 0
        while writes:
            moved = self._moved_topics(writes)
            try:
                await self._lease.commit(self._operations(writes, moved))
            except NodeError:
                refusals += 1
                if refusals > _REFUSALS_MAX:
                    raise
            except ConnectionLoss:
                pass
            else:
                for write in writes:
                    after, version = write.change.after, write.change.before.version + 1
                    if after.version != version:
                        after = replace(after, version=version)
                    self._outcomes[write.number] = Stored(write.change, after)
                for name, (node, version) in moved.items():
                    self._memory.topics[name] = node, version + 1
                return
            writes = await self._undecided(writes)

    def _moved_topics(self, writes: Sequence[_Write]) -> dict[str, tuple[TopicNode, int]]:
        """Return the nodes of the topics whose assignments the batch changes, as it leaves them."""
        moving: dict[str, list[_Write]] = defaultdict(list)
        for write in writes:
            if write.is_moving:
                moving[write.change.topic].append(write)
        return {
            name: (_moved(known[0], some), known[1])
            for name, some in moving.items()
            if (known := self._memory.topics.get(name)) is not None
        }

    def _operations(
        self, writes: Sequence[_Write], moved: Mapping[str, tuple[TopicNode, int]]
    ) -> list[Operation]:
        versions = self._counter_versions
        joining = {one for write in writes for one in write.joining if one in versions}
        return [
            *(Check(counter_path(one), versions[one]) for one in sorted(joining)),
            *(
                SetData(topic_path(name), node.format(), version)
                for name, (node, version) in moved.items()
            ),
            *chain.from_iterable(write.operations for write in writes),
        ]

    async def _undecided(self, writes: Sequence[_Write]) -> list[_Write]:
        """Read the nodes of a batch again; return the writes that can still be made."""
        await self._read_topics(dict.fromkeys(write.change.topic for write in writes))
        restarted = await self._restarted({one for write in writes for one in write.joining})
        paths = [write.path for write in writes]
        states = await read_again(self._lease.session, paths)
        above = [path.rpartition("/")[0] for path in paths]
        parents = await read_again(self._lease.session, above)
        left: list[_Write] = []
        for write, found, parent in zip(writes, states, parents, strict=True):
            change = write.change
            before, after = change.before, change.after
            topic = self._memory.topics.get(change.topic)
            if topic is None or change.index >= len(topic[0].partitions):
                self._outcomes[write.number] = Conflict(change, None)
                continue
            state = self._memory.partition(change.topic, change.index, topic[0], found)
            if found is not None and state == replace(after, version=state.version):
                self._outcomes[write.number] = Stored(change, state)
            elif (
                state.version == before.version
                and _assignment(state) == _assignment(before)
                and restarted.isdisjoint(write.joining)
            ):
                if found is None and parent is not None:
                    write.operations = write.operations[-1:]  # only the state is missing
                left.append(write)
            else:
                self._outcomes[write.number] = Conflict(change, state)
        return left

    async def _read_topics(self, names: Iterable[str]) -> None:
        names = list(names)
        if not names:
            return
        nodes = await read_again(self._lease.session, [topic_path(name) for name in names])
        for name, node in zip(names, nodes, strict=True):
            if node is None:
                self._memory.forget(name)
            else:
                self._memory.topic(name, node)

    async def _restarted(self, brokers: Iterable[BrokerId]) -> set[BrokerId]:
        """Return the brokers that have registered since the controller read their counters."""
        known = [one for one in brokers if one in self._counter_versions]
        if not known:
            return set()
        counters = await read_again(self._lease.session, [counter_path(one) for one in known])
        return {
            one
            for one, node in zip(known, counters, strict=True)
            if node is None or node.stat.version != self._counter_versions[one]
        }


def _assignment(state: PartitionState) -> tuple[Replicas, Replicas, Replicas]:
    return state.replicas, state.adding, state.removing


def _moved(node: TopicNode, writes: Iterable[_Write]) -> TopicNode:
    """Return a topic's node with the assignments that the writes lead to."""
    rows, adding, removing = list(node.partitions), dict(node.adding), dict(node.removing)
    for write in writes:
        index, after = write.change.index, write.change.after
        if index >= len(rows):
            continue  # a conflict: the partition does not exist
        rows[index] = after.replicas
        for those, replicas in ((adding, after.adding), (removing, after.removing)):
            if replicas:
                those[index] = replicas
            else:
                those.pop(index, None)
    return node._replace(partitions=tuple(rows), adding=adding, removing=removing)

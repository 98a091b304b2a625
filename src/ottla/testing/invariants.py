"""The invariants of replication (docs/rules.md), checked in each step of a simulated cluster.

Invariant: a step looks only at brokers that may have done something. Each replica has a mirror: the
batches in its log by base offset. The batches below any leader's high watermark are remembered for
all time, so that every replica and every later leader can be compared with them.

1. Below the high watermark of any broker that believes to lead, every member of the recorded ISR
   has the same bytes. A broker that has crashed counts again once the controller has handled its
   registration.
2. The recorded leader is in the recorded ISR, unless there is none.
3. At most one broker ever appends in a leader epoch of a partition.
4. log start offset <= last stable offset <= high watermark <= log end offset on each replica.
5. There is one batch per offset below the high watermark, over all time and replicas.
6. A new leader has every record that was below any leader's high watermark before.
7. Recorded epochs never decrease: of controllers, leaders, partitions, and in the committed batches
   those of producers and the generations of groups. A controller writes only in its own epoch
   (rule B3). Committed offsets that fall are counted and told, not wrong: a commit that timed out
   may be replicated later, while its group continues from the offset before it.
8. A record that is acknowledged to acks=all, or that a consumer has read, is below a high
   watermark.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from ottla.broker.group_coordinator import OFFSETS_TOPIC
from ottla.broker.replica_manager import ReplicaManager
from ottla.cluster.image import INTERNAL_TOPICS
from ottla.cluster.registration import (
    NO_BROKER_EPOCH,
    parse_counter,
    parse_handled_restarts,
)
from ottla.cluster.znodes import (
    BROKER_IDS,
    CONTROLLER_EPOCH,
    TOPICS,
    UNCLEAN_RESTARTS,
    StateNode,
    broker_path,
    counter_path,
    parse_state,
    parse_topic,
    partitions_path,
    state_path,
    topic_path,
)
from ottla.coordination.tree import Tree
from ottla.ids import NO_BROKER, BrokerEpoch, BrokerId, PartitionIndex, TopicPartition, Uuid
from ottla.log.partition_log import PartitionLog
from ottla.records.batch import batches
from ottla.replication.follower import FollowerPartition
from ottla.replication.partition import Partition
from ottla.testing.simulation import SimulatedBroker, broker_of

READ_BYTES: Final = 1 << 20

_PRODUCER: Final = Struct(">qh")  # the id and the epoch in the header of a batch
_PRODUCER_AT: Final = 43
_GROUP_METADATA: Final = 2  # a type of keys in __consumer_offsets; 0 and 1 are committed offsets

_Key: TypeAlias = tuple[Uuid, int]  # topic id and partition


class Recorded(NamedTuple):
    """The state of a partition in coordination."""

    name: str
    state: StateNode
    version: int


@dataclass(slots=True)
class _Mirror:
    """The batches of one replica, as far as they were read."""

    log: PartitionLog
    key: _Key
    seen: tuple[int, ...] = ()
    truncations: int = 0
    end: int = 0
    batches: dict[int, bytes] = field(default_factory=dict[int, bytes])
    committed: int = 0  # compared with the committed batches up to here
    leader_epoch: int = -1  # that was checked as a leader's
    same: dict[BrokerId, int] = field(default_factory=dict[BrokerId, int])  # as leader: rule 1


class Invariants:
    """Checks a cluster; what is wrong goes to `wrong`, what happens to `event`."""

    def __init__(
        self,
        brokers: Sequence[SimulatedBroker],
        tree: Tree,
        wrong: Callable[[str], None],
        event: Callable[[str, str], None],
    ) -> None:
        self._brokers = {one.id: one for one in brokers}
        self._tree = tree
        self._wrong = wrong
        self._event = event
        self.counts: Counter[str] = Counter()
        self.recorded: dict[_Key, Recorded] = {}
        self.excluded: set[BrokerId] = set()  # crashed, and not handled yet
        self._zxid = -1
        self._seen_mzxid: dict[str, int] = {}
        self._controller_epoch = 0
        self._mirrors: dict[tuple[BrokerId, _Key], _Mirror] = {}
        self._by_replica: dict[BrokerId, dict[Partition | FollowerPartition, _Mirror]] = {
            one.id: {} for one in brokers
        }  # the same, by the objects of the broker's current process
        self._committed: dict[_Key, dict[int, bytes]] = {}
        self._committed_end: dict[_Key, int] = {}
        self._rising: dict[tuple[object, ...], int] = {}  # what never decreases in a log
        self._appender: dict[tuple[_Key, int], BrokerId] = {}
        self._keys: dict[tuple[str, int], _Key] = {}  # by the name of the topic

    def step(self, contexts: Collection[Context]) -> None:
        """Check what may have changed: coordination, and the brokers of these contexts."""
        if self._tree.zxid != self._zxid:
            self._zxid = self._tree.zxid
            self._read_recorded()
        for broker_id in dict.fromkeys(map(broker_of, contexts)):
            if broker_id is not None and (node := self._brokers[broker_id].running) is not None:
                manager = node.replica_manager
                if manager is not None:
                    self._check_replicas(broker_id, manager)

    def _check_replicas(self, broker: BrokerId, manager: ReplicaManager) -> None:
        """Check the replicas of a broker that have changed since its last step."""
        mirrors = self._by_replica[broker]
        for partition in manager.partitions.values():
            log = partition.log
            mirror = mirrors.get(partition)
            if mirror is None or mirror.log is not log:
                mirror = self._mirror_of(broker, partition)
            state = log.state
            now = (
                state.log_end_offset,
                partition.high_watermark,
                state.log_start_offset,
                partition.leader_epoch,
                state.truncations,
            )
            if mirror.seen != now:
                mirror.seen = now
                self._leader_moved(broker, partition, mirror)
        for follower in manager.followers.values():
            log = follower.log
            mirror = mirrors.get(follower)
            if mirror is None or mirror.log is not log:
                mirror = self._mirror_of(broker, follower)
            state = log.state
            now = (
                state.log_end_offset,
                follower.high_watermark,
                state.log_start_offset,
                -1,
                state.truncations,
            )
            if mirror.seen != now:
                mirror.seen = now
                self._follower_moved(broker, follower, mirror)

    def shown(self, place: tuple[str, int], offset: int, how: str) -> None:
        """Check that a record which a client sees is below a high watermark (rules A6 and A8)."""
        end = self._committed_end.get(self._keys[place], 0)
        if offset >= end:
            self._wrong(f"{place}: {offset} was {how}, the high watermark is {end}")

    def leaders(self) -> list[BrokerId]:
        """Return the recorded leader of each partition that has one, except of internal topics."""
        return sorted(
            one.state.leader
            for one in self.recorded.values()
            if one.name not in INTERNAL_TOPICS and one.state.leader != NO_BROKER
        )

    def state_of(self, place: tuple[str, int]) -> StateNode:
        """Return the recorded state of a partition."""
        return self.recorded[self._keys[place]].state

    # Coordination.

    def _read_recorded(self) -> None:
        tree = self._tree
        if tree.exists(TOPICS) is None:
            return
        elected_zxid = 0
        if (elected := tree.exists(CONTROLLER_EPOCH)) is not None:
            elected_zxid = elected.mzxid
            epoch = int(tree.get(CONTROLLER_EPOCH).data or b"0")
            if epoch < self._controller_epoch:
                self._wrong(f"the controller epoch fell from {self._controller_epoch} to {epoch}")
            if epoch > self._controller_epoch:
                self.counts["controller changes"] += 1
                self._event("controller", f"controller epoch {epoch} begins")
            self._controller_epoch = epoch
        topics = tree.children(TOPICS)
        if {one.name for one in self.recorded.values()}.difference(topics):
            self._forget_others(topics)
        for topic in topics:
            if tree.exists(partitions_path(topic)) is None:
                continue
            topic_id: Uuid | None = None
            for index in map(int, tree.children(partitions_path(topic))):
                path = state_path(topic, index)
                stat = tree.exists(path)
                if stat is None or self._seen_mzxid.get(path) == stat.mzxid:
                    continue
                self._seen_mzxid[path] = stat.mzxid
                if topic_id is None:
                    where = topic_path(topic)
                    topic_id = parse_topic(tree.get(where).data, where).id
                assert topic_id is not None
                state = parse_state(tree.get(path).data, path)
                if stat.mzxid > elected_zxid and state.controller_epoch < self._controller_epoch:
                    self._wrong(
                        f"{topic}-{index}: controller epoch {state.controller_epoch} writes "
                        f"in controller epoch {self._controller_epoch}"
                    )
                self._state_changed((topic_id, index), Recorded(topic, state, stat.version))
        self._find_excluded()
        for broker, key in self._mirrors:
            self._check_isr_members(broker, key)

    def _forget_others(self, topics: Sequence[str]) -> None:
        """Forget the topics that were deleted."""
        kept = {*topics}
        self.recorded = {key: one for key, one in self.recorded.items() if one.name in kept}
        self._keys = {place: key for place, key in self._keys.items() if place[0] in kept}
        self._event("topic", "a topic was deleted")

    def _find_excluded(self) -> None:
        """Find the brokers that have crashed and whose registration is not handled."""
        tree = self._tree
        handled: dict[BrokerId, BrokerEpoch] = {}
        if tree.exists(UNCLEAN_RESTARTS) is not None and tree.get(UNCLEAN_RESTARTS).data:
            handled = parse_handled_restarts(tree.get(UNCLEAN_RESTARTS).data)
        self.excluded = {*self._brokers}
        registered = tree.children(BROKER_IDS) if tree.exists(BROKER_IDS) is not None else []
        for broker in map(BrokerId, map(int, registered)):
            path = counter_path(broker)
            if tree.exists(path) is None or tree.exists(broker_path(broker)) is None:
                continue
            node = tree.get(path)
            last = parse_counter(node.data, path, BrokerEpoch(node.stat.mzxid))
            if last.clean_since <= handled.get(broker, NO_BROKER_EPOCH):
                self.excluded.discard(broker)

    def _state_changed(self, key: _Key, now: Recorded) -> None:
        before = self.recorded.get(key)
        self.recorded[key] = now
        replaced = self._keys.get((now.name, key[1]))
        if replaced not in (None, key):  # a topic of that name was deleted
            self.recorded.pop(replaced, None)
        self._keys[now.name, key[1]] = key
        name, state = f"{now.name}-{key[1]}", now.state
        if state.leader != NO_BROKER and state.leader not in state.in_sync:
            self._wrong(f"{name}: the leader {state.leader} is not in the ISR {state.in_sync}")
        if before is None:
            return
        old = before.state
        if now.version <= before.version or state.leader_epoch < old.leader_epoch:
            self._wrong(f"{name}: an epoch fell: {before} became {now}")
        if state.controller_epoch < old.controller_epoch:
            self._wrong(f"{name}: the controller epoch fell: {before} became {now}")
        if state.leader not in (old.leader, NO_BROKER):
            self.counts["leader changes"] += 1
            if state.leader not in old.in_sync:
                kind = "ELR elections" if state.leader in old.elr else "last-leader elections"
                self.counts[kind] += 1
        if {*state.in_sync} < {*old.in_sync} and state.leader_epoch == old.leader_epoch:
            self.counts["shrinks"] += 1
        if {*state.in_sync} > {*old.in_sync} and state.leader_epoch == old.leader_epoch:
            self.counts["expands"] += 1
        elr = f", ELR {state.elr}" if state.elr else ""
        self._event(
            "partition",
            f"{name}: leader {state.leader} in epoch {state.leader_epoch}, ISR {state.in_sync}"
            f"{elr}",
        )

    # Replicas.

    def _mirror_of(self, broker: BrokerId, replica: Partition | FollowerPartition) -> _Mirror:
        """Return the mirror of a replica's log, also if another object had the log before."""
        key = (replica.topic_id, replica.name.partition)
        mirror = self._mirrors.get((broker, key))
        if mirror is None or mirror.log is not replica.log:
            mirror = self._new_mirror(broker, key, replica.log)
        self._by_replica[broker][replica] = mirror
        return mirror

    def _new_mirror(self, broker: BrokerId, key: _Key, log: PartitionLog) -> _Mirror:
        self._by_replica[broker].clear()  # of what this broker had before
        mirror = self._mirrors[broker, key] = _Mirror(log, key, truncations=log.state.truncations)
        for (_, other_key), other in self._mirrors.items():
            if other_key == key:
                other.same.pop(broker, None)
        return mirror

    def _leader_moved(self, broker: BrokerId, partition: Partition, mirror: _Mirror) -> None:
        name, log = partition.name, partition.log.state
        self._check_offsets(
            broker, name, partition.log, partition.last_stable_offset, partition.high_watermark
        )
        epoch = partition.leader_epoch
        for data in self._read(broker, mirror):
            written = int.from_bytes(data[12:16], "big")
            if written == epoch:
                first = self._appender.setdefault((mirror.key, epoch), broker)
                if first != broker:
                    self._wrong(f"{name}: brokers {first} and {broker} append in epoch {epoch}")
        if mirror.leader_epoch != epoch:
            mirror.leader_epoch = epoch
            recorded = self.recorded.get(mirror.key)
            if recorded is not None and recorded.state.leader_epoch == epoch:
                self._check_new_leader(broker, name, mirror, log.log_start_offset)
        high = partition.high_watermark
        committed = self._committed.setdefault(mirror.key, {})
        for base, data in _between(mirror.batches, mirror.committed, high):
            known = committed.setdefault(base, data)
            if known is data:
                self.check_rising(name, mirror.key, data)
            elif known != data:
                self._wrong(f"{name}: at {base}, leader {broker} has another batch than before")
        mirror.committed = high
        self._committed_end[mirror.key] = max(self._committed_end.get(mirror.key, 0), high)
        self._check_isr_members(broker, mirror.key)

    def check_rising(self, name: TopicPartition, key: _Key, data: bytes) -> None:
        """Check what never decreases in the committed batches of a partition (rule 7)."""
        producer_id, producer_epoch = _PRODUCER.unpack_from(data, _PRODUCER_AT)
        if producer_id >= 0:
            self._rise("producer epoch", producer_epoch, name, key, producer_id)
        if name.topic == OFFSETS_TOPIC:
            for batch in batches(data):
                for record in batch.records():
                    self._check_group_record(name, record.key or b"", record.value)

    def _check_group_record(self, name: TopicPartition, key: bytes, value: bytes | None) -> None:
        kind = int.from_bytes(key[:2], "big")
        if kind > _GROUP_METADATA:
            return
        what = "generation" if kind == _GROUP_METADATA else "committed offset"
        about = (what, name, key)
        if value is None:
            self._rising.pop(about, None)
        elif kind == _GROUP_METADATA:
            at = 4 + int.from_bytes(value[2:4], "big")  # after the version and the protocol type
            self._rise(what, int.from_bytes(value[at : at + 4], "big"), name, key)
        else:
            offset = int.from_bytes(value[2:10], "big")
            before = self._rising.get((what, name, key), 0)
            if offset < before:
                self.counts["committed offsets that fell"] += 1
                self._event("offset", f"{name}: a group commits {offset} after {before}: {key!r}")
            self._rising[what, name, key] = offset

    def _rise(self, what: str, value: int, name: TopicPartition, *about: object) -> None:
        before = self._rising.get((what, name, *about), 0)
        if value < before:
            self._wrong(f"{name}: the {what} of {about[-1]!r} fell from {before} to {value}")
        self._rising[what, name, *about] = value

    def _check_new_leader(
        self, broker: BrokerId, name: TopicPartition, mirror: _Mirror, log_start: int
    ) -> None:
        end = self._committed_end.get(mirror.key, 0)
        if mirror.end < end:
            self._wrong(
                f"{name}: the new leader {broker} of epoch {mirror.leader_epoch} ends at "
                f"{mirror.end}, records up to {end} were committed"
            )
        for base, data in self._committed.get(mirror.key, {}).items():
            if base >= log_start and mirror.batches.get(base) != data:
                self._wrong(
                    f"{name}: the new leader {broker} of epoch {mirror.leader_epoch} does not "
                    f"have the committed batch at {base}"
                )
                return

    def _follower_moved(
        self, broker: BrokerId, follower: FollowerPartition, mirror: _Mirror
    ) -> None:
        mirror.leader_epoch = -1
        if follower.log.state.truncating:
            mirror.seen = ()
            return
        name, high = follower.name, follower.high_watermark
        self._check_offsets(broker, name, follower.log, follower.last_stable_offset, high)
        self._read(broker, mirror)
        committed = self._committed.get(mirror.key, {})
        for base, data in _between(mirror.batches, mirror.committed, high):
            if committed.get(base, data) != data:
                self._wrong(f"{name}: at {base}, follower {broker} has another batch than leaders")
        mirror.committed = high
        self._committed_end[mirror.key] = max(self._committed_end.get(mirror.key, 0), high)

    def _check_offsets(
        self, broker: BrokerId, name: TopicPartition, log: PartitionLog, stable: int, high: int
    ) -> None:
        start, end = log.log_start_offset, log.log_end_offset
        if not start <= stable <= high <= end:
            self._wrong(
                f"{name} on {broker}: log start {start}, last stable offset {stable}, "
                f"high watermark {high}, log end {end}"
            )

    def _read(self, broker: BrokerId, mirror: _Mirror) -> list[bytes]:
        """Bring a mirror up to date; return the new batches."""
        log = mirror.log
        state = log.state
        if state.truncations != mirror.truncations or state.log_end_offset < mirror.end:
            self.counts["truncations"] += 1
            mirror.truncations = state.truncations
            mirror.batches.clear()
            mirror.end = mirror.committed = 0
            for (_, key), other in self._mirrors.items():
                if key == mirror.key:
                    other.same.pop(broker, None)
        offset = max(mirror.end, log.log_start_offset)
        found: list[bytes] = []
        while offset < log.log_end_offset:
            part = log.read_cached(offset, log.log_end_offset, READ_BYTES)
            if part.file is None or not part.size:
                break
            for batch in batches(part.file.read(part.position, part.size)):
                data = bytes(batch.data)
                mirror.batches[batch.header.base_offset] = data
                offset = batch.header.next_offset
                found.append(data)
        mirror.end = offset
        return found

    def _check_isr_members(self, leader: BrokerId, key: _Key) -> None:
        """Compare the members of the recorded ISR with a broker that believes to lead (rule 1)."""
        mirror, recorded = self._mirrors[leader, key], self.recorded.get(key)
        running = self._brokers[leader].running
        if mirror.leader_epoch < 0 or recorded is None or running is None:
            return
        manager = running.replica_manager
        led = None if manager is None else manager.partitions.get(_name(recorded, key))
        if led is None or led.log is not mirror.log:
            return
        high = led.high_watermark
        for member in recorded.state.in_sync:
            other = self._mirrors.get((member, key))
            if member == leader or member in self.excluded or other is None:
                continue
            if not self._brokers[member].alive or other.log.state.failure is not None:
                continue
            same = mirror.same.get(member, 0)
            if same >= high:
                continue
            start = other.log.log_start_offset
            if other.end < high:
                self._read(member, other)  # it has grown in this step
            for base, data in _between(mirror.batches, same, high):
                if base >= start and other.batches.get(base) != data:
                    self._wrong(
                        f"{_name(recorded, key)}: leader {leader} has the high watermark {high}, "
                        f"broker {member} of the ISR does not have its batch at {base}"
                    )
                    break
            mirror.same[member] = high


def _name(recorded: Recorded, key: _Key) -> TopicPartition:
    return TopicPartition(recorded.name, PartitionIndex(key[1]))


def _between(found: dict[int, bytes], start: int, end: int) -> list[tuple[int, bytes]]:
    """Return the batches from an offset up to another; they are in the order of their offsets."""
    wanted: list[tuple[int, bytes]] = []
    for base in reversed(found):
        if base < start:
            break
        if base < end:
            wanted.append((base, found[base]))
    wanted.reverse()
    return wanted

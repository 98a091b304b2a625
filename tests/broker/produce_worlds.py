# pyright: reportPrivateUsage=false
"""Partitions of many kinds, a handler of Produce over them, and generated requests.

Two worlds get the same requests: one with the fast path, one without. `difference` says what is not
equal between them. Responses that wait for replicas are compared when an event completes them.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from struct import pack_into, unpack_from
from types import MappingProxyType, MethodType
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from fastcrc.crc32 import iscsi as crc32c
from msgspec.structs import replace

from log.log_managers import opened
from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.handlers.produce import ProduceHandler
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.produce_fast_path import ProduceFastPath
from ottla.broker.replica_manager import ReplicaManager
from ottla.broker.shutdown import Shutdown
from ottla.cluster.image import ClusterImage, PartitionState, Topic
from ottla.errors import OttlaError, ProtocolViolation
from ottla.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    ProducerId,
    TopicPartition,
    Uuid,
)
from ottla.log.loading import HostedLog
from ottla.log.log_config import LogConfig
from ottla.log.log_state import log_closed
from ottla.metrics import ApiCounts
from ottla.protocol.conversation import (
    Request,
    Response,
    ServerConversation,
    _response_frame,
)
from ottla.protocol.headers import RequestHeader, write_request_header
from ottla.protocol.message import Message
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.records.batch import CRC_END, HEADER_SIZE, LENGTH_END, TimestampType
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Compression
from ottla.records.validation import ValidationConfig
from ottla.replication.fetch_purgatory import DelayedFetch
from ottla.replication.partition import Partition
from ottla.testing.disk import SimulatedDisk
from ottla.transport.connection import DeferredResponse
from ottla.transport.pending_acks import PendingAck

if TYPE_CHECKING:
    from _typeshed import SupportsLenAndGetItem

EPOCH: Final = LeaderEpoch(3)
START_MS: Final = 1_700_000_000_000
PRODUCERS: Final = (7, 8)


@dataclass(slots=True)
class ManualClock:
    """A clock that the test moves."""

    ms: int = START_MS

    def now_ms(self) -> int:
        return self.ms

    def elapsed_s(self) -> float:
        return self.ms / 1000

    async def sleep(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)


@dataclass(frozen=True, slots=True)
class Kind:
    """How the partitions of a topic differ from the usual."""

    log: LogConfig = field(default_factory=LogConfig)
    rules: ValidationConfig = field(default_factory=ValidationConfig)
    in_sync_min: int = 1
    prepare: Callable[[Partition], None] = lambda partition: None
    partitions: int = 1
    in_sync: tuple[int, ...] = ()  # of the replicas 1, 2 and 3; without it there is one replica

    def state(self, epoch: int, version: int = 0) -> PartitionState:
        """The state in which broker 1 leads its partitions."""
        replicas = (1, 2, 3) if self.in_sync else (1,)
        return PartitionState(
            tuple(map(BrokerId, replicas)),
            BrokerId(1),
            LeaderEpoch(epoch),
            tuple(map(BrokerId, self.in_sync or (1,))),
            version,
        )


def _fail(partition: Partition) -> None:
    partition.log.fail(log_closed("closed before"))


def _truncate(partition: Partition) -> None:
    partition.log.state.truncating = True


def _lead_again(partition: Partition) -> None:
    partition.leader_epoch = LeaderEpoch(EPOCH + 1)


def _open_transaction(partition: Partition) -> None:
    for producer_id in PRODUCERS:
        partition.log.producers.append(
            _header(producer_id=producer_id, transactional=True), partition.log.log_end_offset, 0
        )


def _header(**fields: Any) -> Any:
    from ottla.records.batch import Batch, unpack_header

    builder = BatchBuilder()
    builder.append(0, None, b"")
    data = builder.build(
        producer_id=fields["producer_id"], producer_epoch=0, base_sequence=0, transactional=True
    )
    return Batch(memoryview(data), unpack_header(data)).header


def _behind_coordinator(partition: Partition) -> None:
    """A coordinator's batch has no sequence; the next sequence of its producer is then 0."""
    for producer_id in PRODUCERS:
        header = _header(producer_id=producer_id)._replace(attributes=0)
        partition.log.producers.append(header, partition.log.log_end_offset, 0)
        partition.log.producers.append(
            header._replace(base_sequence=-1), partition.log.log_end_offset, 0
        )


def _delete_records(partition: Partition) -> None:
    _replicate_batch(partition, 0)
    partition.log.advance_log_start(Offset(2))


def _near_the_last_offset(partition: Partition) -> None:
    """Compaction has removed the records before the last ones that the segment has offsets for."""
    _replicate_batch(partition, 0)
    _replicate_batch(partition, partition.log.segments.active.offset_max - 20)


def _replicate_batch(partition: Partition, offset: int) -> None:
    builder = BatchBuilder()
    for number in range(4):
        builder.append(START_MS, b"k%d" % number, b"")
    log = partition.log
    data = builder.build(base_offset=offset, leader_epoch=EPOCH)
    log.append_replicated(data, fetched_offset=log.log_end_offset, now_ms=START_MS)
    partition.high_watermark = log.log_end_offset


KINDS: Final[Mapping[str, Kind]] = {
    "plain": Kind(partitions=4),
    "small-segments": Kind(LogConfig(segment_bytes=700, index_interval_bytes=0), partitions=2),
    "small-indexes": Kind(LogConfig(index_bytes_max=40, index_interval_bytes=50), partitions=2),
    "short-segments": Kind(LogConfig(segment_ms=300, segment_jitter_ms=100), partitions=2),
    "deleted-records": Kind(prepare=_delete_records),
    "last-offsets": Kind(prepare=_near_the_last_offset),
    "one-batch-segments": Kind(LogConfig(segment_bytes=100)),
    "small-messages": Kind(rules=ValidationConfig(max_message_bytes=130)),
    "compacted": Kind(rules=ValidationConfig(compacted=True)),
    "append-time": Kind(rules=ValidationConfig(timestamp_type=TimestampType.LOG_APPEND_TIME)),
    "recompressed": Kind(rules=ValidationConfig(compression=Compression.GZIP)),
    "strict": Kind(rules=ValidationConfig(timestamp_before_max_ms=40, timestamp_after_max_ms=40)),
    "flushed": Kind(LogConfig(flush_messages=4)),
    "flushed-at-once": Kind(LogConfig(flush_ms=0)),
    "in-sync": Kind(in_sync_min=2),
    "__consumer_offsets": Kind(),
    "failed": Kind(prepare=_fail),
    "truncating": Kind(prepare=_truncate),
    "other-epoch": Kind(prepare=_lead_again),
    "transaction": Kind(prepare=_open_transaction),
    "coordinator": Kind(prepare=_behind_coordinator),
    "replicated": Kind(in_sync=(1, 2, 3), partitions=3),
    "replicated-min": Kind(in_sync=(1, 2), in_sync_min=2, partitions=2),
    "replicated-alone": Kind(in_sync=(1,)),
    "replicated-below-min": Kind(in_sync=(1,), in_sync_min=2),
    "replicated-flushed": Kind(LogConfig(flush_messages=3), in_sync=(1, 2, 3)),
}

ORDINARY: Final = (
    "plain",
    "plain",
    "plain",
    "small-segments",
    "small-indexes",
    "short-segments",
    "deleted-records",
    "replicated",
    "replicated-min",
)

SETTINGS: Final[Mapping[str, Callable[[Kind], Kind]]] = {
    "cleanup.policy": lambda kind: _with_log(kind, {"compacted": True}, compact=True),
    "compression.type": lambda kind: _with_rules(kind, compression=Compression.GZIP),
    "flush.messages": lambda kind: _with_log(kind, flush_messages=1),
    "flush.ms": lambda kind: _with_log(kind, flush_ms=0),
    "max.message.bytes": lambda kind: _with_rules(kind, max_message_bytes=130),
    "message.timestamp.after.max.ms": lambda kind: _with_rules(kind, timestamp_after_max_ms=10),
    "message.timestamp.before.max.ms": lambda kind: _with_rules(kind, timestamp_before_max_ms=10),
    "message.timestamp.type": lambda kind: _with_rules(
        kind, timestamp_type=TimestampType.LOG_APPEND_TIME
    ),
    "min.insync.replicas": lambda kind: dataclasses.replace(kind, in_sync_min=3),
    "segment.bytes": lambda kind: _with_log(kind, segment_bytes=300),
    "segment.index.bytes": lambda kind: _with_log(kind, index_bytes_max=24),
    "segment.ms": lambda kind: _with_log(kind, segment_ms=50),
}
"""Changes of a topic after which the next requests to it are different, or not ordinary."""


def _with_log(kind: Kind, rules: Mapping[str, Any] = MappingProxyType({}), **log: Any) -> Kind:
    return _with_rules(dataclasses.replace(kind, log=dataclasses.replace(kind.log, **log)), **rules)


def _with_rules(kind: Kind, **rules: Any) -> Kind:
    return dataclasses.replace(kind, rules=dataclasses.replace(kind.rules, **rules))


REPLICA_EVENTS: Final = ("replicate", "replicate some", "shrink", "grow", "resign")

EVENTS: Final = (
    *(*REPLICA_EVENTS, "time out") * 3,
    *("delete records",) * 2,
    *SETTINGS,
)
"""What happens between requests: to replicas, to the log start, or to the settings of a topic."""

TIMEOUT_MS: Final = 1000

IDS: Final = {name: Uuid(name.encode().ljust(16)[:16]) for name in KINDS}
_NAMES: Final = tuple(KINDS)
_ACKS: Final = (*(1, -1) * 16, 0, 2)


class World:
    """The partitions of a broker, and its handler of Produce."""

    def __init__(self, clock: ManualClock, fast_path: Any = None) -> None:
        self.clock = clock
        self.disk = SimulatedDisk()
        self.counts = ApiCounts()
        self.served = 0  # by the fast path
        self.served_replicated = 0  # those of them that waited for replicas
        self.has_pending_acks = False  # of the connection, whose part this plays
        self.listener = "PLAINTEXT"  # of the connection
        self.closes = 0
        self.woken: list[int] = []
        self._fast_path_class = fast_path
        self._conversation = ServerConversation()
        self._kinds = dict(KINDS)
        self._changed = ""  # a topic whose settings are not those of KINDS
        self._changes = 0  # of settings
        self._flushed: list[Partition] = []  # with flush.messages=1
        self._epoch = int(EPOCH)  # of partitions with several replicas
        self._version = 0
        self._pending: list[tuple[Request | None, PendingAck]] = []

    async def open(self) -> "World":
        clock = self.clock
        self.logs = await opened(self.disk, clock, offline=self._offline)
        topics = {
            name: Topic(
                name,
                IDS[name],
                (PartitionState((BrokerId(1),), BrokerId(1), EPOCH, (BrokerId(1),)),)
                * (kind.partitions + 1),  # the last one is led by another broker
            )
            for name, kind in KINDS.items()
        }
        image = ClusterImage("c").with_topics(topics.values())
        metadata_cache = MetadataCache(image)
        self.manager = ReplicaManager(self.logs, metadata_cache)
        for name, kind in KINDS.items():
            await self.create(name, IDS[name], kind)
        watched = self.manager.partitions[TopicPartition("plain", PartitionIndex(1))]
        watched.waiting[cast("DelayedFetch", _Waiter(self.woken.append))] = None
        made = self._fast_path_class or ProduceFastPath
        self.fast_path = made(
            partitions=self.manager.partitions,
            metadata_cache=metadata_cache,
            clock=clock,
            counts=self.counts,
        )
        self.handler = ProduceHandler(
            clock=clock,
            metadata_cache=metadata_cache,
            replica_manager=self.manager,
            scheduler=CooperativeScheduler(clock, Shutdown()),
            counts=self.counts,
            fast_path=self.fast_path,
        )
        return self

    async def create(self, name: str, topic_id: Uuid, kind: Kind) -> None:
        """Create the partitions of a topic and lead them."""
        self._kinds[name] = kind
        for index in range(kind.partitions):
            place = TopicPartition(name, PartitionIndex(index))
            hosted = await self.logs.create(place, topic_id, kind.log)
            hosted.log.begin_epoch(EPOCH)
            kind.prepare(self._lead(hosted, kind))

    def _lead(self, hosted: HostedLog, kind: Kind) -> Partition:
        epoch = LeaderEpoch(self._epoch)
        topic_id = hosted.topic_id
        assert topic_id is not None
        led = self.manager.partitions[hosted.partition] = Partition(
            self.logs,
            hosted,
            topic_id,
            epoch,
            kind.rules,
            kind.in_sync_min,
            state=kind.state(epoch, self._version),
            node_id=BrokerId(1),
            clock=self.clock,
        )
        if kind.log.flush_messages == 1:
            self._flushed.append(led)
        return led

    def _replicated(self) -> Iterator[tuple[Partition, Kind]]:
        for place, led in [*self.manager.partitions.items()]:
            if led.in_sync is not None:
                yield led, self._kinds[place.topic]

    def happen(self, event: str) -> list[object]:
        """Let one of EVENTS happen; return the responses that it completed.

        The caller lets the time of a "time out" pass, because all worlds have the same time.
        """
        self._version += 1
        if event == "resign":
            self._epoch += 1
        elif event == "delete records":
            self._delete_records()
        elif event in SETTINGS:
            self._changes += 1
            if self._changed:
                self.set(self._changed, KINDS[self._changed])
            self._changed = ORDINARY[self._changes % len(ORDINARY)]
            self.set(self._changed, SETTINGS[event](KINDS[self._changed]))
        for led, kind in self._replicated() if event in REPLICA_EVENTS else ():
            if event in ("replicate", "replicate some"):
                self._replicate(led, all_of_it=event == "replicate")
            elif event in ("shrink", "grow"):
                state = kind.state(self._epoch, self._version)
                isr = (BrokerId(1),) if event == "shrink" else state.in_sync
                led.update(replace(state, in_sync=isr))
            elif event == "resign":
                other = BrokerId(2 + led.name.partition % 2)
                led.resign(replace(kind.state(self._epoch), leader=other))
                if led.log.state.failure is None:
                    led.log.begin_epoch(LeaderEpoch(self._epoch))
                    self._lead(self.logs[led.name], kind)
        completed: list[object] = []
        for pending in [*self._pending]:
            request, ack = pending
            if ack.is_complete:
                self._pending.remove(pending)
                completed.append(_sent(request, ack.take()))
        return completed

    def set(self, name: str, kind: Kind) -> None:
        """Change the settings of a topic, as ReplicaRoles does after AlterConfigs."""
        self._kinds[name] = kind
        changed = [led for place, led in self.manager.partitions.items() if place.topic == name]
        for led in changed:
            led.log.config = kind.log
            led.rules = kind.rules
            led.set_in_sync_min(kind.in_sync_min)
        self._flushed = changed if kind.log.flush_messages == 1 else []

    def _delete_records(self) -> None:
        """Delete the first half of the records, as DeleteRecords does."""
        for place, led in self.manager.partitions.items():
            log = led.log
            if place.topic in ORDINARY and log.state.failure is None:
                log.advance_log_start(Offset((log.log_start_offset + led.high_watermark) // 2))

    def _replicate(self, led: Partition, *, all_of_it: bool) -> None:
        end = led.log.log_end_offset
        middle = Offset((led.high_watermark + end) // 2)
        for broker_id in (2, 3):
            offset = end if all_of_it or broker_id == 2 else max(middle, led.log.log_start_offset)
            led.follower_fetched(
                BrokerId(broker_id),
                BrokerEpoch(1),
                offset,
                led.log.log_start_offset,
                self.clock.elapsed_s(),
            )

    def _offline(self, directory: Any, partitions: Any) -> None:
        for partition in partitions:
            self.manager.partitions.pop(partition, None)

    def close(self) -> None:
        self.closes += 1

    async def serve(self, frame: bytes) -> object:
        """Serve a request; return the response, or the error that closes the connection.

        None for a response that waits for replicas: `happen` returns it later.
        """
        try:
            return await self._serve(memoryview(frame))
        except OttlaError as error:
            return repr(error)
        except AssertionError:
            return "an assertion of the log"
        finally:
            if self._flushed:
                await self.end_flushes()

    async def end_flushes(self) -> None:
        """Wait until flush.messages=1 delays no high watermark, so that worlds do not drift."""
        while any(led._flush is not None for led in self._flushed):
            await asyncio.sleep(0)

    async def _serve(self, view: memoryview) -> object:
        if self._fast_path_class is not None:
            response = self.fast_path.serve(view)
            if response is not None:
                self.served += 1
                if isinstance(response, PendingAck):
                    self.served_replicated += 1
                    self._pending.append((None, response))
                    return None
                return response
        return await self._dispatch(view)

    async def _dispatch(self, frame: memoryview) -> object:
        conversation = self._conversation
        try:
            request = conversation.request(frame)
        except ProtocolViolation as violation:
            self._conversation = ServerConversation()
            return repr(violation)
        connection: Any = self
        try:
            response = self.handler.handle(request, connection)
            if isinstance(response, DeferredResponse):
                ack, response = response.ack, await response.response
                response = ack or response
            if isinstance(response, PendingAck):
                while not response.is_complete and not self._is_replicating(response):
                    await asyncio.sleep(0)
                if not response.is_complete:
                    self._pending.append((request, response))
                    return None
                response = response.take()
        except BaseException:
            self._conversation = ServerConversation()
            raise
        return _sent(request, response)

    def _is_replicating(self, ack: PendingAck) -> bool:
        """Whether an acknowledgement waits for replicas, and not for a flush."""
        assert isinstance(ack.on_cancel, MethodType)
        delayed: Any = ack.on_cancel.__self__
        return all(wait.is_limited for wait in delayed._waits)

    def state(self) -> dict[object, object]:
        """Everything that an append may change, except the files."""
        found: dict[object, object] = {
            place: _state_of(partition) for place, partition in self.manager.partitions.items()
        }
        found["errors"] = dict(self.counts.errors)
        found["closes"] = self.closes
        found["woken"] = tuple(self.woken)
        return found

    def files(self) -> dict[str, bytes]:
        """The content of every file, and what of it is on the device."""
        return {
            path: bytes(content.data) + b" device " + content.synced
            for path, content in self.disk._files.items()
        }


def _sent(request: Request | None, response: Response | None) -> bytes:
    """The bytes of a response; those of the fast path are encoded."""
    if response is None:
        return b""
    if request is not None:
        return b"".join(_response_frame(request, response))
    assert not isinstance(response, Message)
    return b"".join(response)


class _Waiter:
    def __init__(self, note: Callable[[int], None]) -> None:
        self.note = note

    def wake(self) -> None:
        """Do nothing."""


def _state_of(partition: Partition) -> tuple[object, ...]:
    state = partition.log.state
    segment = state.segments.active
    return (
        state.log_start_offset,
        state.log_end_offset,
        state.recovery_point,
        repr(state.failure),
        partition.high_watermark,
        partition.in_sync_count,
        len(partition.commit_waiters),
        partition._uncommitted_bytes,
        partition.traffic.bytes_in,
        partition.traffic.records_in,
        len(list(state.segments)),
        segment.base_offset,
        segment.size,
        segment.first_timestamp,
        segment.latest,
        segment._bytes_since_entry,
        tuple(segment._recent),
        segment._recent_after,
        segment.offset_index.to_bytes(),
        segment.offset_index.last,
        segment.time_index.to_bytes(),
        segment.time_index.last,
        tuple(
            (
                producer.producer_id,
                producer.epoch,
                tuple(producer.batches),
                producer.next_sequence,
                producer.last_timestamp,
                producer.transaction_first_offset,
            )
            for producer in state.producers
        ),
    )


def difference(one: World, other: World) -> str | None:
    """What differs between the state of two worlds; None if nothing does."""
    left, right = one.state(), other.state()
    if left == right:
        return None
    return "; ".join(
        f"{key}: {left.get(key)} != {right.get(key)}"
        for key in left | right
        if left.get(key) != right.get(key)
    )


# Requests.


VERSIONS: Final = (*(13, 12) * 8, *(11, 10) * 3, *(9,) * 4, 8, 7, 6, 5, 4, 3)
"""The versions of requests, those of the fast path more often."""

T = TypeVar("T")


class FastRandom(Random):
    """Random numbers whose choices take a quarter of the time: a request needs dozens."""

    def choice(self, seq: "SupportsLenAndGetItem[T]") -> T:
        """Choose one of a sequence."""
        return seq[int(self.random() * len(seq))]

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        """Choose a number from a range."""
        assert step == 1
        first, count = (0, start) if stop is None else (start, stop - start)
        assert count > 0
        return first + int(self.random() * count)


@dataclass(slots=True)
class Requests:
    """Generates Produce requests from a seed; some are as clients send them, others are not."""

    random: Random
    clock: ManualClock
    _bodies: list[bytes] = field(default_factory=list[bytes])

    def __post_init__(self) -> None:
        self._bodies = [self._body() for _ in range(60)]

    def _body(self) -> bytes:
        random = self.random
        codec = random.choice((Compression.NONE,) * 12 + tuple(Compression))
        builder = BatchBuilder(compression=codec)
        keyed = random.random() < 0.5
        base = self.clock.ms + random.choice((0, 0, 0, 5, -30, 60, -200))
        for number in range(random.choice((1, 1, 2, 3, 8))):
            timestamp = random.choice((base + number, base + number, base - number))
            key = b"k%d" % number if keyed else None
            builder.append(timestamp, key, random.randbytes(random.randrange(60)))
        if random.random() < 0.02:
            builder.append(-1, None, None)
        return builder.build()

    def request(self, world: World) -> bytes:
        """The next request, for the current state of a world."""
        random = self.random
        version = random.choice(VERSIONS)
        client_id = random.choice(("client", "producer-1", None, ""))
        acks = random.choice(_ACKS)
        if random.random() < 0.8:
            names = [random.choice(ORDINARY)]
        else:
            names = random.sample(_NAMES, random.choice((1, 1, 1, 2, 3)))
        topics = [self._topic(world, name, version) for name in names]
        message = ProduceRequest(
            transactional_id="t" if random.random() < 0.02 else None,
            acks=acks,
            timeout_ms=TIMEOUT_MS,
            topic_data=topics,
        )
        header = RequestHeader(0, version, random.randrange(1 << 31), client_id)
        body = b"".join(message.buffers(version))
        frame = write_request_header(header, 2 if version >= 9 else 1) + body
        if random.random() < 0.08:
            frame = self._mutant(frame)
        return frame

    def ordinary(self) -> Iterator[bytes]:
        """A request of each version without anything unusual."""
        yield _single(9, None, _one_record())
        yield _single(12, "c", _one_record())
        yield _single(13, "client", _one_record())

    def invalid(self) -> Iterator[bytes]:
        """Requests with records that the broker must reject, and with headers that fit them.

        And requests that end after a null or empty array of topics or partitions.
        """
        for version in (9, 12, 13):
            whole = _single(version, None, _one_record())
            topics = len(write_request_header(RequestHeader(0, version, 5, None), 2)) + 7
            partitions = topics + 1 + (16 if version >= 13 else len(b"\6plain"))
            assert whole[topics] == whole[partitions] == 2, "each array has one element"
            for end in (topics, partitions):
                for length in (0, 1):
                    for tags in range(3):
                        yield whole[:end] + bytes([length]) + bytes(tags)
        for place in (17, *range(HEADER_SIZE, HEADER_SIZE + 6)):  # the CRC, the fields of a record
            for timestamp in (START_MS, -1, -(2**63)):
                batch = _one_record()
                pack_into(">q", batch, 35, timestamp)
                batch[place] ^= 1
                if place != 17:
                    _seal(batch)
                yield _single(12, None, batch)

    def _mutant(self, frame: bytes) -> bytes:
        random = self.random
        data = bytearray(frame)
        choice = random.random()
        # Half of the changes hit the headers of the request and of the first batch.
        at = random.randrange(min(len(data), 130)) if choice < 0.5 else random.randrange(len(data))
        if choice < 0.9:
            data[at] = random.choice(
                (0, 1, 2, 5, 127, 128, 255, data[at] ^ 1 << random.randrange(8))
            )
        elif choice < 0.95:
            del data[at:]
        else:
            data[at:at] = random.randbytes(random.randrange(1, 9))
        return bytes(data)

    def _topic(self, world: World, name: str, version: int) -> TopicProduceData:
        random = self.random
        count = KINDS[name].partitions
        indexes: Sequence[int] = random.sample(range(count), random.choice((1, 1, count)))
        if random.random() < 0.04:
            indexes = [*indexes, random.choice((0, count, count + 1, -1))]
        given = name if random.random() > 0.02 else "unknown"
        topic_id = IDS[name] if random.random() > 0.02 else Uuid(b"x" * 16)
        return TopicProduceData(
            name="" if version >= 13 else given,
            topic_id=topic_id if version >= 13 else Uuid(bytes(16)),
            partition_data=[
                PartitionProduceData(index=index, records=self._records(world, name, index))
                for index in indexes
            ],
        )

    def _records(self, world: World, name: str, index: int) -> bytes | None:
        random = self.random
        if random.random() < 0.01:
            return random.choice((None, b"", b"x" * 70))
        batch = bytearray(random.choice(self._bodies))
        if random.random() < 0.01:
            return _empty_batch()
        self._set_producer(world, name, index, batch)
        self._set_time(batch)
        choice = random.random()
        if choice < 0.06:
            self._set_field(batch)
        elif choice < 0.09:  # a field of the first record, or any byte of the records
            end = random.choice((HEADER_SIZE + 6, len(batch)))
            batch[random.randrange(HEADER_SIZE, end)] ^= 1 << random.randrange(8)
        _seal(batch)
        if random.random() < 0.02:
            batch[17] ^= 1  # a wrong CRC
        if random.random() < 0.02:
            return bytes(batch) + bytes(random.choice(self._bodies))
        return bytes(batch)

    def _set_producer(self, world: World, name: str, index: int, batch: bytearray) -> None:
        random = self.random
        if random.random() < 0.4:
            return  # a producer without an id
        producer_id = random.choice(PRODUCERS)
        place = TopicPartition(name, PartitionIndex(index))
        led = world.manager.partitions.get(place)
        known = None if led is None else led.log.producers.get(ProducerId(producer_id))
        epoch, sequence = 0, 0
        if known is not None:
            epoch, sequence = known.epoch, known.next_sequence
            choice = random.random()
            if choice < 0.05 and known.batches:
                sequence = random.choice(known.batches)[0]
            elif choice < 0.08:
                sequence += random.choice((-1, 1))
            elif choice < 0.1:
                epoch, sequence = epoch + random.choice((-1, 1)), 0
            elif choice < 0.11:
                sequence = (1 << 31) - 1 - random.randrange(4)
        pack_into(">qhi", batch, 43, producer_id, epoch, _int32(sequence))

    def _set_time(self, batch: bytearray) -> None:
        """Move the timestamps, which are relative to the first one, to the current time."""
        if self.random.random() < 0.3:
            return
        base, largest = unpack_from(">qq", batch, 27)
        passed = self.clock.ms - START_MS
        pack_into(">qq", batch, 27, base + passed, max(largest + passed, -1))

    def _set_field(self, batch: bytearray) -> None:
        """Change a field of the header, with a correct CRC."""
        random = self.random
        place, form = random.choice(
            (
                (0, ">q"),  # base offset
                (8, ">i"),  # length
                (16, ">b"),  # magic
                (21, ">h"),  # attributes
                (21, ">h"),
                (21, ">h"),
                (23, ">i"),  # last offset delta
                (27, ">q"),  # base timestamp
                (35, ">q"),  # max timestamp
                (43, ">q"),  # producer id
                (51, ">h"),  # producer epoch
                (53, ">i"),  # base sequence
                (57, ">i"),  # record count
            )
        )
        values = [-1, 0, 1, 2, 3, 4, 5, 8, 16, 32, 64, 127, -128]
        if form == ">q":
            values += [-(2**63)] * 5
        pack_into(form, batch, place, random.choice(values))


def _one_record() -> bytearray:
    builder = BatchBuilder()
    builder.append(START_MS, None, b"v")
    return bytearray(builder.build())


def _single(version: int, client_id: str | None, batch: bytearray) -> bytes:
    """A request with one batch."""
    return produce_frame(bytes(batch), version=version, client_id=client_id)


def produce_frame(
    batch: bytes,
    partitions: Mapping[str, int] = MappingProxyType({"plain": 1}),
    *,
    acks: int = -1,
    timeout_ms: int = TIMEOUT_MS,
    version: int = 12,
    client_id: str | None = None,
) -> bytes:
    """A request with the same batch for a number of partitions of each topic."""
    topics = [
        TopicProduceData(
            name="" if version >= 13 else name,
            topic_id=IDS[name] if version >= 13 else Uuid(bytes(16)),
            partition_data=[
                PartitionProduceData(index=index, records=batch) for index in range(count)
            ],
        )
        for name, count in partitions.items()
    ]
    message = ProduceRequest(
        transactional_id=None, acks=acks, timeout_ms=timeout_ms, topic_data=topics
    )
    header = RequestHeader(0, version, 5, client_id)
    return write_request_header(header, 2) + b"".join(message.buffers(version))


def _empty_batch() -> bytes:
    """A batch without records, which no client may send."""
    batch = bytearray(HEADER_SIZE)
    pack_into(">qiib", batch, 0, 0, HEADER_SIZE - LENGTH_END, -1, 2)
    pack_into(">hiqqqhii", batch, 21, 0, -1, 0, -1, -1, -1, -1, 0)
    _seal(batch)
    return bytes(batch)


def variants(frame: bytes) -> Iterator[bytes]:
    """A request with each byte changed, cut off after each byte, and with bytes after it."""
    for at, byte in enumerate(frame):
        for value in {0, 1, 2, 14, 127, 128, 255, byte ^ 1, byte ^ 128} - {byte}:
            yield frame[:at] + bytes([value]) + frame[at + 1 :]
        yield frame[:at]
    yield frame + b"\0"
    yield frame + b"\1"


def _int32(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def _seal(batch: bytearray) -> None:
    pack_into(">I", batch, 17, crc32c(bytes(batch[CRC_END:])))

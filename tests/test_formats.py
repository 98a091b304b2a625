"""The bytes on the pages of docs/formats/ are the bytes that the code writes."""

import json
import re
from pathlib import Path

from ottla.clock import SystemClock
from ottla.cluster.image import Address, Broker
from ottla.cluster.registration import (
    NO_BROKER_EPOCH,
    Registration,
    format_counter,
    format_handled_restarts,
)
from ottla.cluster.znodes import StateNode, TopicNode
from ottla.coordination.embedded import EmbeddedStore
from ottla.coordination.operations import Create, Delete, SetData
from ottla.ids import (
    BrokerEpoch,
    BrokerId,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    Position,
    ProducerId,
    TopicPartition,
    Uuid,
)
from ottla.log.checkpoints import (
    MetaProperties,
    format_clean_shutdown,
    format_meta_properties,
    format_offsets,
    format_partition_metadata,
)
from ottla.log.damage import Damage, format_damage
from ottla.log.disk import read_whole
from ottla.log.epochs import EpochHistory
from ottla.log.producer_snapshot import write_snapshot
from ottla.log.producer_state_manager import ProducerStateManager
from ottla.log.segment.index import OffsetIndex, TimeIndex
from ottla.log.segment.segment import Segment
from ottla.log.segment.txn_index import AbortedTransaction, TransactionIndex
from ottla.protocol.conversation import ClientConversation, ServerConversation
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)
from ottla.records import Batch, BatchBuilder
from ottla.testing.disk import SimulatedDisk, finish

FORMATS = Path(__file__).parents[1] / "docs" / "formats"


def worked_bytes(page: str) -> list[bytes]:
    blocks = re.findall(r"^```\n(.*?)^```", (FORMATS / page).read_text(), re.DOTALL | re.MULTILINE)
    return [bytes.fromhex(block) for block in blocks]


def test_message_bytes_equal_the_page() -> None:
    client, server = ClientConversation("tour"), ServerConversation()
    request = MetadataRequest(topics=[MetadataRequestTopic(name="events")])
    answer = MetadataResponse(
        throttle_time_ms=0,
        brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=9092)],
        topics=[],
    )
    old = b"".join(client.send(request, 1)[1])
    new = b"".join(client.send(request, 12)[1])
    (received,) = server.receive(new)
    assert worked_bytes("messages.md") == [old, new, b"".join(server.send(received, answer))]


def test_coordination_journal_bytes_equal_the_page() -> None:
    disk, path = SimulatedDisk(), "/data/coordination"
    store = EmbeddedStore.open(disk, path, SystemClock())
    session = finish(store.connect(lambda state: None))
    finish(session.multi([Create("/ids"), Create("/ids/1", b"{}", ephemeral=True)]))
    finish(session.multi([SetData("/ids", b"x"), Delete("/ids/1")]))
    finish(store.close())
    assert b"".join(worked_bytes("coordination-journal.md")) == read_whole(disk, path)


def test_coordination_nodes_equal_the_page() -> None:
    text = (FORMATS / "coordination-nodes.md").read_text()
    blocks = re.findall(r"^```json\n(.*?)\n```", text, re.DOTALL | re.MULTILINE)
    one, two, three = (BrokerId(number) for number in (1, 2, 3))
    some_id = Uuid(bytes(range(16)))
    addresses = {"PLAINTEXT": Address("b1.example", 9092)}
    registration = Registration(
        Broker(one, NO_BROKER_EPOCH, addresses, "zone-a", "machine-7"),
        some_id,
        {"PLAINTEXT": "PLAINTEXT"},
        (Uuid(b"\r" * 16),),
        BrokerEpoch(41),
        1_700_000_000_000,
        partitions_max=20_000,
    )
    nodes = [
        registration.format(),
        format_counter(None, registration),
        format_handled_restarts({one: BrokerEpoch(41), two: BrokerEpoch(17)}),
        TopicNode(some_id, ((one, two), (three, two, one)), {1: (three,)}, {1: (one,)}).format(),
        StateNode(two, LeaderEpoch(8), (two,), 3, (one,)).format(),
    ]
    assert [json.loads(block) for block in blocks] == [json.loads(node) for node in nodes]


def worked_texts(page: str) -> list[str]:
    text = (FORMATS / page).read_text()
    return re.findall(r"^```text\n(.*?)\n```", text, re.DOTALL | re.MULTILINE)


def test_segment_index_bytes_equal_the_page() -> None:
    base = Offset(5000)
    offsets, times, aborted = OffsetIndex(base), TimeIndex(base), TransactionIndex(base)
    offsets.append(Offset(5041), Position(4194))
    offsets.append(Offset(5083), Position(8388))
    times.append(1_700_000_000_500, Offset(5041))
    times.append(1_700_000_001_000, Offset(5080))
    aborted.append(
        AbortedTransaction(ProducerId(9), Offset(5010), Offset(5020), Offset(5021)),
    )
    pages = worked_bytes("segment-indexes.md")
    assert pages == [offsets.to_bytes(), times.to_bytes(), aborted.to_bytes()]


def producers_after(*base_offsets: int) -> ProducerStateManager:
    """The state of a producer that wrote batches of two records in a transaction."""
    producers = ProducerStateManager()
    for number, base_offset in enumerate(base_offsets, start=3 - len(base_offsets)):
        builder = BatchBuilder()
        builder.append(1_700_000_000_000, b"k", b"v")
        builder.append(1_700_000_000_001, b"k", b"v")
        batch = builder.build(
            base_offset=base_offset,
            producer_id=9,
            producer_epoch=1,
            base_sequence=2 * number,
            transactional=True,
        )
        producers.replay(Batch(batch))
    return producers


def test_producer_snapshot_bytes_equal_the_page() -> None:
    assert worked_bytes("producer-snapshot.md") == [
        write_snapshot(producers_after(5030)),
        write_snapshot(producers_after(5028, 5030)),
    ]


def damaged_segments() -> list[Segment]:
    disk = SimulatedDisk()
    disk.make_directory("/t")
    first, second = (Segment.create(disk, "/t", Offset(base), 0) for base in (5000, 6000))
    first.damaged = (Damage(Offset(5041), Offset(5062), position=4194, size=1048),)
    second.damaged = (Damage(Offset(6083), Offset(6100), position=8388, size=0),)
    return [first, second]


def test_checkpoint_bytes_equal_the_page() -> None:
    uuid = Uuid(bytes(range(16)))
    epochs = EpochHistory()
    epochs.assign(LeaderEpoch(0), Offset(0))
    epochs.assign(LeaderEpoch(3), Offset(5030))
    partitions = [TopicPartition("events", PartitionIndex(number)) for number in (0, 1)]
    meta = MetaProperties("kmTz0oq_QEuTJkbO1bVnOg", BrokerId(1), uuid)
    assert worked_texts("checkpoints.md") == [
        format_offsets(dict(zip(partitions, (Offset(5083), Offset(17)), strict=True))).rstrip("\n"),
        epochs.format().rstrip("\n"),
        format_damage(damaged_segments()).rstrip("\n"),
        format_partition_metadata(uuid),
        format_meta_properties(meta).rstrip("\n"),
        format_clean_shutdown(BrokerEpoch(21)),
    ]

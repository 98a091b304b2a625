"""The invariants notice what falls in the committed batches of a log."""

from ottla.coordination.tree import Tree
from ottla.groups.offsets import CommittedOffset
from ottla.groups.records import offset_record, offset_tombstone
from ottla.ids import PartitionIndex, TopicPartition, Uuid
from ottla.protocol.offsets_topic import TYPES, GroupMetadataKey, GroupMetadataValue
from ottla.records.builder import BatchBuilder
from ottla.testing.invariants import Invariants

KEY = (Uuid(bytes(range(16))), 0)
PLACE = TopicPartition("plain", PartitionIndex(0))
GROUPS = TopicPartition("__consumer_offsets", PartitionIndex(0))


class Checked:
    """Invariants without a cluster, and what they have found wrong."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.checks = Invariants([], Tree(), self.wrong.append, lambda kind, text: None)

    def produce(self, producer_id: int, epoch: int) -> None:
        builder = BatchBuilder()
        builder.append(0, b"k", b"v")
        data = builder.build(producer_id=producer_id, producer_epoch=epoch, base_sequence=0)
        self.checks.check_rising(PLACE, KEY, data)

    def group(self, key: bytes, value: bytes | None) -> None:
        builder = BatchBuilder()
        builder.append(0, key, value)
        self.checks.check_rising(GROUPS, KEY, builder.build())

    def generation(self, number: int) -> None:
        value = GroupMetadataValue(
            protocol_type="consumer", generation=number, protocol="range", leader="m", members=[]
        )
        self.group(
            TYPES.encode_key(GroupMetadataKey(group="members")), TYPES.encode_value(value, 3)
        )

    def commit(self, offset: int) -> None:
        record = offset_record("members", PLACE, CommittedOffset(offset, 0, "", 0))
        self.group(record.key, record.value)

    def delete_commit(self) -> None:
        record = offset_tombstone("members", PLACE)
        self.group(record.key, record.value)


def test_producer_epoch_that_falls_is_noticed() -> None:
    checked = Checked()
    for producer_id, epoch in ((7, 0), (7, 2), (8, 1), (7, 2)):
        checked.produce(producer_id, epoch)
    assert checked.wrong == []
    checked.produce(7, 1)
    assert checked.wrong == ["plain-0: the producer epoch of 7 fell from 2 to 1"]


def test_generation_that_falls_is_noticed() -> None:
    checked = Checked()
    for number in (1, 1, 3):
        checked.generation(number)
    assert checked.wrong == []
    checked.generation(2)
    assert [one for one in checked.wrong if "fell from 3 to 2" in one] == checked.wrong != []


def test_committed_offset_that_falls_is_counted() -> None:
    checked = Checked()
    counts, fell = checked.checks.counts, "committed offsets that fell"
    for offset in (5, 5, 9):
        checked.commit(offset)
    checked.delete_commit()
    checked.commit(3)
    assert counts[fell] == 0
    checked.commit(2)
    assert counts[fell] == 1
    assert checked.wrong == []

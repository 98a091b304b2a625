"""Requests about records: produce, fetch, list offsets, delete; and what is rejected."""

from collections.abc import Sequence

from compat.response_comparison import Asker
from compat.topic_scenarios import STRANGER
from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.records.builder import BatchBuilder
from ottla.records.compression import Compression

TIME_MS = 1_700_000_000_000  # constant, so that bytes and timestamps can be recorded
ALL, ONE = -1, 1
STRANGE_PRODUCER = 100_000  # added to an id that the broker assigned


def kept_topic(ask: Asker, name: str, partitions: int = 1, **configs: str) -> Uuid:
    """A new topic without retention."""
    return ask.topic(name, partitions, retention_ms="-1", **configs)


def batch(
    *values: bytes,
    key: bytes | None = None,
    time_ms: int = TIME_MS,
    compression: Compression = Compression.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> bytes:
    """A batch of records one millisecond apart; a producer has id, epoch and first sequence."""
    builder = BatchBuilder(compression=compression)
    for number, value in enumerate(values):
        assert builder.append(time_ms + number, key, value, [("h", b"1")])
    producer_id, epoch, sequence = producer
    return builder.build(
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def produce(
    name: str,
    records: bytes | None,
    index: int = 0,
    *,
    topic_id: Uuid = ZERO_UUID,
    acks: int = ALL,
    transactional_id: str | None = None,
) -> ProduceRequest:
    data = PartitionProduceData(index=index, records=records)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=name, topic_id=topic_id, partition_data=[data])],
    )


def produce_everything(ask: Asker) -> None:
    topic_id = kept_topic(ask, "produced")
    for version in range(3, 14):
        ask(produce("produced", batch(b"1", b"2"), topic_id=topic_id), version)
    for compression in Compression:
        ask(produce("produced", batch(*[b"a" * 100] * 9, compression=compression)), 12)
    for acks in (-2, 2, 100):
        ask(produce("produced", batch(b"1"), acks=acks), 12)
    for version in (3, 7, 8, 9, 12):
        ask(produce("absent", batch(b"1")), version)
        ask(produce("produced", batch(b"1"), 7), version)
        ask(produce("produced", batch(b"1"), -1), version)
    ask(produce("", batch(b"1"), topic_id=STRANGER), 13)
    ask(produce("", batch(b"1"), topic_id=ZERO_UUID), 13)
    ask(produce("", batch(b"1"), 9, topic_id=topic_id), 13)
    ask(ProduceRequest(acks=1, timeout_ms=1, topic_data=[]), 12)
    ask(produce("a/b", batch(b"1")), 12)


def produce_damaged(ask: Asker) -> None:
    kept_topic(ask, "damaged")
    good = batch(b"1", b"2")
    several = [
        good[:-1] + b"?",  # the CRC does not match
        good[:30],
        good[:-1],
        good + good,
        b"",
        good[:16] + b"\x01" + good[17:],  # an older format
        good[:16] + b"\x03" + good[17:],  # a magic that does not exist yet
    ]
    for records in several:
        for version in (7, 8, 12):
            ask(produce("damaged", records), version)


def produce_against_the_rules(ask: Asker) -> None:
    kept_topic(ask, "compacted", cleanup_policy="compact")
    ask(produce("compacted", batch(b"1", b"2")), 12)
    ask(produce("compacted", batch(b"1", key=b"k")), 12)
    kept_topic(ask, "short", max_message_bytes="1000")
    ask(produce("short", batch(b"x" * 2000)), 12)
    kept_topic(
        ask, "timely", message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1"
    )
    ask(produce("timely", batch(b"1", b"2")), 12)
    ask(produce("timely", batch(b"1", time_ms=2**42)), 12)
    ask(produce("timely", batch(b"1", time_ms=-1)), 12)
    kept_topic(ask, "strict", min_insync_replicas="2")
    ask(produce("strict", batch(b"1")), 12)
    ask(produce("strict", batch(b"1"), acks=ONE), 12)
    ask(produce("__consumer_offsets", batch(b"1")), 12)


def idempotent_producer(ask: Asker) -> None:
    kept_topic(ask, "idempotent")
    ask.until(
        lambda answer: answer.error_code == 0,
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
    )
    for version in range(6):
        ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), version)
    given = ask.prepare(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000))
    mine = given.producer_id
    ask.producer_ids |= {mine, mine + STRANGE_PRODUCER}

    def send(epoch: int, sequence: int, count: int = 1) -> None:
        records = batch(*[b"1"] * count, producer=(mine, epoch, sequence))
        ask(produce("idempotent", records), 12)

    send(0, 0)
    send(0, 1, 2)
    send(0, 1, 2)  # a duplicate
    send(0, 0)  # an older duplicate
    send(0, 9)
    send(0, 2)
    send(0, 3)
    send(1, 5)
    send(1, 0)
    send(0, 4)
    send(1, 1)
    for number in range(2, 9):
        send(1, number)
    send(1, 2)
    stranger = batch(b"1", producer=(mine + STRANGE_PRODUCER, 0, 5))
    ask(produce("idempotent", stranger), 12)
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=1000, producer_id=mine, producer_epoch=0
    )
    ask(request, 4)
    request.producer_id = -1
    ask(request, 4)
    empty = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=1000)
    ask(empty, 4)


def producer_without_a_number(ask: Asker) -> None:
    kept_topic(ask, "numbers")
    ask(produce("numbers", batch(b"1", producer=(1, 1, -1))), 12)
    ask(produce("numbers", batch(b"1", producer=(1, -1, 0))), 12)


def fetch(
    topics: Sequence[FetchTopic],
    *,
    max_bytes: int = 2**20,
    session: tuple[int, int] = (0, -1),
    forgotten: Sequence[ForgottenTopic] = (),
    min_bytes: int = 0,
    max_wait_ms: int = 0,
    isolation: int = 0,
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=topics,
        forgotten_topics_data=forgotten,
    )


def wanted(
    name: str,
    offset: int,
    index: int = 0,
    *,
    topic_id: Uuid = ZERO_UUID,
    epoch: int = -1,
    fetched_epoch: int = -1,
    bytes_max: int = 2**20,
) -> FetchTopic:
    partition = FetchPartition(
        partition=index,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=fetched_epoch,
        partition_max_bytes=bytes_max,
    )
    return FetchTopic(topic=name, topic_id=topic_id, partitions=[partition])


def filled(ask: Asker, name: str, partitions: int = 1) -> Uuid:
    """A topic with three batches of two records, a second apart, in each partition."""
    topic_id = kept_topic(ask, name, partitions)
    for index in range(partitions):
        for number in range(3):
            records = batch(b"%d" % number, b"x" * 50, time_ms=TIME_MS + 1000 * number)
            answer = ask.prepare(produce(name, records, index), 12)
            assert answer.responses[0].partition_responses[0].error_code == 0
    return topic_id


def fetch_everything(ask: Asker) -> None:
    topic_id = filled(ask, "fetched")
    for version in range(4, 19):
        ask(fetch([wanted("fetched", 0, topic_id=topic_id)]), version)
    for offset in (1, 2, 5, 6, 7, 100, -1, -2):
        ask(fetch([wanted("fetched", offset)]), 12)
    for limit in (0, 1, 130):
        ask(fetch([wanted("fetched", 0, bytes_max=limit)]), 12)
        ask(fetch([wanted("fetched", 0)], max_bytes=limit), 12)
    for version in (11, 12):
        ask(fetch([wanted("absent", 0)]), version)
        ask(fetch([wanted("fetched", 0, 7)]), version)
        ask(fetch([wanted("fetched", 0, -1)]), version)
        for epoch in (0, 1, 5):
            ask(fetch([wanted("fetched", 0, epoch=epoch)]), version)
    for epoch in (0, 1):
        ask(fetch([wanted("fetched", 3, fetched_epoch=epoch)]), 12)
    for version in (13, 17):
        ask(fetch([wanted("", 0, topic_id=STRANGER)]), version)
        ask(fetch([wanted("", 0)]), version)
        ask(fetch([wanted("", 0, 9, topic_id=topic_id)]), version)
    ask(fetch([wanted("fetched", 0)], isolation=1), 12)
    ask(fetch([wanted("fetched", 6)], max_wait_ms=10, min_bytes=1), 12)
    ask(fetch([]), 12)
    filled(ask, "fetched-also", 3)
    three = [wanted("fetched-also", 0, index) for index in (2, 0, 1)]
    for limit in (1, 2000):
        ask(fetch(three, max_bytes=limit), 12)


def fetch_up_to_the_middle_of_a_batch(ask: Asker) -> None:
    filled(ask, "middle", 3)
    three = [wanted("middle", 0, index) for index in (2, 0, 1)]
    for limit in (200, 300):
        ask(fetch([wanted("middle", 0, bytes_max=limit)]), 12)
        ask(fetch([wanted("middle", 0)], max_bytes=limit), 12)
        ask(fetch(three, max_bytes=limit), 12)


def fetch_less_than_nothing(ask: Asker) -> None:
    filled(ask, "nothing")
    ask(fetch([wanted("nothing", 0, bytes_max=-1)]), 12)
    ask(fetch([wanted("nothing", 0)], max_bytes=-1), 12)


def fetch_sessions(ask: Asker) -> None:
    for version in (12, 13, 17):
        name = f"session-{version}"
        topic_id = filled(ask, name, 2)

        def want(
            offset: int, index: int, name: str = name, topic_id: Uuid = topic_id
        ) -> FetchTopic:
            return wanted(name, offset, index, topic_id=topic_id)

        first = ask.prepare(fetch([want(0, 0), want(0, 1)], session=(0, 0)), version)
        assert first.session_id > 0
        ask.means(first.session_id, f"the session of version {version}")
        mine = first.session_id
        ask(fetch([], session=(mine, 1)), version)
        ask(fetch([want(6, 0), want(6, 1)], session=(mine, 2)), version)
        ask(fetch([], session=(mine, 3)), version)
        ask.prepare(produce(name, batch(b"more"), 1), 12)
        ask(fetch([], session=(mine, 4)), version)
        ask(fetch([want(7, 1)], session=(mine, 5)), version)
        ask(fetch([], session=(mine, 9)), version)
        ask(fetch([], session=(mine, 5)), version)
        forgotten = ForgottenTopic(topic=name, topic_id=topic_id, partitions=[1])
        ask(fetch([], session=(mine, 6), forgotten=[forgotten]), version)
        ask.prepare(produce(name, batch(b"more"), 1), 12)
        ask(fetch([], session=(mine, 7)), version)
        ask(fetch([want(100, 0)], session=(mine, 8)), version)
        ask(fetch([], session=(mine, 9)), version)
        ask(fetch([want(0, 0)], session=(mine, -1)), version)
        ask(fetch([], session=(mine, 10)), version)
        ask(fetch([], session=(12345, 1)), version)
        ask(fetch([want(0, 0)], session=(0, 5)), version)


def list_offsets(ask: Asker) -> None:
    filled(ask, "listed")
    kept_topic(ask, "listed-empty")

    def listed(
        name: str, time_ms: int, index: int = 0, epoch: int = -1, isolation: int = 0
    ) -> ListOffsetsRequest:
        partition = ListOffsetsPartition(
            partition_index=index, current_leader_epoch=epoch, timestamp=time_ms
        )
        topic = ListOffsetsTopic(name=name, partitions=[partition])
        return ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation, topics=[topic], timeout_ms=1000
        )

    for name in ("listed", "listed-empty"):
        for time_ms in range(-7, 0):
            ask.every(listed(name, time_ms))
            ask(listed(name, time_ms, isolation=1), 8)
        for after_ms in (-1, 0, 1, 2, 999, 1000, 1001, 2001, 2002, 10_000):
            ask(listed(name, TIME_MS + after_ms), 8)
        ask(listed(name, 0), 8)
        for version in (7, 10):
            ask(listed("absent", -1), version)
            ask(listed(name, -1, 7), version)
            ask(listed(name, -1, -1), version)
            for epoch in (0, 1, 5):
                ask(listed(name, -1, epoch=epoch), version)
    twice = listed("listed", -1)
    twice.topics = [*twice.topics, *twice.topics]
    ask(twice, 8)
    ask(ListOffsetsRequest(replica_id=-1, topics=[]), 8)


def leader_epochs(ask: Asker) -> None:
    filled(ask, "epochs")
    kept_topic(ask, "epochs-empty")

    def end(name: str, epoch: int, index: int = 0, current: int = -1, version: int = 4) -> None:
        partition = OffsetForLeaderPartition(
            partition=index, current_leader_epoch=current, leader_epoch=epoch
        )
        topic = OffsetForLeaderTopic(topic=name, partitions=[partition])
        ask(OffsetForLeaderEpochRequest(topics=[topic]), version)

    for name in ("epochs", "epochs-empty"):
        for version in range(2, 5):
            end(name, 0, version=version)
        for epoch in (-1, 1, 5):
            end(name, epoch)
        for current in (0, 1, 5):
            end(name, 0, current=current)
        end(name, 0, 7)
    end("absent", 0)


def pretended_replica(ask: Asker) -> None:
    """A client with the replica id of the leader, and of a broker that does not exist."""
    filled(ask, "pretended")
    for replica in (1, 5):
        request = fetch([wanted("pretended", 0)])
        request.replica_id = replica
        ask(request, 12)
        partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
        listed = ListOffsetsTopic(name="pretended", partitions=[partition])
        ask(ListOffsetsRequest(replica_id=replica, topics=[listed]), 8)
        epoch = OffsetForLeaderPartition(partition=0, leader_epoch=0)
        topic = OffsetForLeaderTopic(topic="pretended", partitions=[epoch])
        ask(OffsetForLeaderEpochRequest(replica_id=replica, topics=[topic]), 4)


def delete_records(ask: Asker) -> None:
    filled(ask, "cut")

    def cut(name: str, offset: int, index: int = 0, version: int = 2) -> None:
        partition = DeleteRecordsPartition(partition_index=index, offset=offset)
        topic = DeleteRecordsTopic(name=name, partitions=[partition])
        ask(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), version)

    for version in range(3):
        cut("cut", 1 + version, version=version)
    cut("cut", 1)
    cut("cut", 7)
    cut("cut", -2)
    cut("cut", 2**40)
    ask(fetch([wanted("cut", 0)]), 12)
    ask(fetch([wanted("cut", 3)]), 12)
    cut("cut", -1)
    cut("cut", -1)
    cut("absent", 0)
    cut("cut", 0, 7)
    cut("__consumer_offsets", 0)
    kept_topic(ask, "kept", cleanup_policy="compact")
    cut("kept", 0)


SCENARIOS = (
    produce_everything,
    produce_damaged,
    produce_against_the_rules,
    idempotent_producer,
    producer_without_a_number,
    fetch_everything,
    fetch_up_to_the_middle_of_a_batch,
    fetch_less_than_nothing,
    fetch_sessions,
    list_offsets,
    leader_epochs,
    pretended_replica,
    delete_records,
)

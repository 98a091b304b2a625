"""Partition load: queued batches, and brokers that are too slow to be chosen."""

from collections.abc import Mapping

from client.scenario_runner import run, until
from ottla.client.network.cluster_view import BrokerView, ClusterView, PartitionView, TopicView
from ottla.client.partitioners import KeyPartitioner, Partitions, RoundRobinPartitioner
from ottla.client.producer.partition_load import PartitionLoad
from ottla.client.producer.partition_queue import PartitionQueue
from ottla.client.producer.producer import Producer
from ottla.clock import SystemClock
from ottla.ids import ZERO_UUID, BrokerId, LeaderEpoch, PartitionIndex, TopicPartition
from ottla.records import BatchBuilder
from ottla.testing import Cluster


def view(*leaders: int) -> ClusterView:
    partitions = {
        index: PartitionView(PartitionIndex(index), BrokerId(leader), LeaderEpoch(0))
        for index, leader in enumerate(leaders)
    }
    brokers = {BrokerId(one): BrokerView(BrokerId(one), "h", 1) for one in leaders if one >= 0}
    return ClusterView(brokers=brokers, topics={"t": TopicView("t", ZERO_UUID, partitions)})


def queues(*waiting: int) -> dict[TopicPartition, PartitionQueue]:
    made: dict[TopicPartition, PartitionQueue] = {}
    for index, batches in enumerate(waiting):
        place = TopicPartition("t", PartitionIndex(index))
        queue = made[place] = PartitionQueue(place, lambda batch: None)
        for _ in range(batches):
            queue.begin(BatchBuilder(100), 0, 0.0)
            queue.close()
    return made


class RecordingPartitioner:
    """A partitioner that records its notifications."""

    def __init__(self, *, listens: bool = True) -> None:
        self._listens = listens
        self.told: list[dict[int, int]] = []
        self.last: tuple[dict[int, int], int] | None = None

    def choose(self, topic: str, key: object, value: object, partitions: object) -> int:
        return 0

    def batch_closed(self, topic: str, partition: int, size: int) -> None:
        """Ignore the notification."""

    def listens(self, topic: str) -> bool:
        return self._listens

    def waiting(self, topic: str, batches: Mapping[int, int], count: int) -> None:
        assert topic == "t"
        self.last = (dict(batches), count)
        self.told.append(dict(batches))


def test_queue_sizes_are_reported_for_led_partitions() -> None:
    heard = RecordingPartitioner()
    load = PartitionLoad(heard, 0)
    load.look(queues(0, 0, 0), view(1, 2, -1))
    assert heard.last is None  # nothing is queued, so there is no notification
    load.look(queues(3, 0), view(1, 2, -1, 1))
    assert heard.last == ({0: 3, 1: 0, 3: 0}, 4)
    load.look(queues(0, 0), view(1, 2, -1, 1))
    assert heard.last == ({0: 0, 1: 0, 3: 0}, 4)  # an empty queue is notified once
    heard.last = None
    load.look(queues(0, 0), view(1, 2, -1, 1))
    assert heard.last is None


def test_partitioner_that_does_not_listen_gets_no_reports() -> None:
    heard = RecordingPartitioner(listens=False)
    PartitionLoad(heard, 0).look(queues(3, 0), view(1, 2))
    assert heard.last is None
    by_key = KeyPartitioner(100, lambda: 0.0)
    by_key.choose("t", b"key", None, Partitions(2, (0, 1)))
    assert not by_key.listens("t")
    by_key.choose("t", None, None, Partitions(2, (0, 1)))
    assert by_key.listens("t")
    assert not RoundRobinPartitioner().listens("t")


def test_single_partition_topic_gets_no_reports() -> None:
    heard = RecordingPartitioner()
    PartitionLoad(heard, 0).look(queues(3), view(1))
    assert heard.last is None


def test_slow_broker_is_left_out_until_it_accepts_data() -> None:
    heard = RecordingPartitioner()
    load = PartitionLoad(heard, 2.0)
    slow, quick = BrokerId(1), BrokerId(2)
    load.asked(slow, 10.0, takes=False)  # its timeout starts at the first request
    load.asked(quick, 10.0, takes=True)
    load.asked(slow, 12.0, takes=False)
    assert not load.is_slow(slow)
    load.asked(slow, 12.1, takes=False)
    assert load.is_slow(slow)
    load.look(queues(1, 1), view(1, 2))
    assert heard.last == ({1: 1}, 2)
    load.asked(slow, 13.0, takes=True)
    assert not load.is_slow(slow)
    # Nothing was ready for it for a long time: that is not a delay.
    load.asked(quick, 99.0, takes=True)
    assert not load.is_slow(quick)


def test_without_a_timeout_no_broker_is_slow() -> None:
    load = PartitionLoad(RecordingPartitioner(), 0)
    load.asked(BrokerId(1), 10.0, takes=False)
    load.asked(BrokerId(1), 10_000.0, takes=False)
    assert not load.is_slow(BrokerId(1))


class ForwardedClock(SystemClock):
    """A clock that a test can set forward.

    It runs: with a clock that stands still, a batch that is retried never leaves.
    """

    ahead_s = 0.0

    def elapsed_s(self) -> float:
        return super().elapsed_s() + self.ahead_s


def test_producer_reports_queue_sizes_to_its_partitioner() -> None:
    """The broker does not read, so its partitions fill up and are no longer chosen."""

    async def scenario() -> None:
        async with Cluster(settings={"num.partitions": 3}) as cluster:
            watching, clock = RecordingPartitioner(), ForwardedClock()
            async with Producer(
                bootstrap_servers=cluster.bootstrap_servers,
                partitioner=watching,
                clock=clock,
                partitioner_availability_timeout_ms=60_000,  # longer than the test waits
                batch_size=100,
                linger_ms=0,
            ) as ours:
                await (await ours.send("t", bytes(90)))
                with cluster.brokers[0].pause():
                    for _ in range(20):  # more than are in flight at once
                        await ours.send("t", bytes(90))
                    await until(lambda: bool(watching.told) and watching.told[-1].get(0, 0) > 5)
                    assert watching.told[-1].keys() == {0, 1, 2}
                    assert watching.told[-1][1] == 0
                    clock.ahead_s += 60.1
                    await ours.send("t", bytes(90))
                    await until(lambda: not watching.told[-1])
                await ours.flush()
                await (await ours.send("t", bytes(90)))
                assert watching.told[-1] == {0: 0, 1: 0, 2: 0}

    run(scenario())

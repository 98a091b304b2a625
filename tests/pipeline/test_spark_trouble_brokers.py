"""Streams continue while brokers of a cluster of processes are killed and restarted.

One stream runs with Ottla's data source and one with the official connector. Each copies a topic
into another one on the same cluster. A task of the shared session is not repeated: a task that
fails ends its query, and so does the test.
"""

import time
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka

from integration.load import PARTITIONS, TOPIC, LibrdkafkaClients, Load
from integration.process_cluster import ProcessCluster
from ottla.client.admin.topics import NewTopic
from ottla.sync import Admin
from pipeline.queries import PATIENCE_S, Running, done, source
from sampling import SOAK

FORMATS = ("ottla", "kafka")
ROUNDS = 10 if SOAK else 1
PACE = {"processingTime": "0 seconds" if SOAK else "4 seconds"}  # to save processor time
END_OF_PARTITION = -191  # librdkafka's RD_KAFKA_RESP_ERR__PARTITION_EOF


def copy_of(form: str) -> str:
    return f"{TOPIC}-{form}"


@contextmanager
def copying(spark: Any, servers: str, form: str, folder: Path) -> Generator[Running]:
    """A query that copies the topic until the end of the `with`."""
    writer = (
        source(spark, servers, form, subscribe=TOPIC)
        .select("value")
        .writeStream.format(form)
        .option("kafka.bootstrap.servers", servers)
        .option("topic", copy_of(form))
        .option("checkpointLocation", f"{folder}/place")
        .trigger(**PACE)
    )
    found = Running(writer.start)
    try:
        yield found
    finally:
        found.query.stop()


def stored(servers: str, topic: str) -> list[bytes]:
    """Return the values of all records of a topic."""
    consumer: Any = confluent_kafka.Consumer(  # Any: the client's types are not complete
        {
            "bootstrap.servers": servers,
            "group.id": "verify",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, one, 0) for one in range(PARTITIONS)])
    values: list[bytes] = []
    ended: set[int] = set()
    deadline_s = time.monotonic() + PATIENCE_S
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline_s, f"partitions of {topic} do not end, except {ended}"
        for message in consumer.consume(5000, 0.1):
            if message.error() is None:
                values.append(message.value())
            else:
                assert message.error().code() == END_OF_PARTITION
                ended.add(message.partition())
    consumer.close()
    return values


class Copies:
    """The running queries, by their folders."""

    def __init__(self, queries: dict[Path, Running], clients: LibrdkafkaClients) -> None:
        self._queries = queries
        self._clients = clients

    def progress(self) -> None:
        """Wait until each query has committed all records that are acknowledged by now."""
        acknowledged = len(self._clients.producer.acks)
        for folder, query in self._queries.items():
            query.until(lambda folder=folder: done(folder) >= acknowledged)


def restart_each(cluster: ProcessCluster) -> Iterable[None]:
    for broker in cluster.brokers.values():
        cluster.wait_until_whole()
        assert broker.terminate() == 0, broker.log_tail()
        broker.start()
        yield


def test_streams_lose_nothing_when_brokers_end(spark: Any, tmp_path: Path) -> None:
    with ExitStack() as running:
        cluster = running.enter_context(ProcessCluster(tmp_path, TOPIC, PARTITIONS))
        servers, clients = cluster.bootstrap, LibrdkafkaClients()
        with Admin({"bootstrap.servers": servers}) as admin:
            topics = (TOPIC, *map(copy_of, FORMATS))
            admin.create_topics([NewTopic(one, PARTITIONS, 3) for one in topics]).or_raise()
        queries = {
            tmp_path / one: running.enter_context(copying(spark, servers, one, tmp_path / one))
            for one in FORMATS
        }
        copies = Copies(queries, clients)
        with Load(servers, clients) as load:
            load.progress()
            copies.progress()
            for _ in range(ROUNDS):
                leader = cluster.brokers[cluster.wait_until_whole().leaders[0]]
                leader.kill()
                load.progress()
                copies.progress()
                leader.start()
                for _ in restart_each(cluster):
                    load.progress()
                copies.progress()
        copies.progress()
        expected = {*stored(servers, TOPIC)}
        assert expected == {*map(clients.producer.value, range(len(clients.producer.acks)))}
        for form in FORMATS:
            assert {*stored(servers, copy_of(form))} == expected, form

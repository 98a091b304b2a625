"""Writes an archive of Kafka's classes, once per version of Java and of the jars.

Java calls this class-data sharing: a process maps the archive instead of reading thousands of
classes from jars and verifying them. A broker writes the archive when it stops. It has served a
producer and a consumer before, so that the archive also has the classes of the clients and tools.
"""

import os

from judges.java import archive_path, locked_archive
from judges.kafka_broker import SMALL_JVM, KafkaBroker
from ottla.sync import Consumer, Producer


def write_archive() -> None:
    """Write the archive unless there is one; other processes wait for the first."""
    if archive_path().exists():
        return
    with locked_archive() as archive:
        if archive.exists():
            return
        part = archive.with_suffix(".part")
        broker = KafkaBroker(
            {"auto.create.topics.enable": "true"}, jvm=SMALL_JVM, maps_archive=False
        )
        try:
            broker.format()
            broker.start(f"-XX:ArchiveClassesAtExit={part}")
            _use(broker.bootstrap)
            broker.stop()
        finally:
            broker.remove()
        if part.exists():  # otherwise this Java cannot write one
            os.replace(part, archive)


def _use(servers: str) -> None:
    with Producer({"bootstrap.servers": servers}) as producer:
        producer.send("archive", b"record")
    settings = {
        "bootstrap.servers": servers,
        "group.id": "archive",
        "auto.offset.reset": "earliest",
    }
    with Consumer(settings, "archive") as consumer:
        while not list(consumer.poll(1.0)):
            pass
        consumer.commit()

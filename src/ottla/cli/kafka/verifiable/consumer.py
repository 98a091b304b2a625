"""`kafka-verifiable-consumer`: read as a member of a group and print events.

Invariant: each event is printed when it happens: records consumed, offsets committed, partitions
assigned and revoked. The shutdown event is printed in every case.
"""

import asyncio
from typing import TYPE_CHECKING, Final

from ottla.cli.kafka.argument_words import ArgumentUsage
from ottla.cli.kafka.client_flags import PATIENCE, file_properties, reached
from ottla.cli.kafka.flags import Flag, Given
from ottla.cli.kafka.tool import run_tool

if TYPE_CHECKING:
    from ottla.cli.records.stream import ColumnConsumer
    from ottla.client.consumer.record import Record
    from ottla.ids import TopicPartition

USAGE: Final = ArgumentUsage(
    "kafka-verifiable-consumer",
    "Read as a member of a group and print events as JSON.",
    [
        Flag("bootstrap-server", "host:port,…", "Connect to these bootstrap servers. Required."),
        Flag("topic", "topic", "Read this topic. Required."),
        Flag("group-protocol", "protocol", "Set group.protocol: classic (default) or consumer."),
        Flag(
            "group-remote-assignor",
            "name",
            "With --group-protocol consumer: use this server-side assignor.",
        ),
        Flag("group-id", "group", "Read as a member of this consumer group. Required."),
        Flag("group-instance-id", "id", "Join the group as a static member with this id."),
        Flag(
            "max-messages",
            "count",
            "Exit after this many records; -1 (default) disables the limit.",
        ),
        Flag(
            "session-timeout",
            "ms",
            "With --group-protocol classic: set session.timeout.ms; default: 30000.",
        ),
        Flag("verbose", help="Also print each record."),
        Flag(
            "enable-autocommit",
            help="Commit offsets automatically instead of after each poll.",
        ),
        Flag(
            "reset-policy", "policy", "Set auto.offset.reset: earliest (default), latest or none."
        ),
        Flag(
            "assignment-strategy",
            "class",
            "With --group-protocol classic: use this assignor; default: RangeAssignor.",
        ),
        Flag("command-config", "file", "Read consumer properties from this file."),
        Flag("consumer.config", "file", "Deprecated name of --command-config."),
    ],
    spoken="verifiable-consumer",
)
_RANGE: Final = "org.apache.kafka.clients.consumer.RangeAssignor"
_POLL_RECORDS: Final = 500


async def act(given: Given) -> int:
    """Read records and print events."""
    topic = USAGE.text_of(given, "topic")
    settings = _settings(given)
    most = USAGE.number_of(given, "max-messages", -1)
    from ottla.cli.kafka.endings import until_signal
    from ottla.cli.records.stream import ColumnConsumer

    reading = _Reading(
        topic, most, commits="enable-autocommit" not in given, verbose="verbose" in given
    )
    settings = await reached("consumer", settings)
    return await until_signal(reading.run(ColumnConsumer(settings)))


def _settings(given: Given) -> dict[str, str]:
    """Return the consumer settings."""
    servers = USAGE.text_of(given, "bootstrap-server")
    group = USAGE.text_of(given, "group-id")
    if "consumer.config" in given and "command-config" in given:
        raise USAGE.refused(
            "Options --consumer.config and --command-config are mutually exclusive."
        )
    if "consumer.config" in given:
        print(
            "Option --consumer.config has been deprecated and will be removed in a future version. "
            "Use --command-config instead."
        )
    settings = {
        **PATIENCE,
        **file_properties(given.one("command-config") or given.one("consumer.config")),
    }
    protocol = given.one("group-protocol") or "classic"
    settings["group.protocol"] = protocol
    if protocol.lower() == "consumer":
        if (assignor := given.one("group-remote-assignor")) is not None:
            settings["group.remote.assignor"] = assignor
    else:
        settings["partition.assignment.strategy"] = given.one("assignment-strategy") or _RANGE
        settings["session.timeout.ms"] = str(USAGE.number_of(given, "session-timeout", 30_000))
    if (instance := given.one("group-instance-id")) is not None:
        settings["group.instance.id"] = instance
    for java in ("key.deserializer", "value.deserializer"):
        settings.pop(java, None)
    return settings | {
        "bootstrap.servers": servers,
        "group.id": group,
        "enable.auto.commit": "true" if "enable-autocommit" in given else "false",
        "auto.offset.reset": given.one("reset-policy") or "earliest",
    }


class _Reading:
    """Reads records and prints events."""

    def __init__(self, topic: str, most: int, *, commits: bool, verbose: bool) -> None:
        self._topic = topic
        self._left = most if most >= 0 else None
        self._commits = commits
        self._verbose = verbose

    async def run(self, consumer: "ColumnConsumer") -> int:
        """Read until the limit is reached; returns the exit code."""
        from ottla.cli.kafka.verifiable.events import tell
        from ottla.client.group.interfaces import Rebalance
        from ottla.ids import TopicPartition

        def assigned(partitions: frozenset[TopicPartition], why: Rebalance) -> None:
            tell("partitions_assigned", partitions=_named(partitions))

        def revoked(partitions: frozenset[TopicPartition], why: Rebalance) -> None:
            tell("partitions_revoked", partitions=_named(partitions))

        async with consumer:
            await consumer.meet()
            tell("startup_complete")
            try:
                consumer.subscribe(self._topic, on_assigned=assigned, on_revoked=revoked)
                while self._left != 0:
                    records = await consumer.poll(1.0, max_records=_POLL_RECORDS)
                    if records:
                        await self._tell(consumer, records)
            except asyncio.CancelledError:
                tell("shutdown_requested")
                raise
            finally:
                await consumer.close()
                tell("shutdown_complete")
        tell("shutdown_requested")  # like Java's tool when its process ends
        return 0

    async def _tell(
        self, consumer: "ColumnConsumer", records: "list[Record[bytes, bytes]]"
    ) -> None:
        from ottla.cli.kafka.verifiable.events import tell
        from ottla.errors import RequestError
        from ottla.ids import TopicPartition

        by_place: dict[TopicPartition, list[Record[bytes, bytes]]] = {}
        for record in records:
            by_place.setdefault(record.topic_partition, []).append(record)
        summaries: list[dict[str, object]] = []
        offsets: dict[TopicPartition, int] = {}
        for place, run in by_place.items():
            kept = run if self._left is None else run[: self._left]
            if not kept:
                break
            offsets[place] = kept[-1].offset + 1
            summaries.append(
                {
                    "topic": place.topic,
                    "partition": place.partition,
                    "count": len(kept),
                    "minOffset": kept[0].offset,
                    "maxOffset": kept[-1].offset,
                }
            )
            for record in kept if self._verbose else ():
                tell(
                    "record_data",
                    key=_text(record.key),
                    value=_text(record.value),
                    topic=record.topic,
                    partition=record.partition,
                    offset=record.offset,
                )
            if self._left is not None:
                self._left -= len(kept)
        tell("records_consumed", count=len(records), partitions=summaries)
        if not self._commits:
            return
        facts: dict[str, object] = {
            "offsets": [
                {"topic": place.topic, "partition": place.partition, "offset": offset}
                for place, offset in offsets.items()
            ]
        }
        try:
            await consumer.commit(offsets)
        except RequestError as error:
            tell("offsets_committed", **facts, error=str(error), success=False)
        else:
            tell("offsets_committed", **facts, success=True)


def _named(partitions: "frozenset[TopicPartition]") -> list[dict[str, object]]:
    return [{"topic": one.topic, "partition": one.partition} for one in sorted(partitions)]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def run() -> None:
    """Run the console script."""
    run_tool(USAGE, act, is_fast=True)

"""Reads the dead letters of a pipeline, and sends them back to their topics.

Invariant: each selected dead letter is sent at least once. Its offset is committed after the
brokers have acknowledged it, so a redrive that was interrupted sends only the last batch again.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from ottla.client.admin import CommittedOffset, OffsetAt
from ottla.errors import ErrorCode, OttlaError, RequestError
from ottla.ids import PartitionIndex, TopicPartition
from ottla.pipeline.redrive_decision import (
    Decision,
    Fate,
    HandledOffsets,
    Selection,
    decide,
    handled_offsets,
)
from ottla.pipeline.spec.model import Pipeline, dead_letter_topic
from ottla.settings.admin import ADMIN
from ottla.settings.config_def import ConfigDef
from ottla.settings.consumer import CONSUMER
from ottla.settings.producer import PRODUCER
from ottla.sync import Admin, Consumer, Producer

BATCH_RECORDS: Final = 1000
POLL_S: Final = 1.0

Positions: TypeAlias = dict[TopicPartition, HandledOffsets]


class RedriveFailed(OttlaError):
    """Dead letters cannot be sent back; the text has the reason."""


def redrive_group(pipeline: str) -> str:
    """Return the consumer group whose offsets say what was redriven."""
    return f"ottla-pipeline.{pipeline}.redrive"


def parked_topic(pipeline: Pipeline) -> str:
    """Return the topic of records that have been dead letters too often."""
    return f"{dead_letter_topic(pipeline)}.parked"


def redrive(pipeline: Pipeline, selection: Selection, *, dry_run: bool = False) -> Counter[Fate]:
    """Redrive the dead letters that are there now; returns how many had which fate.

    Raises RedriveFailed, or another OttlaError of a client. With `dry_run`, nothing is sent.
    """
    settings = {table: _settings(pipeline, table) for table in (ADMIN, CONSUMER, PRODUCER)}
    reading = {"isolation.level": "read_committed", **settings[CONSUMER]}
    with (
        Admin(settings[ADMIN]) as admin,
        Consumer(reading) as consumer,
        Producer(settings[PRODUCER]) as producer,
    ):
        return _Redrive(pipeline, selection, admin, consumer, producer).run(dry_run=dry_run)


def _settings(pipeline: Pipeline, table: ConfigDef) -> dict[str, str]:
    client = {name: str(value) for name, value in pipeline.client.items() if table.find(name)}
    return {**client, "bootstrap.servers": str(pipeline.brokers)}


class _Redrive:
    def __init__(
        self,
        pipeline: Pipeline,
        selection: Selection,
        admin: Admin,
        consumer: Consumer[bytes, bytes],
        producer: Producer[bytes, bytes],
    ) -> None:
        self._topic = str(dead_letter_topic(pipeline))
        self._parked = str(parked_topic(pipeline))
        self._group = redrive_group(pipeline.name)
        self._selection = selection
        self._admin = admin
        self._consumer = consumer
        self._producer = producer
        self._counts: dict[str, int] = {}  # the partitions of topics

    def run(self, *, dry_run: bool) -> Counter[Fate]:
        fates: Counter[Fate] = Counter()
        places = self._partitions()
        if not places:
            return fates
        done = self._done(places)
        ends = self._offsets(places, OffsetAt.LATEST)
        left = {one for one in places if done[one].next < ends[one]}
        if not left:
            return fates
        self._consumer.assign(*left)
        for one in left:
            self._consumer.seek(one, done[one].next)
        while left:
            records = [
                one
                for one in self._consumer.poll(POLL_S, max_records=BATCH_RECORDS)
                if one.offset < ends[one.topic_partition]
                and one.offset not in done[one.topic_partition]
            ]
            decided = [(one, decide(one.headers, self._selection)) for one in records]
            after = _with_records(done, decided)
            if not dry_run:
                self._check(after)
                self._send(decided)
                self._commit(done, after)
            done = after
            fates.update(decision.fate for _, decision in decided)
            left = {one for one in left if self._consumer.position(one) < ends[one]}
        return fates

    def _partitions(self) -> list[TopicPartition]:
        count = self._partition_count(self._topic)
        return [TopicPartition(self._topic, PartitionIndex(index)) for index in range(count)]

    def _partition_count(self, topic: str) -> int:
        """Return the partitions of a topic; 0 if it does not exist."""
        if topic not in self._counts:
            found = self._admin.describe_topics([topic])
            for error in found.failed.values():
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise error
            self._counts[topic] = sum(len(one.partitions) for one in found.succeeded.values())
        return self._counts[topic]

    def _offsets(self, places: Sequence[TopicPartition], at: OffsetAt) -> dict[TopicPartition, int]:
        found = self._admin.list_offsets(dict.fromkeys(places, at)).or_raise()
        return {one: found[one].offset or 0 for one in places}

    def _done(self, places: Sequence[TopicPartition]) -> Positions:
        try:
            committed: Mapping[Any, CommittedOffset | None] = (
                self._admin.list_group_offsets(self._group, places)
                .or_raise()[self._group]
                .or_raise()
            )
        except RequestError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            committed = {}
        first = self._offsets(places, OffsetAt.EARLIEST)
        found: Positions = {}
        for one in places:
            kept = committed.get(one)
            before = (
                HandledOffsets() if kept is None else handled_offsets(kept.offset, kept.metadata)
            )
            found[one] = before.up_to(first[one])
        return found

    def _check(self, after: Positions) -> None:
        """Raise RedriveFailed before anything is sent that could not be remembered."""
        for one, handled in after.items():
            if not handled.fits:
                raise RedriveFailed(
                    f"{one}: the selection leaves out too many dead letters in between; redrive "
                    "those first, or select more"
                )

    def _send(self, decided: Sequence[tuple[Any, Decision]]) -> None:
        for record, decision in decided:
            match decision.fate:
                case Fate.REDRIVEN:
                    topic, partition = decision.topic, decision.partition
                    count = self._partition_count(topic)
                    if count == 0:
                        raise RedriveFailed(f"topic {topic} does not exist any more")
                    if partition is not None and partition >= count:
                        partition = None
                case Fate.PARKED:
                    topic, partition = self._parked, None
                case _:
                    continue
            self._producer.send(
                topic, record.value, key=record.key, partition=partition, headers=decision.headers
            )
        self._producer.flush()

    def _commit(self, before: Positions, after: Positions) -> None:
        changed = {
            one: CommittedOffset(handled.next, handled.metadata())
            for one, handled in after.items()
            if handled != before[one]
        }
        if changed:
            self._admin.alter_group_offsets(self._group, changed).or_raise()


def _with_records(done: Positions, decided: Sequence[tuple[Any, Decision]]) -> Positions:
    final: dict[TopicPartition, list[int]] = {}
    for record, decision in decided:
        if decision.is_final:
            final.setdefault(record.topic_partition, []).append(record.offset)
    return {one: handled.with_offsets(final.get(one, ())) for one, handled in done.items()}

"""The consumer: records of topics, one by one, many at a time or as columns.

Invariant: what it hands out of a partition is in order and without a gap, from where its group, the
settings or a seek say. What it commits by itself the application has done. Leaving its context
commits, gives the partitions back and leaves nothing behind.

The path of a record: it is fetched (`fetching/fetcher.py`), decoded (`fetching/decoding.py`) and
handed out (`fetching/reader.py`); which partitions, the group decides (`participation.py`).
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any, Final, Generic, Self

from ottla.client.arguments import offset_of, time_of
from ottla.client.columns.arrow import consumed
from ottla.client.columns.typed_values import Form, form_of, typed
from ottla.client.consumer_runtime import ConsumerRuntime
from ottla.client.fetch.cursor import EARLIEST_MS, LATEST_MS, Cursor
from ottla.client.fetch.decoding import Decoder
from ottla.client.fetch.offsets import FoundOffset
from ottla.client.fetch.record_buffer import RecordBuffer
from ottla.client.group.interfaces import GroupMember
from ottla.client.group.offsets import OffsetAndMetadata
from ottla.client.key_value import K, V
from ottla.client.lifecycle.shutdown import noted_on
from ottla.client.loop_affinity import not_running, runs_already
from ottla.client.metrics.consumer_metrics import ConsumerMetrics
from ottla.client.network.tokens import TokenFunction
from ottla.client.options.connection import connection_rules
from ottla.client.options.consumer import is_modern_group
from ottla.client.partitions import P, by_partition, partition_of
from ottla.client.record import Record
from ottla.client.serializers import DeserializationFailed, Deserializer, Serde, deserializer_of
from ottla.client.subscription import Callback, Pattern, Subscription, check_names, compiled
from ottla.client.topic_name import checked_name
from ottla.clock import Clock, SystemClock
from ottla.errors import ErrorCode, RequestError
from ottla.groups.assignors.assignor import Assignor
from ottla.ids import TopicPartition
from ottla.records import Columns
from ottla.settings import connection, consumer
from ottla.settings.config_parser import client_config
from ottla.settings.consumer import CONSUMER
from ottla.transport.network import Connector, TcpNetwork

POLL_S: Final = 1.0


class Consumer(Generic[K, V]):
    """Reads records; `async with` starts it, and ends it with its place kept."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        /,
        *topics: str,
        key_deserializer: Serde[K] | Deserializer[K] | None = None,
        value_deserializer: Serde[V] | Deserializer[V] | None = None,
        bad_record: Callable[[DeserializationFailed], object] | None = None,
        network: Connector | None = None,
        clock: Clock | None = None,
        random: Callable[[], float] | None = None,
        token: TokenFunction | None = None,
        assignors: Sequence[Assignor] = (),
        **arguments: object,
    ) -> None:
        """Take settings by Kafka's names, as `{"group.id": "g"}`, or as `group_id="g"`.

        With topics it subscribes to them. A key or value that cannot be deserialized is raised to
        who asks for it; with `bad_record` that is called instead and the record is skipped. `token`
        gives the tokens of OAUTHBEARER. `assignors` of one's own are for classic groups.
        """
        self._config = config = client_config(CONSUMER, settings, **arguments)
        self._network, self._clock = network or TcpNetwork(), clock or SystemClock()
        self._random = random or Random().random
        self._connecting = connection_rules(config, self._random, token=token, clock=self._clock)
        self._timeout_s = config[connection.DEFAULT_API_TIMEOUT_MS] / 1000
        self._poll_records = config[consumer.MAX_POLL_RECORDS]
        self._decoder: Decoder[K, V] = Decoder(
            None if key_deserializer is None else deserializer_of(key_deserializer),
            None if value_deserializer is None else deserializer_of(value_deserializer),
            config[consumer.CHECK_CRCS],
            bad_record,
        )
        self._form: tuple[Any, Form | None] = (None, None)  # of the last schema
        self._assignors = assignors
        check_names(topics)
        self._subscription = Subscription(frozenset(topics)) if topics else None
        self._running: ConsumerRuntime[K, V] | None = None
        if topics:
            self._needs_group()

    async def __aenter__(self) -> Self:
        if self._running is not None:
            raise runs_already("consumer")
        self._running = ConsumerRuntime(
            self._config,
            self._connecting,
            self._decoder,
            self._network,
            self._clock,
            self._random,
            self._assignors,
        )
        if self._subscription is not None:
            self._running.subscribe(self._subscription)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        with noted_on(error):
            await self.close(is_done=kind is None)

    async def close(self, *, is_done: bool = True) -> None:
        """Commit, give the partitions back and end; `is_done`: what was handed out counts too.

        What a callback raises meanwhile, or raised and no poll has told, is raised at the end.
        """
        if self._running is not None:
            self._running.check_caller()
        running, self._running = self._running, None
        if running is not None:
            await running.close(is_done=is_done)

    # What to read.

    def subscribe(
        self,
        *topics: str,
        pattern: Pattern | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Share topics, by name or by a pattern of whole names, with the others of the group.

        Text and what `re` compiled the client matches; a BrokerPattern the broker.
        """
        self._needs_group()
        check_names(topics)
        if bool(topics) is (pattern is not None):
            raise ValueError("subscribe to topics or to a pattern")
        is_modern = is_modern_group(self._config)
        found = None if pattern is None else compiled(pattern, is_modern=is_modern)
        wanted = Subscription(frozenset(topics), found, on_assigned, on_revoked, on_lost)
        self._subscription = wanted
        if self._running is not None:
            self._running.subscribe(wanted)

    async def unsubscribe(self) -> None:
        """Leave the group, or read no partition any more."""
        self._subscription = None
        await self._started().unsubscribe()

    def assign(self, *partitions: tuple[str, int]) -> None:
        """Read these partitions, whoever else reads them; those that were read before are kept."""
        running = self._started()
        if running.participation is not None:
            raise RuntimeError("a consumer that has subscribed is given its partitions")
        wanted = {partition_of(one) for one in partitions}
        for one in wanted:
            running.reading.metadata.want(one.topic)
        running.reading.reader.remove(running.reading.reader.cursors.keys() - wanted)
        running.reading.add(wanted)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are read."""
        return frozenset(self._started().reading.reader.cursors)

    async def partitions(self, topic: str) -> list[TopicPartition]:
        """The partitions of a topic."""
        running = self._started()
        asked = running.reading.metadata.topic(checked_name(topic), self._timeout_s)
        known = await running.life.within(asked)
        return [partition_of((topic, index)) for index in sorted(known.partitions)]

    # Records.

    def __aiter__(self) -> AsyncIterator[Record[K, V]]:
        return self._reader().records()

    async def poll(
        self, timeout_s: float = POLL_S, *, max_records: int | None = None
    ) -> list[Record[K, V]]:
        """The records that are here, or that come in time; none is an empty list."""
        records_max = self._poll_records if max_records is None else max_records
        if records_max < 1:
            raise ValueError(f"a poll is for one record or more, and not for {records_max}")
        return await self._reader().take(records_max, timeout_s)

    async def batches(self) -> AsyncGenerator[list[Record[K, V]]]:
        """Lists of records, each of one partition, without an end."""
        reader = self._reader()
        while True:
            batch = await reader.take(self._poll_records, POLL_S, one_partition=True)
            if batch:
                yield batch

    async def poll_arrow(self, timeout_s: float = POLL_S, *, value_schema: Any = None) -> Any:
        """Records of one partition as an Arrow record batch; None when none come in time.

        Its columns are topic, partition, offset, timestamp, key, value and headers; keys and values
        are bytes as they are in the topic.

        With `value_schema` they are topic, partition, offset, timestamp, key and those of the
        values: of JSON objects for a pyarrow.Schema, of Avro for an Avro schema, as text or dict.
        Where a value has a name that is taken, its column is `value.` and the name. A field that
        is missing in JSON is null, one that the schema does not have is left out; of a record
        without a value all are null. A value that cannot be read is raised, or told to
        `bad_record`, as when records are deserialized one by one.
        """
        return await self._reader().take_columns(timeout_s, self._maker(value_schema))

    async def arrow(self, *, value_schema: Any = None) -> AsyncGenerator[Any]:
        """Arrow record batches, each of one partition, without an end; as `poll_arrow` has them."""
        reader, make = self._reader(), self._maker(value_schema)
        while True:
            batch = await reader.take_columns(POLL_S, make)
            if batch is not None:
                yield batch

    # Where to read.

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Go on at an offset."""
        place = offset_of(offset)
        self._cursor(partition).move(place)
        self._started().reading.poke()

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Go on at the first record; without partitions in all that are read."""
        self._seek_to_time(partitions, EARLIEST_MS)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Go on with what is written from now on; without partitions in all that are read."""
        self._seek_to_time(partitions, LATEST_MS)

    def seek_to_time(self, timestamp_ms: int, *partitions: tuple[str, int]) -> None:
        """Go on at the first record from a time on, or at the end when there is none."""
        self._seek_to_time(partitions, time_of(timestamp_ms))

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Hand nothing of these out until they are resumed."""
        for one in partitions:
            self._cursor(one).pause()

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Hand these out again."""
        for one in partitions:
            self._started().reading.reader.resume(self._cursor(one))
        self._started().reading.poke()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that are paused."""
        cursors = self._started().reading.reader.cursors
        return frozenset(one for one, cursor in cursors.items() if cursor.is_paused)

    async def position(self, partition: tuple[str, int], timeout_s: float | None = None) -> int:
        """The offset of the record that comes next."""
        running = self._started()
        asked = running.reading.position(partition_of(partition), self._seconds(timeout_s))
        return await running.life.within(asked)

    def lag(self, partition: tuple[str, int]) -> int | None:
        """How far the place is behind the end, as the broker told last; None before it did."""
        return self._started().reading.lag(partition_of(partition))

    async def beginning_offsets(
        self, *partitions: tuple[str, int], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition."""
        return await self._ends(partitions, EARLIEST_MS, timeout_s)

    async def end_offsets(
        self, *partitions: tuple[str, int], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset behind the last record that can be read, of each partition."""
        return await self._ends(partitions, LATEST_MS, timeout_s)

    async def offsets_for_times(
        self, times_ms: Mapping[P, int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, FoundOffset | None]:
        """The first record from a time on, of each partition; None where there is none."""
        named = {partition_of(one): time_of(ms) for one, ms in by_partition(times_ms).items()}
        running = self._started()
        return await running.life.within(running.reading.offsets(named, self._seconds(timeout_s)))

    # How far the group is.

    async def commit(
        self,
        offsets: Mapping[P, int | OffsetAndMetadata] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Keep offsets for the group; without any, all that was handed out counts as done."""
        running = self._started()
        doing = running.commits_of().commit(running.offsets(offsets), self._seconds(timeout_s))
        await running.life.within(doing)

    def commit_soon(
        self,
        offsets: Mapping[P, int | OffsetAndMetadata] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> asyncio.Task[None]:
        """Begin to keep offsets and go on; the task tells what became of it."""
        running = self._started()
        doing = running.commits_of().commit(running.offsets(offsets), self._seconds(timeout_s))
        return running.start(doing)

    @asynccontextmanager
    async def committing(self) -> AsyncGenerator[None]:
        """Commit what was handed out before or in the block when it succeeds; otherwise nothing."""
        running = self._started()
        offsets = running.offsets(None)
        yield
        await self.commit(offsets | running.offsets(None))  # what was lost meanwhile is told

    async def committed(
        self, *partitions: tuple[str, int], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has kept of each partition."""
        wanted = [partition_of(one) for one in partitions]
        running = self._started()
        asked = running.commits_of().committed(wanted, self._seconds(timeout_s))
        return await running.life.within(asked)

    @property
    def group_member(self) -> GroupMember:
        """Who this consumer is to its group, for offsets inside a transaction."""
        return self._started().group_member()

    def metrics(self) -> ConsumerMetrics:
        """What it has done so far, in numbers."""
        return self._started().metrics()

    # Behind all that.

    def _started(self) -> ConsumerRuntime[K, V]:
        if self._running is None:
            raise not_running("consumer")
        self._running.home.check()
        return self._running

    def _reader(self) -> RecordBuffer[K, V]:
        running = self._started()
        reader = running.reading.reader
        if self._subscription is None and running.participation is None and not reader.cursors:
            raise RequestError(
                ErrorCode.INVALID_REQUEST,
                "nothing is read: subscribe to topics, or assign partitions, before",
            )
        return reader

    def _maker(
        self, value_schema: Any
    ) -> Callable[[TopicPartition, Columns], tuple[Any, DeserializationFailed | None]]:
        """What makes a record batch of columns; what it takes to read a schema is kept."""
        if value_schema is None:
            return lambda partition, columns: (consumed(partition, columns), None)
        known, form = self._form
        if form is None or known is not value_schema:
            form = form_of(value_schema)
            self._form = (value_schema, form)
        return partial(typed, form, self._decoder.bad_record)

    def _seconds(self, timeout_s: float | None) -> float:
        return self._timeout_s if timeout_s is None else timeout_s

    def _needs_group(self) -> None:
        if self._config[consumer.GROUP_ID] is None:
            raise RequestError(
                ErrorCode.INVALID_GROUP_ID, "to subscribe, a consumer needs a group.id"
            )

    def _cursor(self, partition: tuple[str, int]) -> Cursor:
        return self._started().reading.cursor(partition_of(partition))

    def _seek_to_time(self, partitions: Iterable[tuple[str, int]], timestamp_ms: int) -> None:
        reading = self._started().reading
        for one in [*partitions] or [*reading.reader.cursors]:
            self._cursor(one).move_to_time(timestamp_ms)
        reading.poke()

    async def _ends(
        self, partitions: Iterable[tuple[str, int]], timestamp_ms: int, timeout_s: float | None
    ) -> dict[TopicPartition, int]:
        named = {partition_of(one): timestamp_ms for one in partitions}
        running = self._started()
        asked = running.reading.offsets(named, self._seconds(timeout_s))
        found = await running.life.within(asked)
        return {where: one.offset for where, one in found.items() if one is not None}

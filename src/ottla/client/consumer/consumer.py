"""The consumer: records one by one, in lists or as columns.

Invariant: records of a partition are handed out in order and without a gap, from the committed
offset, the reset policy or a seek. Auto-commit commits only what the application has finished.
Leaving the context commits, revokes the partitions and leaves nothing open.

A record is fetched (`fetcher.py`), decoded (`decoding.py`) and handed out (`record_buffer.py`); the
group assigns the partitions (`subscription_state.py`).
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any, Final, Generic, NoReturn, Self

from ottla.client.arguments import checked_name, offset_of, seconds_of, time_of, whole_of
from ottla.client.columns.arrow import consumed
from ottla.client.columns.typed_values import Form, form_of, typed
from ottla.client.consumer.config import is_modern_group
from ottla.client.consumer.consumer_runtime import ConsumerRuntime
from ottla.client.consumer.cursor import EARLIEST_MS, LATEST_MS, Cursor
from ottla.client.consumer.decoding import Decoder
from ottla.client.consumer.offsets import FoundOffset
from ottla.client.consumer.partition_reader import PartitionReader
from ottla.client.consumer.record import Record
from ottla.client.consumer.record_buffer import RecordBuffer
from ottla.client.consumer.subscription import (
    Callback,
    Pattern,
    Subscription,
    check_names,
    compiled,
)
from ottla.client.group.interfaces import GroupMember
from ottla.client.group.offsets import OffsetAndMetadata
from ottla.client.key_value import K, V
from ottla.client.lifecycle.shutdown import noted_on
from ottla.client.loop_affinity import AsyncWith, not_running, runs_already
from ottla.client.metrics.consumer_metrics import ConsumerMetrics
from ottla.client.network.cluster_view import ClusterView
from ottla.client.network.config import connection_config
from ottla.client.network.tokens import TokenFunction
from ottla.client.partitions import P, by_partition, partition_of
from ottla.client.serializers import DeserializationFailed, Deserializer, Serde, deserializer_of
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


class Consumer(AsyncWith, Generic[K, V]):
    """Reads records; `async with` starts it, and closes it after a commit."""

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
        """Take settings by Kafka's names, as `{"group.id": "g"}` or as `group_id="g"`.

        With topics it subscribes to them. A key or value that cannot be deserialized raises an
        error; with `bad_record`, that is called instead and the record is skipped. `token` returns
        OAUTHBEARER tokens. Own `assignors` require a classic group.
        """
        self._config = config = client_config(CONSUMER, settings, **arguments)
        self._network, self._clock = network or TcpNetwork(), clock or SystemClock()
        self._random = random or Random().random
        self._connecting = connection_config(config, self._random, token=token, clock=self._clock)
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
        """Commit, revoke the partitions and close; `is_done` commits all that was handed out.

        An error of a callback that no poll has raised is raised at the end.
        """
        if self._running is not None:
            self._running.check_caller()
        running, self._running = self._running, None
        if running is not None:
            await running.close(is_done=is_done)

    # Subscription.

    def subscribe(
        self,
        *topics: str,
        pattern: Pattern | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Subscribe to topics, by name or by a pattern of whole names, as a member of the group.

        The client matches text and `re` patterns; the broker matches a BrokerPattern.
        """
        self._needs_group()
        check_names(topics)
        if bool(topics) is (pattern is not None):
            raise ValueError("subscribe() requires either topics or a pattern: pass one of them")
        is_modern = is_modern_group(self._config)
        found = None if pattern is None else compiled(pattern, is_modern=is_modern)
        wanted = Subscription(frozenset(topics), found, on_assigned, on_revoked, on_lost)
        self._subscription = wanted
        if self._running is not None:
            self._running.subscribe(wanted)

    async def unsubscribe(self) -> None:
        """Leave the group, or drop all assigned partitions."""
        self._subscription = None
        await self._started().unsubscribe()

    def assign(self, *partitions: tuple[str, int]) -> None:
        """Assign partitions manually, without a group; partitions assigned before are kept."""
        running = self._started()
        if running.participation is not None:
            raise RuntimeError(
                "assign() is not allowed after subscribe(): call unsubscribe() first"
            )
        wanted = {partition_of(one) for one in partitions}
        for one in sorted(wanted):
            running.reading.metadata.want(one.topic)
        running.reading.reader.remove(running.reading.reader.cursors.keys() - wanted)
        running.reading.add(wanted)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        return frozenset(self._started().reading.reader.cursors)

    async def partitions(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic."""
        running = self._started()
        asked = running.reading.metadata.topic(checked_name(topic), self._timeout_s)
        known = await running.life.within(asked)
        return [partition_of((topic, index)) for index in sorted(known.partitions)]

    # Records.

    def __aiter__(self) -> AsyncIterator[Record[K, V]]:
        return self._reader().records()

    def __iter__(self) -> NoReturn:
        """Raise TypeError: records are read with `async for`."""
        raise TypeError(
            "read the records with `async for`, or import Consumer from ottla.sync to use `for`"
        )

    async def poll(
        self, timeout_s: float = POLL_S, *, max_records: int | None = None
    ) -> list[Record[K, V]]:
        """Return the records that are buffered or arrive in time; an empty list if none."""
        records_max = self._poll_records
        if max_records is not None:
            records_max = whole_of(max_records, "max_records")
        if records_max < 1:
            raise ValueError(f"max_records must be at least 1, not {records_max}")
        return await self._reader().take(records_max, seconds_of(timeout_s))

    async def batches(self) -> AsyncGenerator[list[Record[K, V]]]:
        """Yield lists of records, each of one partition, without end."""
        reader = self._reader()
        while True:
            batch = await reader.take(self._poll_records, POLL_S, one_partition=True)
            if batch:
                yield batch

    async def poll_arrow(self, timeout_s: float = POLL_S, *, value_schema: Any = None) -> Any:
        """Return records of one partition as an Arrow record batch; None after the timeout.

        The columns are topic, partition, offset, timestamp, key, value and headers; keys and values
        are bytes.

        With `value_schema` they are topic, partition, offset, timestamp, key and the columns of the
        values: a pyarrow.Schema for JSON objects, an Avro schema as text or dict for Avro. A value
        column with the name of a record column gets the prefix `value.`. A missing JSON field is
        null, an unknown one is left out; a record without a value has nulls. A value that cannot be
        decoded raises an error, or is passed to `bad_record`, as with deserializers.
        """
        return await self._reader().take_columns(seconds_of(timeout_s), self._maker(value_schema))

    async def arrow(self, *, value_schema: Any = None) -> AsyncGenerator[Any]:
        """Yield Arrow record batches, each of one partition, without end, like `poll_arrow`."""
        reader, make = self._reader(), self._maker(value_schema)
        while True:
            batch = await reader.take_columns(POLL_S, make)
            if batch is not None:
                yield batch

    # Positions.

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Continue at an offset."""
        place = offset_of(offset)
        self._cursor(partition).move(place)
        self._started().reading.poke()

    def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Continue at the first record of some or all assigned partitions."""
        self._seek_to_time(partitions, EARLIEST_MS)

    def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Continue at the end of some or all assigned partitions."""
        self._seek_to_time(partitions, LATEST_MS)

    def seek_to_time(self, timestamp_ms: int, *partitions: tuple[str, int]) -> None:
        """Continue at the first record at or after a timestamp, or at the end if there is none."""
        self._seek_to_time(partitions, time_of(timestamp_ms))

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Stop handing out records of partitions until `resume`."""
        for one in partitions:
            self._cursor(one).pause()

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Hand out records of partitions again."""
        for one in partitions:
            self._started().reading.reader.resume(self._cursor(one))
        self._started().reading.poke()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        cursors = self._started().reading.reader.cursors
        return frozenset(one for one, cursor in cursors.items() if cursor.is_paused)

    async def position(self, partition: tuple[str, int], timeout_s: float | None = None) -> int:
        """Return the offset of the next record."""
        running = self._started()
        asked = running.reading.position(partition_of(partition), self._seconds(timeout_s))
        return await running.life.within(asked)

    def lag(self, partition: tuple[str, int]) -> int | None:
        """Return the lag as of the last response; None before the first."""
        return self._started().reading.lag(partition_of(partition))

    async def beginning_offsets(
        self, *partitions: tuple[str, int], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return await self._ends(partitions, EARLIEST_MS, timeout_s)

    async def end_offsets(
        self, *partitions: tuple[str, int], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last readable record of each partition."""
        return await self._ends(partitions, LATEST_MS, timeout_s)

    async def offsets_for_times(
        self, times_ms: Mapping[P, int], *, timeout_s: float | None = None
    ) -> dict[TopicPartition, FoundOffset | None]:
        """Return the first record at or after a timestamp per partition; None if there is none."""
        named = {partition_of(one): time_of(ms) for one, ms in by_partition(times_ms).items()}
        running = self._started()
        return await running.life.within(running.reading.offsets(named, self._seconds(timeout_s)))

    # Committed offsets.

    async def commit(
        self,
        offsets: Mapping[P, int | OffsetAndMetadata] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Commit offsets; without any, everything handed out counts as done."""
        running = self._started()
        doing = running.commits_of().commit(running.offsets(offsets), self._seconds(timeout_s))
        await running.life.within(doing)

    def commit_soon(
        self,
        offsets: Mapping[P, int | OffsetAndMetadata] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> asyncio.Task[None]:
        """Start a commit and return; the task has its result."""
        running = self._started()
        doing = running.commits_of().commit(running.offsets(offsets), self._seconds(timeout_s))
        return running.start(doing)

    @asynccontextmanager
    async def committing(self) -> AsyncGenerator[None]:
        """Commit everything handed out before or in the block if it succeeds; otherwise nothing."""
        running = self._started()
        offsets = running.offsets(None)
        yield
        await self.commit(
            offsets | running.offsets(None)
        )  # raises for partitions lost in the meantime

    async def committed(
        self, *partitions: tuple[str, int], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offset of each partition."""
        wanted = [partition_of(one) for one in partitions]
        running = self._started()
        asked = running.commits_of().committed(wanted, self._seconds(timeout_s))
        return await running.life.within(asked)

    @property
    def group_member(self) -> GroupMember:
        """Return this consumer's group identity, for offsets inside a transaction."""
        return self._started().group_member()

    def metrics(self) -> ConsumerMetrics:
        """Return the metrics."""
        return self._started().metrics()

    @property
    def partition_reader(self) -> PartitionReader[K, V]:
        """The reader of the assigned partitions, for columns with offsets and for stop offsets."""
        return self._started().reading

    @property
    def is_stable_member(self) -> bool:
        """Whether it is a member of a stable group; raises the error that ended its membership."""
        running = self._started()
        if (failure := running.reading.failure) is not None:
            raise failure
        state = running.participation
        membership = None if state is None else state.membership
        return membership is not None and membership.is_member and membership.waiting_for is None

    async def refresh_metadata(self, *topics: str, timeout_s: float | None = None) -> ClusterView:
        """Request metadata now, also of these topics; raises RequestError without a response."""
        metadata = self._started().reading.metadata
        for topic in topics:
            metadata.want(topic)
        return await metadata.refreshed(self._seconds(timeout_s))

    # Internals.

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
                "the consumer has no topics or partitions: call subscribe() or assign() first",
            )
        return reader

    def _maker(
        self, value_schema: Any
    ) -> Callable[[TopicPartition, Columns], tuple[Any, DeserializationFailed | None]]:
        """Return the function that makes a record batch; the schema's decoder is kept."""
        if value_schema is None:
            return lambda partition, columns: (consumed(partition, columns), None)
        known, form = self._form
        if form is None or known is not value_schema:
            form = form_of(value_schema)
            self._form = (value_schema, form)
        return partial(typed, form, self._decoder.bad_record)

    def _seconds(self, timeout_s: float | None) -> float:
        return self._timeout_s if timeout_s is None else seconds_of(timeout_s)

    def _needs_group(self) -> None:
        if self._config[consumer.GROUP_ID] is None:
            raise RequestError(
                ErrorCode.INVALID_GROUP_ID, "subscribing to topics requires the setting group.id"
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

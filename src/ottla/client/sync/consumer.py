"""The synchronous consumer.

Invariant: a record counts as handed out when the application has it, not when it has left the event
loop: `commit()`, `position()` and `close()` behave as in the asynchronous consumer. A caller that
is interrupted while waiting gets the records with its next call. A callback runs in a thread of its
own, so it may call the consumer.
"""

import asyncio
import threading
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Generic, NoReturn, TypeAlias, TypeVar

from ottla.client.consumer.consumer import POLL_S
from ottla.client.consumer.consumer import Consumer as AsyncConsumer
from ottla.client.consumer.cursor import HandedOut
from ottla.client.consumer.record import Record
from ottla.client.consumer.subscription import Pattern
from ottla.client.consumer.subscription_state import IN_A_CALLBACK
from ottla.client.group.interfaces import GroupMember, Rebalance
from ottla.client.group.offsets import OffsetAndMetadata
from ottla.client.key_value import K, V
from ottla.client.lifecycle.shutdown import noted_on
from ottla.client.network.tokens import TokenFunction
from ottla.client.partitions import P
from ottla.client.serializers import DeserializationFailed, Deserializer, Serde
from ottla.client.sync.sync_facade import SyncFacade, calls, waits
from ottla.clock import Clock
from ottla.groups.assignors.assignor import Assignor
from ottla.ids import TopicPartition
from ottla.transport.network import Connector

T = TypeVar("T")

Callback: TypeAlias = Callable[[frozenset[TopicPartition], Rebalance], None]


class _Behind(AsyncConsumer[K, V]):
    """The asynchronous consumer, whose records can be taken in another thread."""

    async def hand(self, before: HandedOut | None) -> HandedOut:
        return await self._started().reading.reader.hand(before)

    @property
    def asks(self) -> int:
        """How often records were requested; thread-safe."""
        running = self._running
        return 0 if running is None else running.reading.reader.asks

    def take_back(self, asks: int) -> None:
        """Take back what an interrupted caller has not received."""
        if self._running is not None and self.asks > asks:
            self._running.reading.reader.take_back()


class Consumer(SyncFacade[_Behind[K, V]], Generic[K, V]):
    """Reads records; `with` starts it, and closes it after a commit.

    One thread reads at a time. Functions given to it (deserializers, `bad_record`, `token`,
    assignors) are called in the consumer's own thread, where calls to the consumer are refused.
    """

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
        behind: _Behind[K, V] = _Behind(
            settings,
            *topics,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            bad_record=bad_record,
            network=network,
            clock=clock,
            random=random,
            token=token,
            assignors=assignors,
            **arguments,
        )
        super().__init__(behind)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        with noted_on(error):
            self.close(is_done=kind is None)

    def close(self, *, is_done: bool = True) -> None:
        """Commit, revoke the partitions and close; `is_done` commits all that was handed out.

        An error of a callback that no poll has raised is raised at the end.
        """
        _check_thread()
        self._shut(lambda: self._behind.close(is_done=is_done))

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

        Each callback runs in a thread of its own, and records wait until it returns; it may commit
        and seek.
        """

        def subscribed() -> None:
            self._behind.subscribe(
                *topics,
                pattern=pattern,
                on_assigned=_beside(on_assigned),
                on_revoked=_beside(on_revoked),
                on_lost=_beside(on_lost),
            )

        if self._opened is None:
            subscribed()
        else:
            self._opened.call(subscribed)

    def unsubscribe(self) -> None:
        """Leave the group, or drop all assigned partitions."""
        _check_thread()
        self._portal.run(self._behind.unsubscribe())

    assign = calls(AsyncConsumer[Any, Any].assign)
    partitions = waits(AsyncConsumer[Any, Any].partitions)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The assigned partitions."""
        return self._portal.call(lambda: self._behind.assignment)

    # Records.

    def __aiter__(self) -> NoReturn:
        """Raise TypeError: records are read with `for`."""
        raise TypeError(
            "read the records with `for`, or import Consumer from ottla to use `async for`"
        )

    def __iter__(self) -> Iterator[Record[K, V]]:
        portal, hand = self._portal, None
        while True:
            hand = portal.run(self._behind.hand(hand))
            for record in hand.left:
                hand.record = record
                yield record
                if hand.is_over:
                    break

    def poll(
        self, timeout_s: float = POLL_S, *, max_records: int | None = None
    ) -> list[Record[K, V]]:
        """Return the records that are buffered or arrive in time; an empty list if none."""
        return self._taken(lambda: self._behind.poll(timeout_s, max_records=max_records))

    def batches(self) -> Iterator[list[Record[K, V]]]:
        """Yield lists of records, each of one partition, without end."""
        return self._taken_in_turn(self._behind.batches())

    def poll_arrow(self, timeout_s: float = POLL_S, *, value_schema: Any = None) -> Any:
        """Return records of one partition as an Arrow record batch; None after the timeout.

        The columns and `value_schema` are those of the asynchronous consumer.
        """
        return self._taken(lambda: self._behind.poll_arrow(timeout_s, value_schema=value_schema))

    def arrow(self, *, value_schema: Any = None) -> Iterator[Any]:
        """Yield Arrow record batches, each of one partition, without end, like `poll_arrow`."""
        return self._taken_in_turn(self._behind.arrow(value_schema=value_schema))

    def _taken(self, asking: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return a result of the consumer; if the caller is interrupted, the next one gets it."""
        portal, asks = self._portal, self._behind.asks
        try:
            return portal.run(asking())
        except BaseException:
            portal.tell(self._behind.take_back, asks)
            raise

    def _taken_in_turn(self, iterator: AsyncIterator[T]) -> Iterator[T]:
        async def following() -> T:
            return await anext(iterator)

        while True:
            yield self._taken(following)

    # Positions.

    seek = calls(AsyncConsumer[Any, Any].seek)
    seek_to_beginning = calls(AsyncConsumer[Any, Any].seek_to_beginning)
    seek_to_end = calls(AsyncConsumer[Any, Any].seek_to_end)
    seek_to_time = calls(AsyncConsumer[Any, Any].seek_to_time)
    pause = calls(AsyncConsumer[Any, Any].pause)
    resume = calls(AsyncConsumer[Any, Any].resume)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        return self._portal.call(lambda: self._behind.paused)

    position = waits(AsyncConsumer[Any, Any].position)
    lag = calls(AsyncConsumer[Any, Any].lag)
    beginning_offsets = waits(AsyncConsumer[Any, Any].beginning_offsets)
    end_offsets = waits(AsyncConsumer[Any, Any].end_offsets)
    offsets_for_times = waits(AsyncConsumer[Any, Any].offsets_for_times)

    # Committed offsets.

    commit = waits(AsyncConsumer[Any, Any].commit)

    def commit_soon(
        self,
        offsets: Mapping[P, int | OffsetAndMetadata] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Future[None]:
        """Start a commit and return; the future has its result."""
        task = self._portal.call(self._behind.commit_soon, offsets, timeout_s=timeout_s)
        return self._portal.start(_end_of(task))

    @contextmanager
    def committing(self) -> Generator[None]:
        """Commit everything handed out before or in the block if it succeeds; otherwise nothing."""
        portal, behind = self._portal, self._behind.committing()
        portal.run(behind.__aenter__())
        try:
            yield
        except BaseException as error:
            portal.run(behind.__aexit__(type(error), error, error.__traceback__))
            raise
        portal.run(behind.__aexit__(None, None, None))

    committed = waits(AsyncConsumer[Any, Any].committed)
    metrics = calls(AsyncConsumer[Any, Any].metrics)
    refresh_metadata = waits(AsyncConsumer[Any, Any].refresh_metadata)

    @property
    def is_stable_member(self) -> bool:
        """Whether it is a member of a stable group; raises the error that ended its membership."""
        return self._portal.call(lambda: self._behind.is_stable_member)

    @property
    def group_member(self) -> GroupMember:
        """Return this consumer's group identity, for offsets inside a transaction."""
        return self._portal.call(lambda: self._behind.group_member)


class _CallbackThread(threading.Thread):
    """The thread of a callback."""


def _check_thread() -> None:
    if isinstance(threading.current_thread(), _CallbackThread):
        raise RuntimeError(IN_A_CALLBACK)


def _beside(callback: Callback | None) -> Any:
    """Wrap a blocking callback so that the loop runs it in a thread of its own."""
    if callback is None:
        return None

    async def called(partitions: frozenset[TopicPartition], why: Rebalance) -> None:
        over: Future[None] = Future()

        def call() -> None:
            try:
                callback(partitions, why)
            # Passed to the loop, which waits for it; an interrupt reaches only the main thread.
            except BaseException as error:
                over.set_exception(error)
            else:
                over.set_result(None)

        _CallbackThread(target=call, name="ottla rebalance", daemon=True).start()
        await asyncio.wrap_future(over)

    return called


async def _end_of(task: asyncio.Task[None]) -> None:
    await task

"""Topics that come, grow, change and go: decided, stored, then carried out.

Invariant: one change at a time, and none is left half done because its client went away. What is
decided is stored before anything is done about it, and clients hear of it when all of it is done;
a broker that dies in between does the rest when it starts again. A partition is in the broker's
state exactly while this broker leads it.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from types import CoroutineType
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from ottla.broker.effective_config import described_changes
from ottla.broker.group_coordinator import OFFSETS_TOPIC
from ottla.broker.leadership import Leadership
from ottla.broker.state import BrokerState, ConfigChange
from ottla.cluster.image import INTERNAL_TOPICS, PartitionState, Topic
from ottla.cluster.naming import check_policy
from ottla.cluster.topic_creation import (
    AskedTopic,
    TopicDefaults,
    added_partitions,
    assignment_of,
    check_name,
)
from ottla.cluster.znodes import TopicNode
from ottla.controller.store import ClusterStore
from ottla.coordination.errors import CoordinationError
from ottla.errors import DiskFull, ErrorCode, RequestError, StorageFailure
from ottla.ids import BrokerId, PartitionIndex, TopicPartition, Uuid
from ottla.log.shield import shielded
from ottla.settings import broker
from ottla.settings.broker import BROKER
from ottla.settings.topic import TOPIC

_LOG = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

SEGMENT_BYTES_MIN: Final = 1_048_576  # what a topic takes; the offsets' own setting takes less
REPORT_SECONDS: Final = 5.0  # between two lines about a start that takes long
RETRY_SECONDS: Final = 5.0  # between two attempts to lead what could not be led


def _change(
    method: Callable[Concatenate["Topics", P], Coroutine[Any, Any, T]],
) -> "Callable[Concatenate[Topics, P], CoroutineType[Any, Any, T]]":
    """A method that changes something: in its turn, and to its end when nobody waits any more.

    What goes wrong on the way is an answer too.
    """

    @wraps(method)
    async def change(self: "Topics", *args: P.args, **kwargs: P.kwargs) -> T:
        async def in_turn() -> T:
            async with self.turn:
                return await method(self, *args, **kwargs)

        try:
            return await shielded(in_turn())
        except StorageFailure as failure:
            raise RequestError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure)) from failure
        except CoordinationError as error:
            raise RequestError(ErrorCode.NOT_CONTROLLER, str(error)) from error

    return change


@contextmanager
def _tried_again_at_the_next_start(name: str) -> Generator[None]:
    """Go on when a deletion cannot be finished."""
    try:
        yield
    except StorageFailure as failure:
        _LOG.error("deleted topic not removed", {"topic": name, "reason": str(failure)})


class Topics:
    """The topics of the cluster, on the broker that controls it."""

    def __init__(
        self,
        state: BrokerState,
        store: ClusterStore,
        *,
        new_id: Callable[[], Uuid],
        random: Callable[[], float],
    ) -> None:
        self._state = state
        self._store = store
        self._leadership = Leadership(state, store)
        self._new_id = new_id
        self._random = random
        self.turn = asyncio.Lock()  # whoever has it changes something

    # At the start.

    async def lead_all(self) -> None:
        """Lead every partition that this broker has, in a new epoch."""
        topics = list(self._state.image.topics)
        clock = self._state.clock
        reported_s = clock.elapsed_s()
        deleted = await self._store.deletions()
        removed: list[str] = []
        for name in deleted:
            with _tried_again_at_the_next_start(name):
                await self._remove(name)
                removed.append(name)
        for number, name in enumerate(topics):
            if clock.elapsed_s() - reported_s >= REPORT_SECONDS:
                reported_s = clock.elapsed_s()
                _LOG.info("taking the lead", {"topics": number, "of": len(topics)})
            try:
                await self._leadership.lead(name, at_start=True)
            except RequestError as failure:  # what has room is led later
                _LOG.error("partitions without a leader", {"topic": name, "reason": str(failure)})
        if deleted:  # now that there are coordinators, and before it is over
            self._state.groups.forget_topics(deleted)
        for name in removed:
            with _tried_again_at_the_next_start(name):
                await self._end_deletion(name)
        self._tell_unknown()

    def _tell_unknown(self) -> None:
        known = {
            TopicPartition(name, PartitionIndex(index))
            for name, one in self._state.image.topics.items()
            for index in range(len(one.partitions))
        }
        for hosted in self._state.logs:
            if hosted.partition not in known:
                _LOG.warning(
                    "the cluster knows no such partition; its folder is left alone",
                    {"folder": hosted.log.folder},
                )

    async def keep_leading(self) -> None:
        """Lead what a disk had no room for, as soon as it has, until this is cancelled."""
        while True:
            await self._state.clock.sleep(RETRY_SECONDS)
            for name in [*self._state.image.topics]:
                if self._leadership.unled(name):
                    with suppress(RequestError):  # it was told when it began
                        await self._lead_rest(name)

    @_change
    async def _lead_rest(self, name: str) -> None:
        if unled := self._leadership.unled(name):  # else it changed meanwhile
            await self._leadership.lead(name, unled)
            _LOG.info("partitions led after all", {"topic": name, "partitions": len(unled)})

    # Changes.

    @_change
    async def create(
        self, asked: AskedTopic, values: Mapping[str, str], *, validate_only: bool = False
    ) -> Topic:
        """Make a topic, or (`validate_only`) say what would be made."""
        image = self._state.image
        check_name(asked.name, image.topics)
        assignment = assignment_of(asked, self._defaults(), self._with_room(), self._start())
        self._state.settings.checked_overrides(values)
        check_policy(asked.name, self._state.settings.broker[broker.OTTLA_TOPIC_NAME_POLICY])
        made = Topic(asked.name, self._new_id(), tuple(map(PartitionState, assignment)))
        if validate_only:
            return made
        await self._store.create_topic(made.name, TopicNode(made.id, assignment), values)
        self._state.settings.know([(made.name, values)])
        self._state.image = image.with_topics([made])
        await self._leadership.lead(made.name)
        _LOG.info(
            "topic created",
            {
                "topic": made.name,
                "id": made.id,
                "partitions": len(assignment),
                "settings": described_changes({}, values, TOPIC),
            },
        )
        return self._state.image.topics[made.name]

    async def create_missing(self, name: str) -> None:
        """Make a topic that somebody asked for, with the defaults; that of the groups as it is.

        No other internal topic: with the defaults it would lose what is to be kept in it.
        """
        if name == OFFSETS_TOPIC:
            await self.create_offsets_topic()
        elif name in INTERNAL_TOPICS:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        else:
            await self._create_once(AskedTopic(name), {})

    async def create_offsets_topic(self) -> None:
        """Make the topic that holds what groups commit, when the first group asks for it."""
        config = self._state.settings.broker
        alive = len(self._state.image.brokers)
        asked = AskedTopic(
            OFFSETS_TOPIC,
            config[broker.OFFSETS_TOPIC_NUM_PARTITIONS],
            min(config[broker.OFFSETS_TOPIC_REPLICATION_FACTOR], alive),
        )
        values = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(
                max(config[broker.OFFSETS_TOPIC_SEGMENT_BYTES], SEGMENT_BYTES_MIN)
            ),
        }
        await self._create_once(asked, values)

    async def _create_once(self, asked: AskedTopic, values: Mapping[str, str]) -> None:
        try:
            await self.create(asked, values)
        except RequestError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    @_change
    async def delete(self, name: str, topic_id: Uuid | None = None) -> None:
        """Delete a topic with all its records; with an id that one, and not its successor."""
        found = self._state.image.topics.get(name)
        if topic_id is not None and (found is None or found.id != topic_id):
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID)
        if found is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await self._store.begin_deletion(name)
        self._state.image = self._state.image.without_topics([name])
        self._state.settings.forget(name)
        self._state.traffic.pop(name, None)
        try:
            await self._remove(name, len(found.partitions))
            await self._store.delete_topic(name)
            await self._end_deletion(name)
        except StorageFailure as failure:
            # No error that clients try again: then there would be no such topic.
            raise RequestError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"{name} is deleted, but something of it is still there until the broker "
                f"starts again: {failure}",
            ) from failure
        _LOG.info("topic deleted", {"topic": name, "id": found.id})

    @_change
    async def grow(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        *,
        validate_only: bool = False,
    ) -> None:
        """Give a topic more partitions."""
        image = self._state.image
        found = image.topics.get(name)
        if found is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if name == OFFSETS_TOPIC:
            raise RequestError(
                ErrorCode.INVALID_PARTITIONS,
                f"The number of partitions says which of {name} holds a group's offsets: with "
                "another one those that are there would not be found.",
            )
        present = [one.replicas for one in found.partitions]
        added = added_partitions(present, count, assignments, self._with_room(), self._start())
        if validate_only:
            return
        node = TopicNode(found.id, (*present, *added))
        await self._store.grow_topic(name, node)
        grown = Topic(name, found.id, (*found.partitions, *map(PartitionState, added)))
        self._state.image = image.with_topics([grown])
        await self._leadership.lead(name, range(len(present), count))
        _LOG.info("partitions added", {"topic": name, "from": len(present), "to": count})

    @_change
    async def set_config(self, name: str, change: ConfigChange, *, validate_only: bool) -> None:
        """Change what a topic sets for itself; it counts at once."""
        if name not in self._state.image.topics:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        before = self._state.settings.topic_values(name)
        values = change(before)
        self._state.settings.checked_overrides(values)
        if validate_only:
            return
        await self._store.set_topic_config(name, values)
        changes = described_changes(before, values, TOPIC)
        self._state.settings.know([(name, values)])
        self.apply_config(name)
        _LOG.info("settings changed", {"topic": name, "settings": changes})

    @_change
    async def set_broker_config(
        self, change: ConfigChange, *, own: bool, validate_only: bool
    ) -> None:
        """Change the dynamic settings of this broker, or those of all; they count at once."""
        before = self._state.settings.broker_values(own=own)
        values = change(before)
        self._state.settings.check_broker(values, own=own)
        if validate_only:
            return
        await self._store.set_broker_config(self._state.id if own else None, values)
        changes = described_changes(before, values, BROKER)
        self._state.settings.set_broker(values, own=own)
        for name in self._state.image.topics:
            self.apply_config(name)
        whose = str(self._state.id) if own else "all"
        _LOG.info("settings changed", {"broker": whose, "settings": changes})

    def apply_config(self, name: str) -> None:
        """Let the partitions of a topic obey its settings as they are now."""
        settings = self._state.settings
        for index in range(len(self._state.image.topics[name].partitions)):
            partition = self._state.partitions.get(TopicPartition(name, PartitionIndex(index)))
            if partition is not None:
                partition.log.rules = settings.log_config(name)
                partition.rules = settings.topic_rules(name)
                partition.in_sync_min = self._leadership.in_sync_min(name, index)

    # How.

    async def _remove(self, name: str, count: int = 0) -> None:
        """Give its partitions up; so many it had, though the logs of some may be out of reach."""
        had = [TopicPartition(name, PartitionIndex(index)) for index in range(count)]
        found = [one.partition for one in self._state.logs if one.partition.topic == name]
        await self._leadership.drop([*dict.fromkeys([*had, *found])])

    async def _end_deletion(self, name: str) -> None:
        with suppress(DiskFull):  # nothing is left, which the next start finds
            await self._store.end_deletion(name)

    def _defaults(self) -> TopicDefaults:
        config = self._state.settings.broker
        return TopicDefaults(
            config[broker.NUM_PARTITIONS], config[broker.DEFAULT_REPLICATION_FACTOR]
        )

    def _with_room(self) -> list[BrokerId]:
        """The brokers that take new partitions: those with a directory that is not cordoned."""
        full = self._leadership.cordoned()
        has_space = any(one.path not in full for one in self._state.logs.online)
        return [
            one for one in sorted(self._state.image.brokers) if one != self._state.id or has_space
        ]

    def _start(self) -> int:
        return int(self._random() * 2**31)

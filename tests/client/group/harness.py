"""Group members without consumers: a recorder of assignments, with the real group coordinator."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from random import random as random_number
from typing import Any, Final, TypeAlias

from client.scenario_runner import until
from ottla.client.consumer.config import group_config
from ottla.client.group.classic import ClassicMembership
from ottla.client.group.commits import Commits
from ottla.client.group.consumer_coordinator import ConsumerCoordinator
from ottla.client.group.interfaces import Membership, Rebalance
from ottla.client.group.kip848 import Kip848Membership
from ottla.client.network.config import connection_config, metadata_config, retry_backoff
from ottla.client.network.connections import Connections
from ottla.client.network.metadata import Metadata
from ottla.clock import Clock, SystemClock
from ottla.groups.assignors.assignor import Assignor
from ottla.ids import PartitionIndex, TopicPartition
from ottla.settings.config_parser import client_config
from ottla.settings.consumer import CONSUMER
from ottla.transport.channel import Channel
from ottla.transport.network import Connector, TcpNetwork

FAST: Final[Mapping[str, object]] = {
    "group.id": "g",
    "retry.backoff.ms": 10,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "heartbeat.interval.ms": 50,
    "session.timeout.ms": 6000,
    "max.poll.interval.ms": 30_000,
}


def tp(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(topic, PartitionIndex(partition))


def all_of(topic: str, partitions: int) -> frozenset[TopicPartition]:
    return frozenset(tp(topic, index) for index in range(partitions))


Ledger: TypeAlias = dict[tuple[str, TopicPartition], "Owner"]
"""The owner of each partition of each group; there is never a second owner."""


class Owner:
    """Stands in for a consumer; asserts that no other owner has an assigned partition."""

    def __init__(self, topics: Sequence[str], group: str, ledger: Ledger) -> None:
        self._group, self._ledger = group, ledger
        self.subscribed = frozenset(topics)
        self.regex: str | None = None
        self.has: frozenset[TopicPartition] = frozenset()
        self.told: list[tuple[str, frozenset[TopicPartition], str]] = []
        self.on_revoke: Callable[[frozenset[TopicPartition]], Awaitable[None]] | None = None
        self.moved = asyncio.Event()

    def topics(self) -> frozenset[str]:
        return self.subscribed

    def pattern(self) -> str | None:
        return self.regex

    def owned(self) -> frozenset[TopicPartition]:
        return self.has

    async def revoke(self, partitions: frozenset[TopicPartition], why: Rebalance) -> None:
        assert partitions <= self.has
        if self.on_revoke is not None:
            await self.on_revoke(partitions)
        self._note("revoke", partitions, why, self.has - partitions)

    async def lose(self, partitions: frozenset[TopicPartition], why: Rebalance) -> None:
        assert partitions <= self.has
        self._note("lose", partitions, why, self.has - partitions)

    async def assign(self, partitions: frozenset[TopicPartition], why: Rebalance) -> None:
        assert not partitions & self.has, "assigned twice"
        for one in partitions:
            assert (self._group, one) not in self._ledger, f"{one} has an owner"
            self._ledger[self._group, one] = self
        self._note("assign", partitions, why, self.has | partitions)

    def _note(
        self,
        what: str,
        partitions: frozenset[TopicPartition],
        why: Rebalance,
        now: frozenset[TopicPartition],
    ) -> None:
        self.told.append((what, partitions, why.reason))
        if what != "assign":
            self.drop(partitions)
        self.has = now
        self.moved.set()

    def drop(self, partitions: frozenset[TopicPartition]) -> None:
        for one in partitions & self.has:
            assert self._ledger.pop((self._group, one)) is self
        self.has -= partitions

    def heard(self, what: str) -> list[frozenset[TopicPartition]]:
        """Return the partitions of every call of one kind: "assign", "revoke" or "lose"."""
        return [partitions for told, partitions, _ in self.told if told == what]


class MuteNetwork(TcpNetwork):
    """A network that can be cut, and refuses connections while it is mute."""

    def __init__(self) -> None:
        self.is_mute = False
        self._made: list[Channel] = []

    async def connect(
        self, protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> None:
        if self.is_mute:
            raise ConnectionRefusedError("mute")

        def made() -> asyncio.BaseProtocol:
            channel = protocol()
            assert isinstance(channel, Channel)
            self._made.append(channel)
            return channel

        await super().connect(made, host, port)

    def cut(self) -> None:
        for channel in self._made:
            channel.close()
        self._made.clear()


class HarnessMember:
    """A group member with all its parts; `life` is the task that runs it."""

    def __init__(
        self,
        bootstrap: str,
        topics: Sequence[str],
        ledger: Ledger,
        *,
        network: Connector | None = None,
        clock: Clock | None = None,
        random: Callable[[], float] = random_number,
        assignors: Sequence[Assignor] = (),
        pattern: str | None = None,
        **settings: object,
    ) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        given = {**FAST, **named, "bootstrap.servers": bootstrap}
        if given.get("group.protocol") == "consumer":
            for brokers in ("session.timeout.ms", "heartbeat.interval.ms"):
                del given[brokers]
        config = client_config(CONSUMER, given)
        clock = clock or SystemClock()
        network = network or TcpNetwork()
        self.rules = group_config(config, random)
        self.clock = clock
        self.owner = Owner(topics, self.rules.group_id, ledger)
        self.owner.regex = pattern
        rules = connection_config(config, random)
        self.connections = Connections(rules, network, clock, random)
        self.metadata = Metadata(
            self.connections, metadata_config(config, random), clock, self._changed
        )
        self.coordinator = ConsumerCoordinator(
            self.rules.group_id,
            self.metadata,
            rules,
            retry_backoff(config, random),
            network,
            clock,
            random,
        )
        self.membership: Membership
        if self.rules.is_modern:
            self.membership = Kip848Membership(
                self.owner, self.metadata, self.coordinator, self.rules, clock, random
            )
        else:
            self.membership = ClassicMembership(
                self.owner, self.metadata, self.coordinator, self.rules, clock, assignors
            )
        self.commits = Commits(
            self.coordinator, self.metadata, self.rules, clock, lambda: self.membership
        )
        self._asking = asyncio.create_task(self.metadata.run())
        for topic in topics:
            self.metadata.want(topic)
        self.metadata.expire()
        self.life = asyncio.create_task(self.membership.run())
        self._polls = asyncio.create_task(self._poll())
        self.is_polling = True

    def _changed(self) -> None:
        self.membership.metadata_changed()

    async def _poll(self) -> None:
        while True:
            if self.is_polling:
                self.membership.polled()
            await self.clock.sleep(self.rules.poll_interval_s / 10)

    @property
    def has(self) -> frozenset[TopicPartition]:
        return self.owner.has

    async def leave(self) -> None:
        """Leave the group as a closing consumer does."""
        self.life.cancel()
        self.owner.drop(self.has)
        await self.membership.leave(10)
        await self.close()

    async def close(self) -> None:
        """Stop without leaving the group."""
        self.owner.drop(self.has)
        for task in (self._polls, self.life, self._asking):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task
        await self.coordinator.close()
        await self.connections.close()


@asynccontextmanager
async def member_factory() -> AsyncGenerator[Callable[..., HarnessMember]]:
    """Yield a factory of members; close all of them at the end."""
    made: list[HarnessMember] = []
    ledger: Ledger = {}

    def make_member(
        bootstrap: str, topics: Sequence[str], ledger: Ledger = ledger, **named: Any
    ) -> HarnessMember:
        made.append(HarnessMember(bootstrap, topics, ledger, **named))
        return made[-1]

    try:
        yield make_member
    finally:
        for one in made:
            await one.close()


def shares(members: Sequence[HarnessMember]) -> Counter[TopicPartition]:
    return Counter(partition for one in members for partition in one.has)


async def wait_until_stable(
    members: Sequence[HarnessMember],
    partitions: frozenset[TopicPartition],
    *,
    least: int | None = None,
    seconds: float = 20,
) -> None:
    """Wait until every partition has exactly one owner, evenly by default, and no rebalance is
    pending.
    """
    least = len(partitions) // len(members) if least is None else least

    def is_settled() -> bool:
        for one in members:
            if one.life.done():
                one.life.result()
        return (
            all(one.membership.is_member and len(one.has) >= least for one in members)
            and shares(members) == Counter(partitions)
            # All members are in the same generation, so none is behind.
            and (
                members[0].rules.is_modern
                or len({one.membership.identity.generation for one in members}) == 1
            )
        )

    def told() -> str:
        return f"{[(sorted(one.has), one.membership.waiting_for) for one in members]}"

    await until(is_settled, told, seconds)

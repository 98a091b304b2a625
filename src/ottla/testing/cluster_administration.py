"""The administrator of a simulated cluster, who changes topics while clients work.

Topics of the clients grow, preferred leaders are elected, and a topic is created, written, read and
deleted again and again under the same name. It must never have a record of an earlier topic of that
name (rule B12).
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from ottla.client.admin.administrator import Admin
from ottla.client.admin.reassignments import Election
from ottla.client.consumer.consumer import Consumer
from ottla.client.producer.producer import Producer
from ottla.clock import Clock
from ottla.errors import ErrorCode, RequestError

TEMPORARY: Final = "temporary"
RECORDS: Final = 5  # of the temporary topic
PARTITIONS_MAX: Final = 4  # up to which a topic grows
PAUSE_SECONDS: Final = 0.5  # after an action that failed


class ClusterAdministrator:
    """Changes the topics of one run."""

    def __init__(
        self,
        admin: Admin,
        places: dict[str, int],
        replicas: int,
        *,
        producer: Callable[[str], Producer[bytes, bytes]],
        consumer: Callable[[str], Consumer[bytes, bytes]],
        clock: Clock,
        random: Random,
        tell: Callable[[str, str], None],
        wrong: Callable[[str], None],
    ) -> None:
        """An administrator who keeps `places` up to date: the partitions of each topic."""
        self.counts: Counter[str] = Counter()
        self._admin = admin
        self._places = places
        self._replicas = replicas
        self._producer = producer
        self._consumer = consumer
        self._clock = clock
        self._random = random
        self._tell = tell
        self._wrong = wrong
        self._rounds = 0

    async def create(self, name: str, partitions: int, config: dict[str, str]) -> None:
        """Create a topic."""
        await self._insist(
            lambda: self._admin.create_topic(name, partitions, self._replicas, config),
            ErrorCode.TOPIC_ALREADY_EXISTS,
        )

    async def work(self, done: asyncio.Event) -> None:
        """Change something every few seconds."""
        actions = (self._grow, self._elect_preferred, self._replace_temporary)
        while not done.is_set():
            await self._clock.sleep(2 + 10 * self._random.random())
            await self._random.choice(actions)()

    async def _insist(self, act: Callable[[], Awaitable[object]], done: ErrorCode) -> None:
        """Repeat an action until it succeeds, or an error shows that it has succeeded before."""
        while True:
            try:
                await act()
            except RequestError as error:
                if error.code is done:
                    return
                await self._clock.sleep(PAUSE_SECONDS)
            else:
                return

    async def _grow(self) -> None:
        name = self._random.choice([*self._places])
        total = self._places[name] + 1
        if total > PARTITIONS_MAX:
            return
        self._tell("administrator", f"{name} grows to {total} partitions")

        async def grow() -> None:
            (await self._admin.create_partitions({name: total}))[name]

        await self._insist(grow, ErrorCode.INVALID_PARTITIONS)
        self._places[name] = total
        self.counts["topics grown"] += 1

    async def _elect_preferred(self) -> None:
        self._tell("administrator", "preferred leaders are elected")
        try:
            results = await self._admin.elect_leaders(Election.PREFERRED)
        except RequestError:
            return
        self.counts["preferred elections"] += sum(one is True for one in results.told.values())

    async def _replace_temporary(self) -> None:
        """Create a topic, write and read it, and delete it."""
        self._rounds += 1
        round_number = self._rounds
        self._tell("administrator", f"{TEMPORARY} is created for the time {round_number}")
        await self.create(TEMPORARY, 1, {})
        values = [f"{round_number} {number}".encode() for number in range(RECORDS)]
        async with self._producer(f"{TEMPORARY} {round_number}") as producer:
            for value in values:
                await (await producer.send(TEMPORARY, value, partition=0))
        async with self._consumer(f"reader of {TEMPORARY} {round_number}") as consumer:
            consumer.assign((TEMPORARY, 0))
            found: list[bytes] = []
            while len(found) < len(values):
                found += [one.value or b"" for one in await consumer.poll(0.5)]
        if found != values:
            self._wrong(f"{TEMPORARY}: {found} was read, {values} was written")

        async def delete() -> None:
            (await self._admin.delete_topics(TEMPORARY))[TEMPORARY]

        await self._insist(delete, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._tell("administrator", f"{TEMPORARY} is deleted for the time {round_number}")
        self.counts["topics deleted"] += 1

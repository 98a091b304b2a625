"""Metadata right after the connection to a leader has ended: the response waits for an election."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from ottla.broker.handlers.metadata import FAILOVER_SECONDS, LISTED_SECONDS, MetadataHandler
from ottla.broker.metadata_cache import MetadataCache
from ottla.cluster.image import Address, Broker, ClusterImage, PartitionState, Topic
from ottla.controller.failure_detector import LostBroker
from ottla.ids import BrokerEpoch, BrokerId, Uuid
from ottla.protocol.apis import METADATA
from ottla.protocol.conversation import Request
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from ottla.testing.clock import SimulatedClock, simulated
from ottla.transport.connection import DeferredResponse

ONE, TWO = BrokerId(1), BrokerId(2)
VERSION = 12


def topic(name: str, leader: BrokerId) -> Topic:
    state = PartitionState((ONE, TWO)).led_by(leader, (ONE, TWO))
    return Topic(name, Uuid(name.encode() * 16), (state,))


def brokers(*ids: BrokerId) -> list[Broker]:
    return [Broker(one, BrokerEpoch(1), {"PLAINTEXT": Address("h", 9000 + one)}) for one in ids]


class Client:
    """A connection without a name, on the listener of the brokers."""

    listener = "PLAINTEXT"


class Survivor:
    """Broker 1, whose connection to broker 2 the test ends. Broker 2 leads topic b."""

    def __init__(self, clock: SimulatedClock) -> None:
        self.clock = clock
        image = ClusterImage("c").with_topics([topic("a", ONE), topic("b", TWO)])
        self.cache = MetadataCache(image.with_brokers(brokers(ONE, TWO), ONE))
        self.lost: dict[BrokerId, LostBroker] = {}
        unused: Any = None
        self._handler = MetadataHandler(
            settings=unused,
            metadata_cache=self.cache,
            topics=unused,
            scheduler=unused,
            clock=clock,
            lost_brokers=lambda _: self.lost,
        )

    def lose(self) -> None:
        """End the connection to broker 2."""
        self.lost[TWO] = LostBroker(brokers(TWO)[0], self.clock.elapsed_s())

    def ask(self, *names: str, everything: bool = False) -> object:
        """Return the response, or a DeferredResponse."""
        asked = None if everything else [MetadataRequestTopic(name=name) for name in names]
        message = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
        request = Request(METADATA, cast("Any", None), message, VERSION, 0)
        return self._handler.handle(request, cast("Any", Client()))

    async def leaders(self, *names: str) -> tuple[Sequence[int], float]:
        """Return the leaders in the response, and how long it took."""
        began_s = self.clock.elapsed_s()
        found = self.ask(*names)
        response = await found.response if isinstance(found, DeferredResponse) else found
        assert isinstance(response, MetadataResponse)
        leaders = [one.partitions[0].leader_id for one in response.topics]
        return leaders, self.clock.elapsed_s() - began_s


def played(scenario: Callable[[Survivor], Awaitable[None]]) -> None:
    async def program(clock: SimulatedClock) -> None:
        await scenario(Survivor(clock))

    simulated(program)


def test_response_names_the_leader_that_is_elected() -> None:
    async def scenario(survivor: Survivor) -> None:
        survivor.lose()
        asked = survivor.ask("a", "b")
        assert isinstance(asked, DeferredResponse)

        async def elect() -> None:
            await survivor.clock.sleep(0.2)
            # The broker is gone before the leader is elected.
            survivor.cache.image = survivor.cache.image.with_brokers(brokers(ONE), ONE)
            await survivor.clock.sleep(0.1)
            survivor.cache.image = survivor.cache.image.with_topics([topic("b", ONE)])

        electing = asyncio.ensure_future(elect())
        response = await asked.response
        await electing
        assert isinstance(response, MetadataResponse)
        assert [one.partitions[0].leader_id for one in response.topics] == [ONE, ONE]

    played(scenario)


def test_response_without_the_lost_leader_does_not_wait() -> None:
    async def scenario(survivor: Survivor) -> None:
        survivor.lose()
        for names in (("a",), ("missing",), ()):
            assert isinstance(survivor.ask(*names), MetadataResponse), names

    played(scenario)


def test_response_waits_only_for_a_short_time() -> None:
    async def scenario(survivor: Survivor) -> None:
        survivor.lose()
        leaders, seconds = await survivor.leaders("b")
        assert leaders == [TWO]
        assert FAILOVER_SECONDS <= seconds < FAILOVER_SECONDS + 0.1
        assert isinstance(survivor.ask("b"), MetadataResponse), "it has waited long enough"

    played(scenario)


def test_response_does_not_wait_for_a_leader_that_returns() -> None:
    async def scenario(survivor: Survivor) -> None:
        survivor.lose()

        async def come_back() -> None:
            await survivor.clock.sleep(0.1)
            survivor.lost.clear()

        returning = asyncio.ensure_future(come_back())
        leaders, seconds = await survivor.leaders("b")
        await returning
        assert leaders == [TWO]
        assert seconds < FAILOVER_SECONDS / 2

    played(scenario)


def test_response_lists_a_killed_broker_for_some_seconds() -> None:
    async def scenario(survivor: Survivor) -> None:
        def listed() -> list[set[int]]:
            named = survivor.ask("a")
            assert isinstance(named, MetadataResponse)
            everything: Any = survivor.ask(everything=True)
            decoded = MetadataResponse.decode(b"".join(everything), VERSION)
            return [{one.node_id for one in answer.brokers} for answer in (named, decoded)]

        def end_registration() -> None:
            image = survivor.cache.image.with_brokers(brokers(ONE), ONE)
            survivor.cache.image = image.with_topics([topic("b", ONE)])

        assert listed() == [{ONE, TWO}] * 2
        survivor.lose()
        end_registration()
        assert listed() == [{ONE, TWO}] * 2
        await survivor.clock.sleep(LISTED_SECONDS)
        assert listed() == [{ONE}] * 2

    played(scenario)

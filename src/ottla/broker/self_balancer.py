"""Balances the cluster while this broker is the controller and ottla.balance.enable is set.

`cluster/self_balance.py` decides when, `cluster/balance.py` what. This module measures: it asks
every broker for the sizes of its replicas (DescribeLogDirs) and for its traffic (DescribeConfigs).
Reassignments begin as those of AlterPartitionReassignments do. What they copy is limited by
ottla.balance.throttle.bytes.per.second: see `replication/quota.py`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from ottla.broker.cooperative import CooperativeScheduler
from ottla.broker.effective_config import EffectiveConfig
from ottla.broker.topics import Topics
from ottla.broker.traffic_window import TrafficWindow
from ottla.clock import Clock
from ottla.cluster.balance import (
    BalancePlan,
    BalancePlanner,
    BrokerPlace,
    Key,
    PartitionLoad,
    ReplicaMove,
)
from ottla.cluster.image import ClusterImage
from ottla.cluster.reassignment import target_of
from ottla.cluster.self_balance import (
    BalanceConfig,
    SelfBalance,
    observe,
    still_valid,
)
from ottla.cluster.traffic import (
    TRAFFIC_CONFIG,
    InvalidTraffic,
    Rates,
    parse_traffic,
    total_traffic,
)
from ottla.controller.controller import Controller
from ottla.controller.plan import ElectionType
from ottla.errors import ErrorCode, OttlaError, RequestError
from ottla.ids import BrokerId, PartitionIndex, TopicPartition
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from ottla.settings import broker
from ottla.transport.broker_channels import BrokerChannels

_LOG = logging.getLogger(__name__)

POLL_S: Final = 1.0  # while moves are in progress
TIMEOUT_S: Final = 10.0  # of a request to another broker
ELECTION_TIMEOUT_MS: Final = 10_000
_BROKER: Final = 4  # the type of a resource

Sizes = Mapping[Key, int]


class SelfBalancer:
    """Observes the cluster, measures its loads, and carries out what is decided."""

    def __init__(
        self,
        *,
        node_id: BrokerId,
        clock: Clock,
        settings: EffectiveConfig,
        topics: Topics,
        channels: BrokerChannels,
        scheduler: CooperativeScheduler,
        traffic: TrafficWindow,
        own_directories: Callable[[], Awaitable[DescribeLogDirsResponse]],
    ) -> None:
        """`own_directories` describes the directories of this broker."""
        self._node_id = node_id
        self._clock = clock
        self._settings = settings
        self._topics = topics
        self._channels = channels
        self._scheduler = scheduler
        self._traffic = traffic
        self._own_directories = own_directories
        self._controller: Controller | None = None  # that `_balance` is of
        self._balance: SelfBalance | None = None

    @property
    def pending(self) -> int:
        """The moves of the plan that are not complete."""
        return 0 if self._balance is None else self._balance.pending

    async def run(self) -> None:
        """Balance, until cancelled."""
        while True:
            interval_s = self._settings.broker[broker.OTTLA_BALANCE_CHECK_INTERVAL_MS] / 1000
            await self._clock.sleep(min(POLL_S, interval_s) if self.pending else interval_s)
            try:
                await self._act()
            except OttlaError as error:  # also a RequestError, and CannotPlan
                _LOG.warning("balance delayed", {"reason": str(error)})
            except Exception:
                _LOG.exception("balance failed")

    async def _act(self) -> None:
        config, topics = self._settings.broker, self._topics
        if not (config[broker.OTTLA_BALANCE_ENABLE] and topics.is_controller):
            if self._balance is not None and (dropped := self._balance.stop()):
                _LOG.info("balance stopped", {"moves": dropped})
            self._balance = None
            return
        controller = topics.controller
        if self._balance is None or self._controller is not controller:
            self._controller = controller
            self._balance = SelfBalance(self._clock.elapsed_s())
        if not controller.acts:
            return
        balance = self._balance
        step = balance.step(
            self._clock.elapsed_s(),
            observe(controller.image),
            BalanceConfig(
                config[broker.OTTLA_BALANCE_STABLE_MS] / 1000,
                config[broker.OTTLA_BALANCE_PARTITIONS_MAX],
            ),
        )
        if step.dropped:
            _LOG.info("balance plan dropped", {"moves": step.dropped})
        if step.elect:
            preferred = [*map(_partition, step.elect)]
            await topics.elect_leaders(
                ElectionType.PREFERRED, preferred, topics.propagation(ELECTION_TIMEOUT_MS)
            )
        if step.begin:
            await self._begin(balance, controller, step.begin)
        if step.completed:
            _LOG.info("balance completed")
        if step.measures:
            await self._plan(balance, controller)

    async def _begin(
        self, balance: SelfBalance, controller: Controller, moves: Sequence[ReplicaMove]
    ) -> None:
        valid = still_valid(controller.image, moves)
        begun: set[Key] = set()
        try:
            if valid:
                outcomes = await self._topics.alter_reassignments(
                    {_partition(one.key): one.after for one in valid}, can_change_factor=False
                )
                begun = {
                    (key.topic, key.partition)
                    for key, one in outcomes.items()
                    if one.error is ErrorCode.NONE
                }
        finally:
            balance.refused(one.key for one in moves if one.key not in begun)
            counts = self._topics.controller_counts
            done = [one for one in valid if one.key in begun]
            counts.balance_moves += len(done)
            counts.balance_bytes += sum(one.moved_bytes for one in done)

    async def _plan(self, balance: SelfBalance, controller: Controller) -> None:
        image = controller.image
        brokers, loads = await self._measured(image)
        config = self._settings.broker
        goal = config[broker.OTTLA_BALANCE_GOAL_PERCENT] / 100
        traffic_min = config[broker.OTTLA_BALANCE_TRAFFIC_MIN_BYTES_PER_SECOND]
        planner = BalancePlanner(brokers, loads, goal, traffic_min)
        async for _ in self._scheduler.new_loop().over(planner.steps()):
            pass
        plan = planner.plan()
        if balance.planned(plan):
            _LOG.info("balance planned", _facts(plan))

    async def _measured(self, image: ClusterImage) -> tuple[list[BrokerPlace], list[PartitionLoad]]:
        """Return the brokers, and the loads of all partitions."""
        known = sorted(image.brokers)
        answers = await asyncio.gather(*map(self._directories, known))
        traffic = total_traffic(await asyncio.gather(*map(self._rates, known)))
        sizes: dict[BrokerId, Sizes] = {}
        places: list[BrokerPlace] = []
        for one, answer in zip(known, answers, strict=True):
            online = [each for each in answer.results if not each.error_code]
            sizes[one] = {
                (topic.name, row.partition_index): row.partition_size
                for each in online
                for topic in each.topics
                for row in topic.partitions
            }
            # A drained broker neither gets nor loses replicas: `ottla broker drain` moves them.
            is_drained = all(each.is_cordoned for each in online)
            about = image.brokers[one]
            places.append(BrokerPlace(one, about.rack, machine=about.host, is_fixed=is_drained))
        loads: list[PartitionLoad] = []
        for topic in image.topics.values():
            for index, state in enumerate(topic.partitions):
                if state.version < 0:
                    continue
                key = (topic.name, index)
                size = sizes.get(state.leader, {}).get(key, 0)
                rates = traffic.get(key, Rates())
                loads.append(PartitionLoad(*key, target_of(state), size, *rates))
        return places, loads

    async def _directories(self, one: BrokerId) -> DescribeLogDirsResponse:
        if one == self._node_id:
            return await self._own_directories()
        return await self._channels.ask(
            one, DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, timeout_s=TIMEOUT_S
        )

    async def _rates(self, one: BrokerId) -> Mapping[Key, Rates]:
        if one == self._node_id:
            return self._traffic.rates()
        asked = DescribeConfigsResource(
            resource_type=_BROKER, resource_name=str(one), configuration_keys=[TRAFFIC_CONFIG]
        )
        response = await self._channels.ask(
            one,
            DescribeConfigsRequest(resources=[asked]),
            DescribeConfigsResponse,
            timeout_s=TIMEOUT_S,
        )
        (result,) = response.results
        if result.error_code:
            raise RequestError(ErrorCode(result.error_code), result.error_message)
        for config in result.configs:  # a broker of an older version returns none
            if config.name == TRAFFIC_CONFIG and config.value is not None:
                try:
                    return parse_traffic(config.value)
                except InvalidTraffic as error:
                    raise RequestError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        return {}


def _partition(key: Key) -> TopicPartition:
    return TopicPartition(key[0], PartitionIndex(key[1]))


def _facts(plan: BalancePlan) -> dict[str, object]:
    copies = sum(bool(one.moved_bytes) for one in plan.moves)
    facts: dict[str, object] = {
        "moves": len(plan.moves),
        "copies": copies,
        "bytes": plan.moved_bytes,
    }
    if plan.above:
        facts["above_goal"] = ",".join(sorted({str(one.broker) for one in plan.above}))
    return facts

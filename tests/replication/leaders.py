"""A leader with followers whose fetches the test makes."""

from collections.abc import Callable, Coroutine
from typing import Any

from msgspec.structs import replace

from log.log_managers import TOPIC_ID, opened, partition
from log.logs import made
from ottla.cluster.image import PartitionState
from ottla.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset
from ottla.log.log_config import LogConfig
from ottla.log.log_manager import LogManager
from ottla.records.validation import ValidationConfig
from ottla.replication.in_sync_replicas import IsrProposal
from ottla.replication.partition import Partition, Propose
from ottla.testing.clock import SimulatedClock, simulated
from ottla.testing.disk import SimulatedDisk

EPOCH = LeaderEpoch(2)
LAG_S = 30.0


def replicated(*in_sync: int, replicas: tuple[int, ...] = (1, 2, 3)) -> PartitionState:
    """The state of a partition that broker 1 leads in epoch 2."""
    return PartitionState(
        tuple(map(BrokerId, replicas)), BrokerId(1), EPOCH, tuple(map(BrokerId, in_sync)), 5
    )


class Leader:
    """A partition that broker 1 leads, and the ISR changes that it proposes."""

    def __init__(
        self, led: Partition, logs: LogManager, clock: SimulatedClock, disk: SimulatedDisk
    ) -> None:
        self.led, self.logs, self.clock, self.disk = led, logs, clock, disk
        self.proposals: list[IsrProposal] = []
        self.eligible = True  # whether followers may join the ISR
        self.propose: Propose | None = None
        self.alive = {1, 2, 3}

    def proposed(self, led: Partition, proposal: IsrProposal) -> None:
        """Note a proposal, and pass it on."""
        self.proposals.append(proposal)
        if self.propose is not None:
            self.propose(led, proposal)

    def append(self, *values: bytes, acks: int = -1, **how: Any) -> int:
        """Append a batch; return its last offset."""
        data = made(values or (b"x",), timestamp=0, **how)
        return self.led.append(memoryview(data), produce_version=12, acks=acks, now_ms=0)[1]

    def fetch(
        self, broker_id: int, offset: int | None = None, *, epoch: int = 9, start: int = 0
    ) -> None:
        """Let a follower fetch, by default from the log end offset."""
        at = self.led.log.log_end_offset if offset is None else Offset(offset)
        self.led.follower_fetched(
            BrokerId(broker_id), BrokerEpoch(epoch), at, Offset(start), self.clock.elapsed_s()
        )

    @property
    def state(self) -> PartitionState:
        """The committed state."""
        assert self.led.in_sync is not None
        return self.led.in_sync.state

    def changed(self, *in_sync: int, **fields: Any) -> PartitionState:
        """The next state, with this ISR."""
        state = self.state
        isr = tuple(map(BrokerId, in_sync))
        return replace(state, in_sync=isr, version=state.version + 1, **fields)

    def commit(self, *in_sync: int) -> None:
        """Let the controller answer with a new ISR."""
        self.led.isr_answered(self.changed(*in_sync))


def run(
    scenario: Callable[[Leader], Coroutine[Any, Any, None]],
    state: PartitionState,
    *,
    in_sync_min: int = 1,
    rules: LogConfig | None = None,
    before: int = 0,
    high_watermark: int = 0,
) -> None:
    """Run a scenario; the log has some records of epoch 1 below the leader's epoch."""

    async def program(clock: SimulatedClock) -> None:
        config = rules or LogConfig()
        disk = SimulatedDisk()
        logs = await opened(disk, clock, rules=config)
        hosted = await logs.create(partition(0), TOPIC_ID, config)
        validation = ValidationConfig(timestamp_after_max_ms=2**62)
        if before:
            hosted.log.begin_epoch(LeaderEpoch(1))
            earlier = Partition(logs, hosted, TOPIC_ID, LeaderEpoch(1), validation, 1)
            for _ in range(before):
                data = memoryview(made([b"earlier"], timestamp=0))
                earlier.append(data, produce_version=12, acks=1, now_ms=0)
        hosted.high_watermark = Offset(high_watermark)
        hosted.log.begin_epoch(state.leader_epoch)
        found: list[Leader] = []

        def propose(led: Partition, proposal: IsrProposal) -> None:
            found[0].proposed(led, proposal)

        led = Partition(
            logs,
            hosted,
            TOPIC_ID,
            state.leader_epoch,
            validation,
            in_sync_min,
            state=state,
            node_id=BrokerId(1),
            clock=clock,
            propose=propose,
            lag_s=LAG_S,
            is_eligible=lambda broker_id, epoch: found[0].eligible,
            is_alive=lambda broker_id: broker_id in found[0].alive,
        )
        found.append(Leader(led, logs, clock, disk))
        await scenario(found[0])

    simulated(program)

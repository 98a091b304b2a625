# pyright: reportPrivateUsage=false
"""Turns a partition of a running broker into one with followers whose fetches the test makes."""

from msgspec.structs import replace

from broker.nodes import RunningBroker
from ottla.cluster.image import PartitionState
from ottla.ids import BrokerEpoch, BrokerId, Offset
from ottla.replication.in_sync_replicas import IsrProposal
from ottla.replication.partition import Partition


class Replicas:
    """A partition with the replicas 1, 2 and 3, led by the running broker."""

    def __init__(
        self, running: RunningBroker, topic: str = "t", index: int = 0, in_sync_min: int = 1
    ) -> None:
        self.running = running
        self.proposals: list[IsrProposal] = []
        self.led: Partition = running.parts.replica_manager.leader_partition(topic, index)
        self.led.node_id = BrokerId(1)
        self.led._propose = self._propose
        self.led._is_alive = self._is_alive
        self.led.set_in_sync_min(in_sync_min)
        state = running.parts.metadata_cache.image.state(topic, index)
        assert state is not None
        assert state.leader == 1
        self.state: PartitionState = state
        if self.led.in_sync is not None:
            self.state = self.led.in_sync.state
        self.change(1, 2, 3)

    def _propose(self, led: Partition, proposal: IsrProposal) -> None:
        self.proposals.append(proposal)

    def _is_alive(self, broker_id: BrokerId) -> bool:
        return True

    def change(self, *in_sync: int) -> None:
        """Let the controller change the ISR."""
        isr = tuple(map(BrokerId, in_sync))
        three = (BrokerId(1), BrokerId(2), BrokerId(3))
        version = self.state.version + 1
        self.state = replace(self.state, replicas=three, in_sync=isr, version=version)
        self.led.update(self.state)

    def fetch(self, *broker_ids: int, offset: int | None = None, start: int = 0) -> None:
        """Let followers fetch, by default from the log end offset."""
        end = self.led.log.log_end_offset if offset is None else Offset(offset)
        now_s = self.running.parts.clock.elapsed_s()
        for broker_id in broker_ids:
            self.led.follower_fetched(
                BrokerId(broker_id), BrokerEpoch(1), end, Offset(start), now_s
            )

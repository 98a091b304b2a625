"""Updates of a controller that arrive too late at a broker (rule B4).

A broker that was cut off may read what an earlier connection sent after what a later one sent.
"""

from pathlib import Path

import pytest
from msgspec.structs import replace

from broker.nodes import broker, run
from broker.test_node import batch, create, produce
from ottla.controller.control_update import ControlUpdate, ReplicaState, StoppedReplica
from ottla.errors import ErrorCode, RequestError
from ottla.ids import ControllerEpoch, LeaderEpoch, PartitionIndex, TopicPartition, Uuid

KEY = TopicPartition("orders", PartitionIndex(0))


def test_b4_late_updates_change_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client, roles = await running.client(), running.parts.roles
            topic_id = await create(client, "orders")
            assert await produce(client, "orders", batch(b"x")) == (0, 0)
            image = running.parts.metadata_cache.image
            state = image.state(*KEY)
            assert state is not None
            now = ControlUpdate(
                controller=image.controller,
                controller_epoch=image.controller_epoch,
                broker_epoch=roles.broker_epoch,
                changed=(),
            )
            # Its leader has changed since.
            later = replace(state, leader_epoch=LeaderEpoch(1), version=state.version + 1)
            led = ReplicaState("orders", topic_id, PartitionIndex(KEY.partition), later)
            assert not await roles.apply(replace(now, replicas=[led]))
            stop = StoppedReplica(KEY, delete=True, leader_epoch=state.leader_epoch)
            failures = await roles.apply(replace(now, stopped=[stop]))
            assert {key: error.code for key, error in failures.items()} == {
                KEY: ErrorCode.FENCED_LEADER_EPOCH
            }
            # Another topic had this name before.
            deleted = {"orders": Uuid(b"an earlier topic")}
            assert not await roles.apply(replace(now, deleted=deleted))
            earlier = ControllerEpoch(image.controller_epoch - 1)
            with pytest.raises(RequestError) as refused:
                await roles.apply(
                    replace(now, controller_epoch=earlier, deleted={"orders": topic_id})
                )
            assert refused.value.code is ErrorCode.STALE_CONTROLLER_EPOCH
            assert running.parts.metadata_cache.image.topics["orders"].id == topic_id
            assert await produce(client, "orders", batch(b"y")) == (0, 1)
            # In time, each of them deletes the records.
            stop = StoppedReplica(KEY, delete=True, leader_epoch=later.leader_epoch)
            assert not await roles.apply(replace(now, stopped=[stop]))
            assert running.parts.replica_manager.logs.get(KEY) is None
            assert not await roles.apply(replace(now, deleted={"orders": topic_id}))
            assert "orders" not in running.parts.metadata_cache.image.topics

    run(scenario)

"""ConsumerGroupHeartbeat: every version is refused, because only classic groups are supported."""

from pathlib import Path

import pytest

from broker.nodes import broker, run
from ottla.errors import ErrorCode
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


@pytest.mark.parametrize("version", [0, 1])
def test_kip848_is_refused_with_a_hint(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            request = ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="m",
                member_epoch=0,
                rebalance_timeout_ms=1000,
                subscribed_topic_names=["t"],
                topic_partitions=[],
            )
            answer = await client.ask(request, ConsumerGroupHeartbeatResponse, version)
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
            assert "group.protocol=classic" in (answer.error_message or "")
            assert answer.assignment is None

    run(scenario)

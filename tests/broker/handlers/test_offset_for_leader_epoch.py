"""OffsetForLeaderEpoch: the end offset of a leader epoch (rule A2)."""

from pathlib import Path

from broker.nodes import Client, broker, run
from broker.test_node import batch, create, produce
from ottla.errors import ErrorCode
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


async def end_of(
    client: Client, epoch: int, *, known: int = -1, index: int = 0
) -> tuple[int, int, int]:
    asked = OffsetForLeaderPartition(
        partition=index, current_leader_epoch=known, leader_epoch=epoch
    )
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])]
    )
    answer = await client.ask(request, OffsetForLeaderEpochResponse)
    (one,) = answer.topics[0].partitions
    return one.error_code, one.leader_epoch, one.end_offset


def test_epoch_ends_where_the_next_one_starts(tmp_path: Path) -> None:
    async def scenario() -> None:
        for _ in range(3):  # each start has a new leader epoch
            async with broker(tmp_path) as running:
                client = await running.client()
                if not list((tmp_path / "data").glob("t-0")):
                    await create(client, "t")
                await produce(client, "t", batch(b"a", b"b"))
        async with broker(tmp_path) as running:
            client = await running.client()
            assert await end_of(client, 0) == (0, 0, 2)
            assert await end_of(client, 1) == (0, 1, 4)
            assert await end_of(client, 2) == (0, 2, 6)
            assert await end_of(client, 3, known=3) == (0, 3, 6)
            assert await end_of(client, 9) == (0, -1, -1)
            assert (await end_of(client, 0, known=2))[0] == ErrorCode.FENCED_LEADER_EPOCH
            assert (await end_of(client, 0, known=4))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (await end_of(client, 0, index=1))[0] == missing

    run(scenario)

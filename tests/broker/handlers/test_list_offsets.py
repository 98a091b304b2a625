"""ListOffsets: by timestamp, and by the special timestamps."""

from pathlib import Path

from broker.nodes import Client, broker, run
from broker.test_node import create, produce
from cases import each_case
from ottla.errors import ErrorCode
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ottla.records.builder import BatchBuilder

T = 1_700_000_000_000
Found = tuple[int, int, int]


async def find(
    client: Client,
    timestamp: int,
    *,
    version: int = 11,
    topic: str = "t",
    epoch: int = -1,
    twice: bool = False,
) -> Found:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp, current_leader_epoch=epoch)
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[ListOffsetsTopic(name=topic, partitions=[asked] * (2 if twice else 1))],
    )
    answer = await client.ask(request, ListOffsetsResponse, version)
    (one,) = answer.topics[0].partitions
    return one.error_code, one.timestamp, one.offset


async def filled(client: Client) -> None:
    """Produce records with the timestamps T, T+30 and T+20, one per batch."""
    await create(client, "t")
    for later in (0, 30, 20):
        builder = BatchBuilder()
        builder.append(T + later, b"k", b"v")
        await produce(client, "t", builder.build())


@each_case(
    ("timestamp", "found"),
    [
        (-2, (0, -1, 0)),
        (-1, (0, -1, 3)),
        (-3, (0, T + 30, 1)),
        (-4, (0, -1, 0)),
        (-5, (0, -1, -1)),
        (0, (0, T, 0)),
        (T, (0, T, 0)),
        (T + 1, (0, T + 30, 1)),
        (T + 30, (0, T + 30, 1)),
        (T + 31, (0, -1, -1)),
        (-7, (ErrorCode.UNSUPPORTED_VERSION, -1, -1)),
    ],
)
def test_timestamps_map_to_offsets(tmp_path: Path, timestamp: int, found: Found) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await filled(client)
            assert await find(client, timestamp) == found

    run(scenario)


def test_unsupported_timestamps_and_bad_requests_are_refused(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await filled(client)
            for timestamp, since in ((-3, 7), (-4, 8), (-5, 9), (-6, 11)):
                early = await find(client, timestamp, version=since - 1)
                assert early[0] == ErrorCode.UNSUPPORTED_VERSION, timestamp
                assert (await find(client, timestamp, version=since))[0] == 0, timestamp
            assert (await find(client, -1, topic="u"))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert (await find(client, -1, epoch=9))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH
            assert (await find(client, -1, twice=True))[0] == ErrorCode.INVALID_REQUEST

    run(scenario)

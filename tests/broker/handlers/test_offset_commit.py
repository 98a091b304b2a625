"""OffsetCommit: stores offsets of partitions that exist, and returns an error for the others."""

from collections.abc import Sequence
from pathlib import Path

from broker.handlers.test_offset_fetch import committed
from broker.members import Member, group_broker, single_member
from broker.nodes import Client, broker, run
from broker.test_node import create
from cases import each_case
from ottla.errors import ErrorCode
from ottla.ids import ZERO_UUID, Uuid
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

VERSIONS = range(2, 11)
STRANGER = Uuid(b"0123456789abcdef")
NOBODY = Member("", -1)

Asked = tuple[str | Uuid, int]


async def commit(
    client: Client,
    version: int,
    asked: Sequence[Asked],
    offset: int = 5,
    *,
    group: str = "g",
    member: Member = NOBODY,
    instance: str | None = None,
    metadata: str | None = "note",
    retention_ms: int = -1,
) -> list[int]:
    """Return the error code of each partition; topics are given by name or by id."""
    topics: dict[str | Uuid, list[int]] = {}
    for topic, index in asked:
        topics.setdefault(topic, []).append(index)
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.id,
        group_instance_id=instance,
        retention_time_ms=retention_ms,
        topics=[
            OffsetCommitRequestTopic(
                name=topic if isinstance(topic, str) else "",
                topic_id=topic if isinstance(topic, Uuid) else ZERO_UUID,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=3,
                        committed_metadata=metadata,
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in topics.items()
        ],
    )
    answer = await client.ask(request, OffsetCommitResponse, version)
    named = [one.name if version < 10 else one.topic_id for one in answer.topics]
    assert named == list(topics)
    told = [[one.partition_index for one in topic.partitions] for topic in answer.topics]
    assert told == list(topics.values())
    return [one.error_code for topic in answer.topics for one in topic.partitions]


async def topic_id(client: Client, name: str = "u") -> Uuid:
    return await create(client, name, 2)


def test_commit_is_stored_in_every_version(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            known = await topic_id(client)
            for version in VERSIONS:
                topic = known if version >= 10 else "u"
                assert await commit(client, version, [(topic, 0), (topic, 1)], version) == [0, 0]
                epoch = 3 if version >= 6 else -1
                assert await committed(client, "u", 0, 1) == [(0, version, epoch, "note")] * 2
            # Null metadata is stored as an empty string.
            assert await commit(client, 9, [("u", 0)], 7, metadata=None) == [0]
            assert await committed(client, "u", 0) == [(0, 7, 3, "")]

    run(scenario)


def test_retention_time_of_old_clients_is_used(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            offsets = running.parts.groups.of("g").groups.ledger.offsets
            for version in VERSIONS[:-1]:
                for retention_ms in (5000, -1):
                    before_ms = running.parts.clock.now_ms()
                    result = await commit(client, version, [("t", 0)], retention_ms=retention_ms)
                    assert result == [0]
                    (known,) = offsets.of("g").values()
                    if version > 4 or retention_ms < 0:
                        assert known.expires_ms is None, "the broker's retention applies"
                    else:
                        after_ms = running.parts.clock.now_ms()
                        assert known.expires_ms is not None
                        assert before_ms <= known.expires_ms - retention_ms <= after_ms

    run(scenario)


def test_errors_are_reported_per_partition(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            known = await topic_id(client)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for version in VERSIONS[:-1]:
                asked: list[Asked] = [("nowhere", 0), ("u", 7), ("u", 1), ("u", -1), ("t", 0)]
                result = await commit(client, version, asked, version)
                assert result == [unknown, unknown, 0, unknown, 0]
                assert await commit(client, version, [("nowhere", 0)]) == [unknown]
                assert [one[1] for one in await committed(client, "u", 0, 1)] == [-1, version]
            by_id: list[Asked] = [(STRANGER, 0), (known, 7), (known, 0)]
            result = await commit(client, 10, by_id)
            assert result == [ErrorCode.UNKNOWN_TOPIC_ID, unknown, 0]

    run(scenario)


def test_duplicate_partition_gets_two_results(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            await single_member(client)
            twice: list[Asked] = [("t", 0), ("t", 0)]
            refused = ErrorCode.UNKNOWN_MEMBER_ID
            stranger = Member("strange", 1)
            assert await commit(client, 9, twice, member=stranger) == [refused, refused]
            long = "x" * 5000
            too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
            assert await commit(client, 9, twice, group="h", metadata=long) == [too_large] * 2
            assert await commit(client, 9, twice, group="h") == [0, 0]

    run(scenario)


@each_case("version", VERSIONS[:-1])
def test_only_a_current_member_may_commit(tmp_path: Path, version: int) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            member = await single_member(client)
            asked: list[Asked] = [("t", 0), ("t", 1), ("nowhere", 0)]
            gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            for who, code in (
                (Member(member.id, 7), ErrorCode.ILLEGAL_GENERATION),
                (Member("strange", 1), ErrorCode.UNKNOWN_MEMBER_ID),
                (NOBODY, ErrorCode.UNKNOWN_MEMBER_ID),
                (member, ErrorCode.NONE),
            ):
                result = await commit(client, version, asked, member=who)
                assert result == [code, code, gone]
                there = code is ErrorCode.NONE
                assert (await committed(client, "t", 0))[0][1] == (5 if there else -1)

    run(scenario)


def test_fenced_static_member_cannot_commit(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            member = await single_member(client, instance="i")
            for version in VERSIONS[5:-1]:
                here: list[Asked] = [("t", 0)]
                assert await commit(client, version, here, member=member, instance="i") == [0]
                other = Member("strange", member.generation)
                result = await commit(client, version, here, member=other, instance="i")
                assert result == [ErrorCode.FENCED_INSTANCE_ID]

    run(scenario)


def test_generation_of_an_unknown_group_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            for version in VERSIONS[:-1]:
                result = await commit(
                    client, version, [("t", 0)], group="absent", member=Member("m", 3)
                )
                late = version >= 9  # KIP-848
                code = ErrorCode.GROUP_ID_NOT_FOUND if late else ErrorCode.ILLEGAL_GENERATION
                assert result == [code]

    run(scenario)


def test_empty_commit_succeeds(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            for version in VERSIONS:
                assert await commit(client, version, []) == []

    run(scenario)


def test_not_coordinator_is_reported(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            for version in VERSIONS[:-1]:
                result = await commit(client, version, [("t", 0), ("t", 1)])
                missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                assert result == [ErrorCode.NOT_COORDINATOR, missing]

    run(scenario)

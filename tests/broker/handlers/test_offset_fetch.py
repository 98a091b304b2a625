"""OffsetFetch: the committed offsets of one group or of several."""

from collections.abc import Sequence
from pathlib import Path

from broker.members import group_broker, single_member
from broker.nodes import Client, broker, run
from broker.test_node import create
from ottla.errors import ErrorCode
from ottla.groups.offsets import CommittedOffset
from ottla.groups.records import offset_record
from ottla.ids import ZERO_UUID, PartitionIndex, ProducerId, TopicPartition, Uuid
from ottla.ids import Offset as LogOffset
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

SINGLE, BATCHED = range(1, 8), range(8, 11)
STRANGER = Uuid(b"0123456789abcdef")

Offset = tuple[int, int, int, str | None]  # error, offset, leader epoch, metadata
Asked = Sequence[tuple[str, Sequence[int]]]
Found = dict[str, dict[int, Offset]]

NOTHING: Offset = (0, -1, -1, "")


async def commit(
    client: Client, topic: str, index: int, offset: int, *, group: str = "g", epoch: int = 3
) -> None:
    partition = OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset,
        committed_leader_epoch=epoch,
        committed_metadata="note",
    )
    request = OffsetCommitRequest(
        group_id=group,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    answer = await client.ask(request, OffsetCommitResponse, 9)
    assert answer.topics[0].partitions[0].error_code == 0


async def committed(client: Client, topic: str, *indexes: int) -> list[Offset]:
    """Return the committed offsets of group g."""
    _, found = await single(client, 7, [(topic, indexes)])
    return [found[topic][index] for index in indexes]


async def single(
    client: Client,
    version: int,
    asked: Sequence[tuple[str, Sequence[int]]] | None,
    group: str = "g",
) -> tuple[int, Found]:
    """Send the request in the format of versions 0 to 7, for one group."""
    topics = None
    if asked is not None:
        topics = [OffsetFetchRequestTopic(name=name, partition_indexes=ns) for name, ns in asked]
    request = OffsetFetchRequest(group_id=group, topics=topics)
    answer = await client.ask(request, OffsetFetchResponse, version)
    return answer.error_code, {
        topic.name: {
            one.partition_index: (
                one.error_code,
                one.committed_offset,
                one.committed_leader_epoch,
                one.metadata,
            )
            for one in topic.partitions
        }
        for topic in answer.topics
    }


Wanted = dict[str | Uuid, list[int]]


def wanted(group: str, asked: Wanted | None) -> OffsetFetchRequestGroup:
    topics = None
    if asked is not None:
        topics = [
            OffsetFetchRequestTopics(
                name=topic if isinstance(topic, str) else "",
                topic_id=topic if isinstance(topic, Uuid) else ZERO_UUID,
                partition_indexes=indexes,
            )
            for topic, indexes in asked.items()
        ]
    return OffsetFetchRequestGroup(group_id=group, topics=topics)


async def batched(
    client: Client, version: int, *groups: OffsetFetchRequestGroup
) -> dict[str, tuple[int, dict[str | Uuid, dict[int, Offset]]]]:
    """Send the request in the format of version 8 and later; from version 10 topics are given by
    id.
    """
    answer = await client.ask(OffsetFetchRequest(groups=groups), OffsetFetchResponse, version)
    assert [one.group_id for one in answer.groups] == [one.group_id for one in groups]
    return {
        group.group_id: (
            group.error_code,
            {
                topic.topic_id if version >= 10 else topic.name: {
                    one.partition_index: (
                        one.error_code,
                        one.committed_offset,
                        one.committed_leader_epoch,
                        one.metadata,
                    )
                    for one in topic.partitions
                }
                for topic in group.topics
            },
        )
        for group in answer.groups
    }


def test_single_group_returns_some_or_all_partitions(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            await commit(client, "t", 1, 5)
            for version in SINGLE:
                there = (0, 5, 3 if version >= 5 else -1, "note")
                asked = [("t", [0, 1, 7]), ("nowhere", [0])]
                nothing = {"t": {0: NOTHING, 7: NOTHING}, "nowhere": {0: NOTHING}}
                code, found = await single(client, version, asked)
                assert code == 0
                assert found == nothing | {"t": {0: NOTHING, 1: there, 7: NOTHING}}
                assert await single(client, version, []) == (0, {})
                _, found = await single(client, version, asked, "absent")
                assert found == nothing | {"t": {0: NOTHING, 1: NOTHING, 7: NOTHING}}
                if version >= 2:
                    assert await single(client, version, None) == (0, {"t": {1: there}})
                    assert await single(client, version, None, "absent") == (0, {})

    run(scenario)


def test_several_groups_in_one_request(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            known = await create(client, "u", 2)
            await commit(client, "u", 1, 5)
            await commit(client, "u", 0, 6, group="h", epoch=-1)
            five, six = (0, 5, 3, "note"), (0, 6, -1, "note")
            for version in BATCHED:
                u: str | Uuid = known if version >= 10 else "u"
                found = await batched(
                    client,
                    version,
                    wanted("g", {u: [0, 1, 7]}),
                    wanted("h", None),
                    wanted("absent", {u: [0]}),
                    wanted("nobody", None),
                )
                assert found == {
                    "g": (0, {u: {0: NOTHING, 1: five, 7: NOTHING}}),
                    "h": (0, {u: {0: six}}),
                    "absent": (0, {u: {0: NOTHING}}),
                    "nobody": (0, {}),
                }
                assert await batched(client, version) == {}

    run(scenario)


def test_unknown_topic_is_an_error_only_by_id(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            known = await create(client, "u")
            await commit(client, "u", 0, 5)
            unknown = (ErrorCode.UNKNOWN_TOPIC_ID, -1, -1, "")
            found = await batched(client, 10, wanted("g", {STRANGER: [0, 3], known: [0]}))
            five = (0, 5, 3, "note")
            assert found == {"g": (0, {STRANGER: {0: unknown, 3: unknown}, known: {0: five}})}
            for version in (8, 9):
                found = await batched(client, version, wanted("g", {"nowhere": [0]}))
                assert found == {"g": (0, {"nowhere": {0: NOTHING}})}

    run(scenario)


def test_unstable_offset_is_refused_with_require_stable(
    tmp_path: Path,
) -> None:
    """A log that Kafka wrote can contain offset commits of an open transaction."""

    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            known = running.parts.metadata_cache.image.topics["t"].id
            await commit(client, "t", 0, 5)
            pending = offset_record(
                "g", TopicPartition("t", PartitionIndex(0)), CommittedOffset(9, 3, "", 0)
            )
            ledger = running.parts.groups.of("g").groups.ledger
            ledger.replay(LogOffset(7), pending.key, pending.value, ProducerId(4))
            for version in (7, 8, 9, 10):
                t: str | Uuid = known if version >= 10 else "t"
                for stable in (False, True):
                    request = OffsetFetchRequest(groups=[wanted("g", {t: [0]})])
                    if version < 8:
                        asked = OffsetFetchRequestTopic(name="t", partition_indexes=[0])
                        request = OffsetFetchRequest(group_id="g", topics=[asked])
                    request.require_stable = stable
                    answer = await client.ask(request, OffsetFetchResponse, version)
                    topics = answer.groups[0].topics if version >= 8 else answer.topics
                    (one,) = topics[0].partitions
                    unstable = (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
                    result = (one.error_code, one.committed_offset)
                    assert result == (unstable if stable else (0, 5))

    run(scenario)


def test_not_coordinator_is_reported(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with broker(tmp_path) as running:
            client = await running.client()
            await create(client, "t")
            code = ErrorCode.NOT_COORDINATOR
            for version in SINGLE:
                result, found = await single(client, version, [("t", [0, 1])])
                # Version 1 has no top-level error, so every partition carries it.
                each = (code if version < 2 else 0, -1, -1, "")
                assert result == (code if version >= 2 else 0)
                assert found == {"t": {0: each, 1: each}}
                if version >= 2:
                    assert await single(client, version, None) == (code, {})
            for version in BATCHED:
                found = await batched(client, version, wanted("g", {}), wanted("h", None))
                assert found == {"g": (code, {}), "h": (code, {})}

    run(scenario)


def test_empty_group_name_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with group_broker(tmp_path) as running:
            client = await running.client()
            await single_member(client)
            for version in BATCHED:
                found = await batched(client, version, wanted("", None), wanted("g", None))
                assert found[""][1] == {}
                assert found["g"] == (0, {})

    run(scenario)

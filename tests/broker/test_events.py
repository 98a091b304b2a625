"""The events that a broker writes to its log."""

import asyncio
import logging
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest

from broker.event_log import read_json, read_text
from broker.nodes import Client, broker, closed, run
from broker.test_metrics_page import delete
from broker.test_node import create
from ottla.broker.event_lines import EventLines, LineFormat
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from ottla.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from ottla.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

FORGED = "g\nlevel=error event=forged\x1b[2J"
SECRET = "hunter2-hunter2"


async def alter(client: Client, kind: int, name: str, key: str, value: str) -> int:
    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[AlterableConfig(name=key, config_operation=0, value=value)],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    (answer,) = (await client.ask(request, IncrementalAlterConfigsResponse)).responses
    return answer.error_code


async def coordinator(client: Client, group: str) -> None:
    """Wait until the group has a coordinator."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    while True:
        (found,) = (await client.ask(request, FindCoordinatorResponse)).coordinators
        if found.error_code == 0:
            return


async def rebalance(client: Client, group: str) -> None:
    """Join and leave a group with a single member."""
    await coordinator(client, group)
    join = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    first = await client.ask(join, JoinGroupResponse)
    join.member_id = first.member_id
    joined = await client.ask(join, JoinGroupResponse)
    assert joined.error_code == 0
    sync = SyncGroupRequest(
        group_id=group,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"")],
    )
    assert (await client.ask(sync, SyncGroupResponse)).error_code == 0
    leave = LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=joined.member_id)])
    assert (await client.ask(leave, LeaveGroupResponse)).error_code == 0


@pytest.mark.parametrize(
    ("form", "read"), [(LineFormat.TEXT, read_text), (LineFormat.JSON, read_json)]
)
def test_events_are_logged_without_secrets(
    tmp_path: Path, form: LineFormat, read: Callable[[str], dict[str, str]]
) -> None:
    written = StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(EventLines(form))
    log = logging.getLogger("ottla")
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)

    async def scenario() -> None:
        async with broker(
            tmp_path, "offsets.topic.num.partitions=1", "group.initial.rebalance.delay.ms=0"
        ) as running:
            client = await running.client()
            await create(client, "orders", retention_ms="1000")
            grow = CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name="orders", count=3, assignments=None)],
                timeout_ms=1000,
                validate_only=False,
            )
            await client.ask(grow, CreatePartitionsResponse)
            assert await alter(client, 2, "orders", "segment.ms", "5000") == 0
            assert await alter(client, 4, "1", "log.cleaner.threads", "2") == 0
            await alter(client, 4, "1", "ssl.keystore.password", SECRET)
            await alter(client, 4, "", "listener.name.internal.ssl.key.password", SECRET)
            await rebalance(client, FORGED)
            await delete(client, "orders")
            for _ in range(3):
                reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
                writer.write(b"\0\0\0\x08\x7f\xff\0\0\0\0\0\0")
                assert await closed(reader)
                writer.close()

    try:
        run(scenario)
    finally:
        log.removeHandler(handler)
        log.setLevel(logging.NOTSET)
    lines = written.getvalue().splitlines()
    assert SECRET not in written.getvalue()
    events = [read(line) for line in lines]
    told = [(one["event"], one.get("topic") or one.get("group") or "") for one in events]
    expected = [
        ("data directory opened", ""),
        ("listener started", ""),
        ("broker started", ""),
        ("topic created", "orders"),
        ("partitions added", "orders"),
        ("settings changed", "orders"),
        ("settings changed", ""),
        ("settings changed", ""),
        ("topic created", "__consumer_offsets"),
        ("rebalance started", FORGED),
        ("group stabilized", FORGED),
        ("group emptied", FORGED),
        ("topic deleted", "orders"),
        ("connection closed", ""),
    ]
    assert [one for one in told if one in expected][: len(expected)] == expected
    by_event = {one["event"]: one for one in events}
    assert by_event["partitions added"]["to"] == "3"
    assert by_event["connection closed"]["reason"] == "request of 8 bytes is too short for a header"
    settings = [one["settings"] for one in events if one["event"] == "settings changed"]
    assert settings == [
        "segment.ms=5000",
        "log.cleaner.threads=2",
        "ssl.keystore.password=(hidden)",
    ]
    assert [one["event"] for one in events].count("connection closed") == 1, "once per peer"
    assert not [one for one in events if one["level"] in ("error", "fatal")]

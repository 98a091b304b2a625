"""A broker process whose connections use up the descriptors that they may have."""

import asyncio
from pathlib import Path

from broker.nodes import Client, closed, run
from broker.test_configs import TOPIC_RESOURCE, set_one
from broker.test_node import batch, create, produce
from broker.test_offset_commits import commit, committed, find_coordinator
from cli.test_broker import dev
from ottla.broker.service import COORDINATION_FILE

LISTED = "leader.replication.throttled.replicas"


def test_full_connections_leave_descriptors_for_coordination(tmp_path: Path) -> None:
    journal = tmp_path / "data" / COORDINATION_FILE

    async def scenario() -> None:
        host, port = running.address.rsplit(":", 1)
        client = Client(*await asyncio.open_connection(host, int(port)))
        crowd = [await asyncio.open_connection(host, int(port)) for _ in range(300)]
        try:
            assert await closed(crowd[-1][0])  # the broker is at its limit
            await create(client, "t", 3)
            for index in range(3):
                assert await produce(client, "t", batch(b"x"), index=index) == (0, 0)
            await find_coordinator(client)
            before = journal.stat().st_ino
            changes = 0
            while journal.stat().st_ino == before:  # the journal is replaced when it has grown
                changes += 1
                assert changes < 100
                value = ",".join(f"{changes}:{number}" for number in range(4000))
                assert await set_one(client, TOPIC_RESOURCE, "t", LISTED, value) == 0
                assert await commit(client, changes) == 0
            assert await committed(client) == changes
        finally:
            for _, writer in crowd:
                writer.close()
            await client.close()

    log = tmp_path / "log"  # a pipe would fill up with the long values
    few = "offsets.topic.num.partitions=1"
    with dev(tmp_path, few, before=f'ulimit -n 200; exec 2>"{log}"') as running:
        run(scenario)
        assert running.stop() == 0
    told = log.read_text()
    assert "the limit of 200 open files allows" in told
    assert "file descriptors exhausted" not in told

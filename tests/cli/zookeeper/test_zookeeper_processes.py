"""`ottla zookeeper start` as processes: an ensemble of three servers."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from file_modes import exposed
from ottla.coordination.errors import ConnectionLoss
from ottla.coordination.session import SessionState
from ottla.coordination.zookeeper import ZooKeeper

OTTLA = str(Path(sys.executable).parent / "ottla")
PATIENCE_S = 120
PORTS = (12_000, 32_000)  # below those of outgoing connections


def test_ensemble_survives_the_loss_of_a_server(tmp_path: Path) -> None:
    ports = random.sample(range(*PORTS), 9)
    ensemble = ",".join(f"127.0.0.1:{ports[at + 1]}:{ports[at + 2]}" for at in (0, 3, 6))
    with ExitStack() as stack:
        servers: list[subprocess.Popen[str]] = []
        for number in (1, 2, 3):
            server = subprocess.Popen(
                [
                    *(OTTLA, "zookeeper", "start", "--id", str(number), "--ensemble", ensemble),
                    *("--port", str(ports[3 * number - 3]), "-o", "json"),
                    *("--data", str(tmp_path / str(number))),
                ],
                stdout=subprocess.PIPE,
                text=True,
                umask=0,
            )
            stack.callback(server.communicate)
            stack.callback(server.kill)
            servers.append(server)
        said: list[dict[str, object]] = []
        for server in servers:
            assert server.stdout is not None
            said.append(json.loads(server.stdout.readline()))
        assert [one["address"] for one in said] == [f"127.0.0.1:{ports[at]}" for at in (0, 3, 6)]

        async def use() -> None:
            states: list[SessionState] = []
            connect = ",".join(str(one["address"]) for one in said)
            session = await ZooKeeper(f"{connect}/test").connect(states.append)
            await session.create("/orders", b"1")
            killed = said[0]["pid"]
            assert isinstance(killed, int)
            os.kill(killed, signal.SIGKILL)
            while True:
                await session.connected()
                try:
                    await session.set("/orders", b"2")
                    break
                except ConnectionLoss:  # it was connected to the killed server, or to its follower
                    continue
            assert SessionState.LOST not in states
            await session.close()

        asyncio.run(asyncio.wait_for(use(), PATIENCE_S))
        assert servers[0].wait(PATIENCE_S) == 1  # it has nothing to run any more
        assert servers[0].stdout is not None
        assert json.loads(servers[0].stdout.read())["error"]["message"].startswith(
            "ZooKeeper exited with code -9: see"
        )
        for server in servers[1:]:
            server.send_signal(signal.SIGTERM)
        assert [server.wait(PATIENCE_S) for server in servers[1:]] == [0, 0]
        for number in (1, 2, 3):
            assert exposed(tmp_path / str(number)) == []

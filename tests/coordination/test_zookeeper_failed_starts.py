"""Starts of a broker with ZooKeeper that fail because an address cannot be bound."""

import socket
from pathlib import Path

import pytest

from cli.test_broker import refused


@pytest.mark.parametrize("broker_id", ["node.id=1", "broker.id.generation.enable=true"])
def test_failed_start_with_zookeeper_leaves_no_directory(
    zookeeper_port: int, tmp_path: Path, broker_id: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken = f"127.0.0.1:{holder.getsockname()[1]}"
        not_of_this_machine = "192.0.2.1:9092"
        for address in (taken, not_of_this_machine):
            settings = (
                broker_id,
                f"zookeeper.connect=127.0.0.1:{zookeeper_port}/failed",
                f"listeners=PLAINTEXT://{address}",
                f"log.dirs={tmp_path / 'new' / 'data'},{tmp_path / 'other'}",
            )
            code, told = refused("broker", *(f"--override={one}" for one in settings))
            assert code == 1
            assert address in told
            assert [*tmp_path.iterdir()] == []

"""The process of our broker: its port is free after a kill."""

import socket
import sys
from pathlib import Path

import pytest

from judges import ottla_broker
from judges.ottla_broker import OttlaBroker

# A broker that is killed while it starts a child. The child holds its sockets from the fork to the
# exec, which is delayed here until a client connects after the kill.
FORKING = f"""#!{sys.executable}
import os, signal, socket, sys
address = next(word for word in sys.argv if word.startswith("listeners=")).rpartition(":")[2]
listening = socket.create_server(("127.0.0.1", int(address)))
broker = os.getpid()
if os.fork():
    signal.pause()
while True:
    accepted, _ = listening.accept()
    if os.getppid() != broker:
        break
    accepted.close()
"""


def test_port_is_free_after_a_kill_during_a_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "forking"
    command.write_text(FORKING)
    command.chmod(0o700)
    monkeypatch.setattr(ottla_broker, "OTTLA", str(command))
    with OttlaBroker(tmp_path) as broker:
        broker.start()
        with socket.create_connection(broker.address) as last:  # connected while the broker runs
            assert last.recv(1) == b""
        broker.kill()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(broker.address).close()

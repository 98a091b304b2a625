"""Our broker as a process, the part of it that a test relies on: its port when it was killed."""

import socket
import sys
from pathlib import Path

import pytest

from judges import ottla_broker
from judges.ottla_broker import OttlaBroker

# A broker that is killed while it starts a child: the child has its sockets from the fork to the
# exec, which this one puts off until somebody connects after the kill.
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


def test_a_killed_brokers_port_is_free_also_when_it_was_starting_a_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "forking"
    command.write_text(FORKING)
    command.chmod(0o700)
    monkeypatch.setattr(ottla_broker, "OTTLA", str(command))
    with OttlaBroker(tmp_path) as broker:
        broker.start()
        with socket.create_connection(broker.address) as last:  # that it sees the broker alive
            assert last.recv(1) == b""
        broker.kill()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(broker.address).close()

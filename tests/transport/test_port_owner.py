"""The process that listens on a port of an address."""

import os
import socket
import subprocess
import sys

from ottla.transport.port_owner import port_owner_pid

LISTEN = """
import socket, sys
one = socket.create_server(("127.0.0.2", int(sys.argv[1])))
print(flush=True)
sys.stdin.read()
"""


def test_processes_share_a_port_on_different_addresses() -> None:
    pipe = subprocess.PIPE
    with socket.create_server(("127.0.0.1", 0)) as own:
        port = int(own.getsockname()[1])
        with subprocess.Popen(
            (sys.executable, "-S", "-c", LISTEN, str(port)), stdin=pipe, stdout=pipe
        ) as other:
            assert other.stdout is not None
            other.stdout.readline()
            assert port_owner_pid(port, "127.0.0.1") == os.getpid()
            assert port_owner_pid(port, "127.0.0.2") == other.pid
            assert port_owner_pid(port, "127.0.0.3") is None
            other.communicate()


def test_process_listens_on_all_addresses() -> None:
    families = [(socket.AF_INET, "0.0.0.0")]
    if socket.has_dualstack_ipv6():
        families.append((socket.AF_INET6, "::"))
    for family, address in families:
        is_dual = family is socket.AF_INET6
        with socket.create_server((address, 0), family=family, dualstack_ipv6=is_dual) as own:
            port = int(own.getsockname()[1])
            assert port_owner_pid(port, "127.0.0.1") == port_owner_pid(port) == os.getpid()

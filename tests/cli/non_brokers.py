"""Servers that are not brokers: one sends garbage, one never responds."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cache

RUBBISH = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"


class NonBroker:
    """Listens on loopback and handles connections as requested."""

    def __init__(self, answer: bytes | None) -> None:
        self._answer = answer
        self._server = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._open: list[socket.socket] = []
        self.port: int = self._server.getsockname()[1]
        self.asked = threading.Semaphore(0)
        """Released for each connection that has sent something."""

        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                self._open.append(connection)
                threading.Thread(target=self._meet, args=(connection,), daemon=True).start()
        for one in self._open:  # one may have been accepted after `close` looked
            one.close()

    def _meet(self, connection: socket.socket) -> None:
        with suppress(OSError):
            if not connection.recv(65_536):
                return
            self.asked.release()
            if self._answer is None:
                while connection.recv(65_536):
                    pass
            else:
                connection.sendall(self._answer)
        connection.close()

    def close(self) -> None:
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for one in self._open:
            one.close()


@contextmanager
def talkative() -> Generator[NonBroker]:
    """Run a server that sends garbage."""
    found = NonBroker(RUBBISH)
    try:
        yield found
    finally:
        found.close()


@contextmanager
def silent() -> Generator[NonBroker]:
    """Run a server that reads and never responds."""
    found = NonBroker(None)
    try:
        yield found
    finally:
        found.close()


@cache
def nobody() -> str:
    """Return an address without a listener, which no other process gets."""
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{held.getsockname()[1]}"
    held.detach()  # the port stays bound until this process ends
    return address

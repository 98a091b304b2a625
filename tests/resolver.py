"""Replaces the system's resolver of host names, so that a name can lead to another place."""

import socket
import threading
from typing import Any, Final

import pytest

NAME: Final = "broker.example"
HOST: Final = "127.0.0.1"
_PATIENCE_S: Final = 60.0


class Resolver:
    """Resolves NAME to a port of this machine, when `let_resolve` is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.port = 0
        self.is_asked = threading.Event()
        self._may_answer = threading.Event()
        real: Any = socket.getaddrinfo  # Any: it has many signatures

        def getaddrinfo(host: Any, *arguments: Any, **options: Any) -> Any:
            return self._resolved() if host == NAME else real(host, *arguments, **options)

        monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    def let_resolve(self) -> None:
        """Let the next call return, or the one that waits."""
        self._may_answer.set()

    def _resolved(self) -> list[object]:
        self.is_asked.set()
        assert self._may_answer.wait(_PATIENCE_S), "the thread of the test waits for the resolver"
        self._may_answer.clear()
        self.is_asked.clear()
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (HOST, self.port))]

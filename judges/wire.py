"""A connection to any broker, Kafka or Ottla: one request, one response.

Invariant: the bytes on the connection are exactly the messages of the caller: no retries, no
metadata, no sessions. For tests that send one request to two brokers.
"""

import socket
from types import TracebackType
from typing import Self, TypeVar

from ottla.protocol.conversation import ClientConversation
from ottla.protocol.message import Message

T = TypeVar("T", bound=Message)

_CHUNK_BYTES = 1024 * 1024


class Wire:
    """A connection that is closed at the end of its `with`."""

    def __init__(self, address: tuple[str, int], timeout_s: float = 30) -> None:
        self._socket = socket.create_connection(address, timeout_s)
        self._conversation = ClientConversation("wire")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def ask(self, request: Message, version: int, expected: type[T]) -> T:
        """The response to a request; ConnectionError if the broker closes the connection."""
        self.send(request, version)
        return self.receive(expected)

    def send(self, request: Message, version: int) -> None:
        """Send a request without waiting for its response."""
        _, buffers = self._conversation.send(request, version)
        self._socket.sendall(b"".join(buffers))

    def receive(self, expected: type[T]) -> T:
        """The response to a sent request; ConnectionError if the broker closes the connection."""
        while True:
            data = self._socket.recv(_CHUNK_BYTES)
            if not data:
                raise ConnectionError("the broker hung up")
            for response in self._conversation.receive(data):
                assert isinstance(response.message, expected)
                return response.message

"""A blocking client that can send arbitrary bytes."""

import socket
import struct
from collections import deque
from contextlib import suppress
from typing import Self, TypeVar

from ottla.protocol.conversation import ClientConversation
from ottla.protocol.message import Message

M = TypeVar("M", bound=Message)


class Wire:
    """A connection to a broker on this machine."""

    def __init__(self, port: int, timeout_s: float = 30) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._conversation = ClientConversation("wire")
        self._answers: deque[Message] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send raw bytes; errors of a closed connection show when reading."""
        with suppress(ConnectionError):
            self.socket.sendall(data)

    def send_frame(self, body: bytes) -> None:
        self.send(struct.pack(">i", len(body)) + body)

    def send_request(self, key: int, version: int, body: bytes, *, flexible: bool = False) -> None:
        """Send a valid header followed by an arbitrary body."""
        header = struct.pack(">hhih", key, version, 1, 4) + b"wire" + (b"\0" if flexible else b"")
        self.send_frame(header + body)

    def encode(self, message: Message, version: int | None = None) -> bytes:
        """Return an encoded request."""
        api = message.API
        assert api is not None
        chosen = api.advertised.high if version is None else version
        return b"".join(self._conversation.send(message, chosen)[1])

    def ask(self, message: Message, answer: type[M], version: int | None = None) -> M:
        self.send(self.encode(message, version))
        return self.answer(answer)

    def answer(self, answer: type[M]) -> M:
        """Return the next response to an encoded request."""
        while not self._answers:
            data = self.socket.recv(1 << 20)
            if not data:
                raise EOFError("the broker closed the connection")
            self._answers += [one.message for one in self._conversation.receive(data)]
        message = self._answers.popleft()
        assert isinstance(message, answer)
        return message

    def raw_answer(self) -> bytes:
        """Return the next frame."""
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise EOFError("the broker closed the connection")
            data += more
        return data

    def read_to_the_end(self) -> None:
        """Return all bytes until the broker closes the connection."""
        with suppress(ConnectionError):
            while self.socket.recv(1 << 20):
                pass

    def is_closed(self) -> bool:
        """Wait until the broker has closed the connection, and check that it sent nothing."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True
